//! A thread with the level of a principal on it, and no checkpoint, in one snapshot.

use std::sync::Arc;

use rusqlite::Connection;

use super::rows::thread_and_head;
use crate::{checkpoint::Result, id::ThreadId, storage::sqlite::tree, tree::ThreadWithLevel};

/// See [`tree::Store::thread_with_level`](crate::tree::Store::thread_with_level).
pub(in super::super) fn thread_with_level(
    db: &Connection,
    id: ThreadId,
    principal: &Option<Arc<str>>,
) -> Result<Option<ThreadWithLevel>> {
    let Some((thread, is_head_reparented)) = thread_and_head(db, id)? else {
        return Ok(None);
    };
    let level = match principal {
        Some(principal) => tree::level(db, thread.tree, principal)?,
        None => None,
    };
    Ok(Some(ThreadWithLevel {
        thread,
        level,
        is_head_reparented,
    }))
}
