//! Messages of threads: storing them, sending them to be answered, and reading them.

mod dedup;
mod list;
pub(super) mod lookup;
mod post;
mod send;
pub(super) mod sources;

use std::sync::Arc;

pub use post::{NewPost, StoredPost};
pub use send::{NewMessage, QueuedMessage};

use crate::{tree::messages::Incoming, value::Value};

/// Whether a content has no text and nothing else.
pub fn is_blank(content: &Value) -> bool {
    match content {
        Value::Str(text) => text.trim().is_empty(),
        Value::List(parts) => parts.iter().all(|part| match part {
            Value::Map(map) if map.get("type").and_then(Value::as_str) == Some("text") => {
                map.get("text").is_none_or(is_blank)
            }
            Value::Map(map) => map.is_empty(),
            other => is_blank(other),
        }),
        Value::Null => true,
        _ => false,
    }
}

/// The first id that two messages have: they cannot both be stored.
pub fn first_duplicate(messages: &[Incoming]) -> Option<&Arc<str>> {
    let mut visited = std::collections::HashSet::new();
    let mut ids = messages.iter().filter_map(|one| one.id.as_ref());
    ids.find(|id| !visited.insert(*id))
}
