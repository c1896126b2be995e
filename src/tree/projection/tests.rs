//! Tests of the rows that events add to derived tables.

use proptest::prelude::*;

use super::{rows::PREVIEW, *};
use crate::{
    id::{BranchId, EventId},
    time::Timestamp,
    tree::store::rows::ThreadEvent,
    value,
    value::{Map, Value},
};

fn event(number: i64, kind: &str, message: Option<&str>) -> ThreadEvent {
    ThreadEvent {
        id: EventId(uuid::Uuid::from_u128(number as u128)),
        thread: ThreadId(uuid::Uuid::nil()),
        number,
        kind: kind.into(),
        payload: Map::new(),
        branch: Some(BranchId(uuid::Uuid::nil())),
        checkpoint: None,
        message_id: message.map(Into::into),
        created_at: Timestamp(number * 10),
    }
}

/// The row of a thread after one more step.
fn step(
    head: Option<&HeadRow>,
    events: &[ThreadEvent],
    messages: &[(Arc<str>, Value)],
) -> Option<HeadRow> {
    // Messages of no other events are read.
    let needed = since_newest_message(events);
    let message = |event: &ThreadEvent| {
        needed.iter().find(|one| one.number == event.number)?;
        message_of(event, messages)
    };
    Some(project(head, events, message))
}

fn message_of<'a>(event: &ThreadEvent, messages: &'a [(Arc<str>, Value)]) -> Option<&'a Value> {
    let id = event.message_id.as_ref()?;
    messages
        .iter()
        .find(|(known, _)| known == id)
        .map(|(_, message)| message)
}

proptest! {
    #[test]
    fn rows_do_not_depend_on_how_events_are_cut_into_steps(
        kinds in proptest::collection::vec((0..7_usize, 0..4_u8), 1..40),
        cuts in proptest::collection::vec(1..40_usize, 0..6),
    ) {
        let names = [
            "UserMessageAdded", "LLMResponseGenerated", "MessageEdited", "BranchCreated",
            "RunFinished", "MessageRemoved", "BranchDeleted",
        ];
        let events: Vec<ThreadEvent> = kinds
            .iter()
            .zip(1..)
            .map(|((kind, message), number)| event(number, names[*kind], Some(&format!("m{message}"))))
            .collect();
        let messages: Vec<(Arc<str>, Value)> = (0..3)
            .map(|n| (format!("m{n}").into(), value!({"type": "human", "content": format!("Text {n}")})))
            .collect();
        let at_once = step(None, &events, &messages);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(events.len())).collect();
        cuts.extend([0, events.len()]);
        cuts.sort_unstable();
        let mut in_steps = None;
        for pair in cuts.windows(2).filter(|pair| pair[0] < pair[1]) {
            in_steps = step(in_steps.as_ref(), &events[pair[0]..pair[1]], &messages);
        }
        prop_assert_eq!(&at_once, &in_steps);
        let with_all = project(None, &events, |event| message_of(event, &messages));
        prop_assert_eq!(at_once, Some(with_all));
    }
}

#[test]
fn previews_are_one_short_line() {
    let of = |content: Value| preview(&value!({"content": content})).to_string();
    assert_eq!(of(value!("two\n words\0")), "two words");
    let parts = value!([{"type": "text", "text": "see"}, {"type": "image_url"}, "this"]);
    assert_eq!(of(parts), "see this");
    let long = of(value!("é".repeat(500)));
    assert_eq!(long.chars().count(), PREVIEW + 1);
    assert!(long.ends_with('…'));
    assert_eq!(of(Value::Null), "");
}
