//! Cursors of message pages: opaque to clients, and not to be made by them.
//!
//! A cursor names the end of the path it was made for and a message on it, under a keyed hash, so
//! that following it on the same path needs no walk. The key is the id of the branch that wrote
//! the end of the path: random, stored with the node, the same for every process and shown to
//! nobody.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use uuid::Uuid;

use crate::{
    id::{BranchId, NodeId},
    tree::store::MessageNode,
};

/// Stands for no message.
const OUTSIDE: NodeId = NodeId(Uuid::nil());

/// A decoded cursor; its content is to be trusted only if [`is_genuine`](Self::is_genuine).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The last message of the path it was made for.
    pub end: NodeId,
    /// The message it names.
    pub at: NodeId,
    seal: Uuid,
}

impl Cursor {
    /// The cursor of `at` on the path that ends with `end`.
    pub fn new(end: &MessageNode, at: NodeId) -> Self {
        Self {
            end: end.id,
            at,
            seal: seal(end.branch, end.id, at),
        }
    }

    /// The cursor of the outside of the path that ends with `end`: behind the end where a page
    /// ends before it, before the beginning where one begins after it.
    pub fn outside(end: &MessageNode) -> Self {
        Self::new(end, OUTSIDE)
    }

    /// Whether it names no message.
    pub fn is_outside(&self) -> bool {
        self.at == OUTSIDE
    }

    /// Whether this server made it. `end` is the node that it names.
    pub fn is_genuine(&self, end: &MessageNode) -> bool {
        end.id == self.end && seal(end.branch, self.end, self.at) == self.seal
    }

    /// The text for clients.
    pub fn text(&self) -> String {
        let mut bytes = [0; 48];
        let parts = [self.end.0, self.at.0, self.seal];
        for (part, into) in parts.iter().zip(bytes.chunks_exact_mut(16)) {
            into.copy_from_slice(part.as_bytes());
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Decodes a text that has the form of a cursor.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let bytes: [u8; 48] = bytes.try_into().ok()?;
        let mut parts = bytes
            .chunks_exact(16)
            .filter_map(|part| Uuid::from_slice(part).ok());
        Some(Self {
            end: NodeId(parts.next()?),
            at: NodeId(parts.next()?),
            seal: parts.next()?,
        })
    }
}

/// 122 bits of SHA-1 over a message of fixed length, keyed twice as HMAC does.
fn seal(key: BranchId, end: NodeId, at: NodeId) -> Uuid {
    let inner = Uuid::new_v5(&key.0, &[end.0.into_bytes(), at.0.into_bytes()].concat());
    Uuid::new_v5(&key.0, inner.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        id::{CheckpointId, ThreadId},
        time::Timestamp,
        tree::store::rows::MessageChange,
    };

    fn node() -> MessageNode {
        MessageNode {
            id: NodeId::mint(),
            parent: None,
            ordinal: 1,
            change: MessageChange::Add,
            message_id: "m".into(),
            edit_of: None,
            checkpoint: CheckpointId::mint(0, []),
            depth: 0,
            seq: 0,
            turn_end: None,
            thread: ThreadId::mint(),
            branch: BranchId::mint(),
            run: None,
            role: None,
            event_number: None,
            created_at: Timestamp::now(),
        }
    }

    #[test]
    fn a_cursor_reads_back_and_proves_its_origin() {
        let end = node();
        let cursor = Cursor::new(&end, NodeId::mint());
        let back = Cursor::parse(&cursor.text()).unwrap();
        assert_eq!(back, cursor);
        assert!(back.is_genuine(&end));
    }

    #[test]
    fn a_cursor_that_was_changed_or_made_up_is_not_genuine() {
        let end = node();
        let cursor = Cursor::new(&end, NodeId::mint());
        let moved = Cursor {
            at: NodeId::mint(),
            ..cursor
        };
        assert!(!moved.is_genuine(&end));
        assert!(!cursor.is_genuine(&node()), "another path's end");
        let elsewhere = MessageNode {
            branch: BranchId::mint(),
            ..end.clone()
        };
        assert!(!cursor.is_genuine(&elsewhere), "another key");
        let text = cursor.text();
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = Cursor::parse(std::str::from_utf8(&bytes).unwrap());
            assert!(
                changed.is_none_or(|changed| !changed.is_genuine(&end)),
                "{at}"
            );
        }
        for text in ["", "M1", &"A".repeat(63), &"A".repeat(65)] {
            assert_eq!(Cursor::parse(text), None);
        }
    }
}
