//! The content of messages, read from the messages channel of checkpoints. The message index has
//! no content.

use std::sync::Arc;

use crate::{
    checkpoint::{At, Query, Saver, cache::DecodedCheckpoints, frame::Decoded},
    id::{CheckpointId, ThreadId, TreeId},
    tree::{
        error::{Error, ErrorKind, Result},
        load::{self, StateMemory},
    },
    value::Value,
};

/// Reads the messages channel of a thread's checkpoints.
pub struct MessageContents<'a> {
    /// The storage.
    pub saver: &'a Arc<dyn Saver>,
    /// Decoded checkpoints in memory.
    pub cache: &'a DecodedCheckpoints,
    /// The tree.
    pub tree: TreeId,
    /// The thread.
    pub thread: ThreadId,
    /// The channel of the conversation.
    pub channel: Arc<str>,
    /// What large states take; without it they take nothing.
    pub memory: Option<&'a dyn StateMemory>,
}

impl MessageContents<'_> {
    /// A checkpoint of the root namespace; none if it was pruned. Of its pending writes nothing
    /// is known.
    ///
    /// # Errors
    /// The storage failed, or a row cannot be read.
    pub async fn decoded(&self, id: CheckpointId) -> Result<Option<Arc<Decoded>>> {
        if let Some(found) = self.cache.get(self.tree, id) {
            return Ok(Some(found));
        }
        let query = Query {
            tree: self.tree,
            thread: self.thread,
            ns: "".into(),
            at: At::Id(id),
            values: true,
        };
        let loaded = load::checkpoint_in(self.saver, query, Some(id), self.memory).await?;
        let Some((mut decoded, _memory)) = loaded else {
            return Ok(None);
        };
        decoded.writes.clear();
        self.cache.insert(self.tree, decoded.clone());
        Ok(Some(Arc::new(decoded)))
    }

    /// The messages in the state of a checkpoint; none if it was pruned.
    ///
    /// # Errors
    /// As [`decoded`](Self::decoded).
    pub async fn messages(&self, id: CheckpointId) -> Result<Option<MessageList>> {
        let decoded = self.decoded(id).await?;
        Ok(decoded.map(|decoded| self.of_state(&decoded)))
    }

    /// The same for what shows a few of them beside other things: none also of a state that is too large to be read.
    ///
    /// # Errors
    /// As [`decoded`](Self::decoded).
    pub async fn messages_if_small(&self, id: CheckpointId) -> Result<Option<MessageList>> {
        match self.messages(id).await {
            Err(Error::Refused {
                kind: ErrorKind::TooLarge,
                ..
            }) => Ok(None),
            found => found,
        }
    }

    /// The messages of a state.
    pub fn of_state(&self, decoded: &Decoded) -> MessageList {
        decoded.checkpoint.values.get(&self.channel).cloned().into()
    }
}

/// The messages of a state.
#[derive(Clone, Debug, Default)]
pub struct MessageList(Value);

impl From<Option<Value>> for MessageList {
    /// Those of the value of a channel; none without one.
    fn from(value: Option<Value>) -> Self {
        Self(value.unwrap_or_default())
    }
}

impl MessageList {
    /// All of them.
    pub fn all(&self) -> &[Value] {
        self.0.as_list().unwrap_or_default()
    }

    /// The one with an id.
    pub fn find(&self, id: &str) -> Option<&Value> {
        // Lookups are mostly for messages near the end.
        self.all().iter().rev().find(|one| id_of(one) == Some(id))
    }
}

/// The id of a message in stored form.
pub fn id_of(message: &Value) -> Option<&str> {
    message.get("id").and_then(Value::as_str)
}

/// Whether a stored message equals an incoming one in every field that the incoming one has,
/// except for the id.
pub fn content_matches(stored: &Value, incoming: &Value) -> bool {
    let Some(fields) = incoming.as_map() else {
        return false;
    };
    fields
        .iter()
        .filter(|(key, _)| &***key != "id")
        .all(|(key, value)| stored.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn a_message_says_the_same_when_nothing_that_came_is_different() {
        let stored = value!({"type": "ai", "content": "hi", "id": "1", "name": "bot"});
        for (incoming, same) in [
            (value!({"type": "ai", "content": "hi", "id": "2"}), true),
            (value!({"type": "ai", "content": "hi"}), true),
            (value!({"type": "human", "content": "hi"}), false),
            (value!({"type": "ai", "content": "ho"}), false),
            (
                value!({"type": "ai", "content": "hi", "name": "else"}),
                false,
            ),
            (
                value!({"type": "ai", "content": "hi", "tool_calls": []}),
                false,
            ),
        ] {
            assert_eq!(content_matches(&stored, &incoming), same, "{incoming:?}");
        }
    }
}
