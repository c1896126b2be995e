//! A thread with the level of a principal on it and one of its checkpoints, in one snapshot.

use std::sync::Arc;

use rusqlite::Connection;

use super::rows::thread;
use crate::{
    checkpoint::Result,
    id::{CheckpointId, ThreadId},
    storage::sqlite::{checkpoints, tree},
    tree::ThreadWithCheckpoint,
};

/// See [`tree::Store::thread_with_checkpoint`](crate::tree::Store::thread_with_checkpoint).
pub(in super::super) fn thread_with_checkpoint(
    db: &Connection,
    id: ThreadId,
    principal: &Option<Arc<str>>,
    at: Option<CheckpointId>,
) -> Result<Option<ThreadWithCheckpoint>> {
    let Some(thread) = thread(db, id)? else {
        return Ok(None);
    };
    let level = match principal {
        Some(principal) => tree::level(db, thread.tree, principal)?,
        None => None,
    };
    let checkpoint = match at.or(thread.head) {
        Some(at) => checkpoints::without_values(db, thread.tree, at)?,
        None => None,
    };
    Ok(Some(ThreadWithCheckpoint {
        thread,
        level,
        checkpoint,
    }))
}
