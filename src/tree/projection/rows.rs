//! Computes the rows that events add to derived tables.

use std::sync::Arc;

use super::HeadRow;
use crate::{
    tree::{event, store::ThreadEvent},
    value::Value,
};

/// Most characters of a preview.
pub(super) const PREVIEW: usize = 120;

/// The row of `thread_heads` after `events` of a thread. `message` returns the message that an event
/// is about, as stored at the event's checkpoint.
pub fn project<'a>(
    head: Option<&HeadRow>,
    events: &[ThreadEvent],
    message: impl Fn(&ThreadEvent) -> Option<&'a Value>,
) -> HeadRow {
    let mut head = head.cloned().unwrap_or_default();
    for event in events {
        advance(&mut head, event, message(event));
    }
    head
}

/// The events from the last one on that adds a message, or all of them: the row shows of no other message what is
/// in a state.
pub fn since_newest_message(events: &[ThreadEvent]) -> &[ThreadEvent] {
    let newest = events.iter().rposition(is_added);
    &events[newest.unwrap_or_default()..]
}

/// Whether an event adds a message or changes the content of one.
pub fn is_text(event: &ThreadEvent) -> bool {
    is_added(event) || &*event.kind == event::MESSAGE_EDITED
}

/// Whether an event adds a message.
fn is_added(event: &ThreadEvent) -> bool {
    matches!(
        &*event.kind,
        event::USER_MESSAGE_ADDED | event::LLM_RESPONSE_GENERATED | event::MESSAGE_ADDED
    )
}

fn advance(head: &mut HeadRow, event: &ThreadEvent, message: Option<&Value>) {
    head.number = event.number;
    head.updated_at = head.updated_at.max(event.created_at.0);
    match &*event.kind {
        event::BRANCH_CREATED => head.branches += 1,
        event::BRANCH_DELETED => head.branches -= 1,
        event::RUN_FINISHED => head.runs += 1,
        _ if is_added(event) => {
            head.messages += 1;
            head.last_message_id.clone_from(&event.message_id);
            head.last_role = role(event, message);
            head.last_preview = message.map(preview);
        }
        event::MESSAGE_EDITED if head.last_message_id == event.message_id => {
            head.last_preview = message.map(preview);
        }
        _ => {}
    }
}

fn role(event: &ThreadEvent, message: Option<&Value>) -> Option<Arc<str>> {
    let stored = message.and_then(|message| message.get("type")?.as_str());
    Some(match (&*event.kind, stored) {
        (event::USER_MESSAGE_ADDED, _) | (_, Some("human")) => "user".into(),
        (event::LLM_RESPONSE_GENERATED, _) | (_, Some("ai")) => "assistant".into(),
        (_, Some(other)) => other.into(),
        (_, None) => {
            let role = event.payload.get("role")?.as_str()?;
            role.into()
        }
    })
}

/// The text of a message without NUL, which not every database holds: its content, or the text
/// parts of it on lines of their own.
fn text(message: &Value) -> String {
    let content = message.get("content").unwrap_or(&Value::Null);
    let whole = match content {
        Value::Str(text) => text.to_string(),
        Value::List(parts) => {
            let text = |part: &Value| match part {
                Value::Str(text) => Some(text.to_string()),
                part => Some(part.get("text")?.as_str()?.to_owned()),
            };
            parts.iter().filter_map(text).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    };
    whole.replace('\0', "")
}

/// The beginning of a message's text, on one line.
pub fn preview(message: &Value) -> Arc<str> {
    let text = text(message);
    let mut words = String::with_capacity(PREVIEW);
    let mut count = 0;
    for word in text.split_whitespace() {
        if count > 0 {
            words.push(' ');
            count += 1;
        }
        for letter in word.chars() {
            if count == PREVIEW {
                words.push('…');
                return words.into();
            }
            words.push(letter);
            count += 1;
        }
    }
    words.into()
}
