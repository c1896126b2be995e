//! Messages of a thread: placing and storing new ones, and reading them by path.

pub mod content;
pub mod cursor;
mod destination;
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
    error::{Error, ErrorKind, Result},
    resolve,
    store::{MessageNode, Position, Read, ThreadRow},
};
use crate::{id::CheckpointId, message, value::Value, words::words};

/// Most messages of one post.
pub const POST_MAX: usize = 1000;
/// Most bytes of one message's content.
pub const CONTENT_MAX: usize = 1 << 20;
/// Most messages of one page.
pub const PAGE_MAX: i64 = 1000;

words! {
    /// What to do with a message whose id the thread has already, with other content.
    #[derive(Default)]
    pub enum OnExisting, "treatment of a message that exists" {
        /// Write it on a new branch that begins before the old one.
        #[default]
        Branch = "branch",
        /// Replace it in the state at the head of the branch, through the channel's reducer.
        Replace = "replace",
        /// Refuse.
        Reject = "reject",
    }
}

/// A message of a request.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The id in the request.
    pub id: Option<Arc<str>>,
    /// The message in stored form, with the same `id`.
    pub message: Value,
}

/// Messages to store without running anything.
#[derive(Clone, Debug, Default)]
pub struct Post {
    /// At least one.
    pub messages: Vec<Incoming>,
    /// The message they follow, or replace with [`Position::Before`].
    pub parent: Option<(Arc<str>, Position)>,
    /// The branch to append to.
    pub branch: Option<Arc<str>>,
    /// Make the branch that was written the active one.
    pub activate: bool,
    /// What ids that the thread has already mean.
    pub on_existing: OnExisting,
    /// The head that the branch must have, as submitted; `Some(None)` means an empty branch. A text
    /// that is not the id of a checkpoint equals no head.
    pub expected_head: Option<Option<Arc<str>>>,
    /// The graph node that counts as their writer.
    pub as_node: Option<Arc<str>>,
}

/// What the id of a message in a request may be.
pub fn id_rule() -> String {
    let most = message::most_of_new_id();
    format!(
        "The id of a message has 1 to {most} visible characters ({})",
        message::ID_SETTING
    )
}

/// Finds a message that a request of the message API names as `parent_id` or `leaf_id`. Of several
/// messages with one id, the one on the path of `head` counts.
///
/// # Errors
/// 404 `message_not_found`; 400 `invalid_id` if the text cannot be an id assigned by this server.
pub async fn message(
    read: &mut dyn Read,
    thread: &ThreadRow,
    id: &Arc<str>,
    head: Option<CheckpointId>,
) -> Result<MessageNode> {
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
