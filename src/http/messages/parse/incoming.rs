//! Messages in the body of a request: their roles, ids and content.

use hyper::StatusCode;

use crate::{
    http::{parse::fields::Fields, server::Error},
    message,
    tree::messages::{CONTENT_MAX, Incoming, id_rule},
    value::Value,
};

const ROLES: &[(&str, &str)] = &[
    ("user", "human"),
    ("assistant", "ai"),
    ("system", "system"),
    ("tool", "tool"),
    ("human", "human"),
    ("ai", "ai"),
];
/// Fields of a request that may stand beside those of its only message.
const OF_REQUEST: [&str; 15] = [
    "messages",
    "parent_id",
    "message_id",
    "position",
    "branch",
    "tag",
    "activate",
    "on_existing",
    "expected_head",
    "as_node",
    "run",
    "forkedAtConversationId",
    "forkedAtEntryId",
    "forked_at_thread_id",
    "forked_at_message_id",
];

/// A message of a post.
pub(super) fn incoming(fields: &Fields<'_>) -> Result<Incoming, Error> {
    let role = fields.word("role", ROLES)?;
    let role = match role {
        Some(role) => role,
        None => {
            let kind = fields.word("type", ROLES)?;
            kind.ok_or_else(|| fields.required("role"))?
        }
    };
    let id = fields.text("id")?.cloned();
    if let Some(id) = &id {
        check_id(fields, "id", id)?;
    }
    match fields.any("content") {
        Some(content) => check_content(fields, content)?,
        None if fields.list("tool_calls")?.is_some() => {}
        None => return Err(fields.required("content")),
    }
    let mut map = fields.map_of().clone();
    map.remove("role");
    map.retain(|key, value| !value.is_null() && !OF_REQUEST.contains(&&**key));
    map.insert("type", role);
    let message = message::coerce(&Value::map(map));
    let message = message.map_err(|error| Error::invalid(format!("Invalid message: {error}")))?;
    Ok(Incoming { id, message })
}

/// Checks the id of a message that may be one of the thread, whose ids may be longer than those of new ones.
fn check_id(fields: &Fields<'_>, field: &str, id: &str) -> Result<(), Error> {
    if !id.is_empty() && message::is_id(id) && !id.contains(char::is_whitespace) {
        Ok(())
    } else {
        Err(fields.refuse(field, id_rule()))
    }
}

/// Checks the id of a new message.
pub(super) fn check_new_id(fields: &Fields<'_>, field: &str, id: &str) -> Result<(), Error> {
    check_id(fields, field, id)?;
    if message::is_too_long(id) {
        Err(fields.refuse(field, id_rule()))
    } else {
        Ok(())
    }
}

pub(super) fn check_content(fields: &Fields<'_>, content: &Value) -> Result<(), Error> {
    let bytes = match content {
        Value::Str(text) => text.len(),
        Value::List(_) => content.to_json().len(),
        _ => {
            let reason = "The content of a message is a text or a list of parts";
            return Err(fields.refuse("content", reason));
        }
    };
    if bytes > CONTENT_MAX {
        Err(too_large(format!(
            "The content of a message may have {CONTENT_MAX} bytes, this one has {bytes}"
        )))
    } else {
        Ok(())
    }
}

pub(super) fn too_large(detail: String) -> Error {
    Error::new(StatusCode::PAYLOAD_TOO_LARGE, detail).with_code("too_large")
}
