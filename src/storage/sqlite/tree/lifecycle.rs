//! Whole threads and runs that operations change and delete.

use rusqlite::{Connection, params};

use crate::{
    checkpoint::Result,
    id::{RunId, ThreadId, TreeId},
    runs::{Status, Undo},
    storage::sqlite::{
        columns::{json_map, map_text},
        runs,
        threads::{delete, expiry, prune},
    },
    time::Timestamp,
    tree::ttl::{Ttl, TtlStrategy},
    value::{Map, Value},
};

pub(super) const METADATA: &str = "SELECT metadata FROM threads WHERE thread_id = ?1";
pub(super) const PATCH: &str =
    "UPDATE threads SET metadata = ?2, updated_at = ?3 WHERE thread_id = ?1";

pub(super) fn patch_thread(db: &Connection, thread: ThreadId, metadata: &Map) -> Result<()> {
    let mut merged = db
        .prepare_cached(METADATA)?
        .query_row([thread], |row| json_map(row, 0))?;
    merged.extend(metadata.clone());
    db.prepare_cached(PATCH)?
        .execute(params![thread, map_text(&merged), Timestamp::now().0])?;
    Ok(())
}

pub(super) fn set_ttl(db: &Connection, thread: ThreadId, ttl: Ttl) -> Result<()> {
    expiry::set_ttl(db, thread, ttl)
}

pub(super) fn expired(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
) -> Result<Option<TtlStrategy>> {
    expiry::expired(db, tree, thread)
}

pub(super) fn delete_thread(db: &Connection, tree: TreeId, thread: ThreadId) -> Result<()> {
    delete::thread(db, tree, thread, true)
}

pub(super) fn delete_tree(db: &Connection, tree: TreeId) -> Result<Vec<ThreadId>> {
    delete::all(db, tree)
}

pub(super) fn prune_thread(db: &Connection, tree: TreeId, thread: ThreadId) -> Result<usize> {
    prune::within(db, tree, thread)
}

pub(super) fn end_run(
    db: &Connection,
    thread: ThreadId,
    run: RunId,
    error: &Value,
) -> Result<bool> {
    let ended = runs::cancel(db, thread, |open| open == run, Some(error))?;
    Ok(!ended.is_empty())
}

pub(super) fn request_cancel(db: &Connection, run: RunId, reason: &Value) -> Result<bool> {
    runs::request_cancel(db, run, reason)
}

pub(super) fn remove_run(db: &Connection, what: &Undo) -> Result<Option<Status>> {
    runs::remove(db, what)
}
