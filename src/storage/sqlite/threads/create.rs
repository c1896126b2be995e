//! New threads, each with its tree and its branch `main`.

use rusqlite::{Connection, params};

use super::{
    super::{columns::map_text, events},
    rows::thread,
};
use crate::{
    checkpoint::Error,
    id::{BranchId, ThreadId, TreeId},
    time::Timestamp,
    tree::{IfExists, NewThread, Thread, event, store::rows::NewEvent},
};

/// See [`tree::Store::create_thread`](crate::tree::Store::create_thread).
pub(in super::super) fn create_thread(
    db: &Connection,
    new: &NewThread,
) -> Result<Option<Thread>, Error> {
    if is_free(db, new.id)? {
        insert(db, new.id, new, true, Timestamp::now())?;
    } else if new.if_exists == IfExists::Raise {
        return Ok(None);
    }
    thread(db, new.id)
}

/// Whether a thread can be created with this id. A tombstone that nothing refers to makes room.
pub(in super::super) fn is_free(db: &Connection, id: ThreadId) -> Result<bool, Error> {
    let is_taken = || {
        db.prepare_cached("SELECT 1 FROM threads WHERE thread_id = ?1")?
            .exists([id.0.as_bytes()])
    };
    if !is_taken()? {
        return Ok(true);
    }
    db.prepare_cached(
        "DELETE FROM threads WHERE thread_id = ?1 AND deleted_at IS NOT NULL \
         AND NOT EXISTS (SELECT 1 FROM trees WHERE tree_id = ?1) \
         AND NOT EXISTS (SELECT 1 FROM threads k WHERE k.parent_thread_id = ?1) \
         AND NOT EXISTS (SELECT 1 FROM events e \
           WHERE e.tree_id = threads.tree_id AND e.thread_id = ?1) \
         AND NOT EXISTS (SELECT 1 FROM checkpoints c \
           WHERE c.tree_id = threads.tree_id AND c.thread_id = ?1)",
    )?
    .execute([id.0.as_bytes()])?;
    Ok(!is_taken()?)
}

/// Inserts a root thread with its tree and its branch `main`. With `log` it has a log, which says so.
pub(in super::super) fn insert(
    db: &Connection,
    id: ThreadId,
    new: &NewThread,
    log: bool,
    now: Timestamp,
) -> Result<(), Error> {
    let tree = TreeId::of_root(id);
    let branch = BranchId::mint();
    db.prepare_cached("INSERT INTO trees (tree_id, owner, created_at) VALUES (?1, ?2, ?3)")?
        .execute(params![tree.0.as_bytes(), new.owner, now.0])?;
    db.prepare_cached(
        "INSERT INTO threads (thread_id, tree_id, active_branch_id, metadata, created_at, \
         updated_at, owner, ttl_minutes, ttl_strategy, expires_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        id.0.as_bytes(),
        tree.0.as_bytes(),
        branch.0.as_bytes(),
        map_text(&new.metadata),
        now.0,
        new.owner,
        new.ttl.map(|ttl| ttl.minutes),
        new.ttl.map(|ttl| ttl.strategy.as_str()),
        new.ttl.map(|ttl| now.0 + ttl.micros()),
    ])?;
    db.prepare_cached(
        "INSERT INTO branches (tree_id, branch_id, thread_id, name, origin, created_at, \
         updated_at) VALUES (?1, ?2, ?3, 'main', 'root', ?4, ?4)",
    )?
    .execute(params![
        tree.0.as_bytes(),
        branch.0.as_bytes(),
        id.0.as_bytes(),
        now.0,
    ])?;
    if log {
        let created = NewEvent {
            kind: event::THREAD_CREATED,
            ..NewEvent::default()
        };
        events::append(db, tree, id, &[created], now)?;
    }
    Ok(())
}
