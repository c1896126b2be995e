//! Messages of a thread: where a posted one goes, how it is stored, and reading them by path.

pub mod content;
pub mod cursor;
pub mod existing;
pub mod item;
pub mod page;
pub mod path;
pub mod placement;
pub mod post;
pub mod send;
pub mod trim;
mod write;

use std::sync::Arc;

use uuid::Uuid;

use super::{
    error::{Error, ErrorKind},
    resolve,
    store::{
        read::Read,
        rows::{MessageNode, Position, ThreadRow},
    },
};
use crate::{id::CheckpointId, value::Value};

/// Most messages of one post.
pub const POST_MAX: usize = 1000;
/// Most bytes of one message's content.
pub const CONTENT_MAX: usize = 1 << 20;
/// Most messages of one page.
pub const PAGE_MAX: i64 = 1000;
/// Most characters of a message's id.
pub const ID_MAX: usize = 255;

/// What to do with a message whose id the thread knows already, with other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnExisting {
    /// Write it on a new branch that begins before the old one.
    #[default]
    Branch,
    /// Change it where the branch stands, through the channel's reducer.
    Replace,
    /// Refuse.
    Reject,
}

/// A message of a request.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The id it came with.
    pub id: Option<Arc<str>>,
    /// It in stored form; its `id` is that of `id`.
    pub message: Value,
}

/// Messages to store without running anything.
#[derive(Clone, Debug, Default)]
pub struct Post {
    /// At least one.
    pub messages: Vec<Incoming>,
    /// The message they follow (or come in place of, with [`Position::Before`]).
    pub parent: Option<(Arc<str>, Position)>,
    /// The branch to append to.
    pub branch: Option<Arc<str>>,
    /// Make the branch that was written the active one.
    pub activate: bool,
    /// What known ids mean.
    pub on_existing: OnExisting,
    /// What the head of the branch must be, as sent, if that matters; `Some(None)` is an empty
    /// branch. What is no checkpoint's id is no branch's head either.
    pub expected_head: Option<Option<Arc<str>>>,
    /// The node that is taken to have written them.
    pub as_node: Option<Arc<str>>,
}

/// A message that a request of the message API names as `parent_id` or `leaf_id`. Of several with
/// one id the one on the path of `head` counts.
///
/// # Errors
/// 404 `message_not_found`; 400 `invalid_id` if it has not the form of an id that is given here.
pub async fn message(
    read: &mut dyn Read,
    thread: &ThreadRow,
    id: &Arc<str>,
    head: Option<CheckpointId>,
) -> Result<MessageNode, Error> {
    match resolve::message(read, thread, id, head).await {
        Err(Error::Refused {
            kind: ErrorKind::Missing,
            ..
        }) if Uuid::parse_str(id).is_err() => Err(Error::malformed(
            "invalid_id",
            format!("`{id}` is neither a UUID nor the id of a message of the thread"),
        )),
        other => other,
    }
}
