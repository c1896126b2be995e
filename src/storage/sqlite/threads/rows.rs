//! Living threads, out of their rows and those of their active branches.

use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    checkpoint::Result,
    id::{ThreadId, TreeId},
    storage::sqlite::columns::{id, id_if, json_if, json_map, parsed},
    time::Timestamp,
    tree::{
        Thread,
        search::{Listed, Room},
    },
    value::Map,
};

/// The tree of a living thread.
pub(super) fn tree_of(db: &Connection, thread: ThreadId) -> Result<Option<TreeId>> {
    Ok(db
        .prepare_cached("SELECT tree_id FROM threads WHERE thread_id = ?1 AND deleted_at IS NULL")?
        .query_row([thread], |row| id(row, 0))
        .optional()?)
}

pub(super) const THREAD: &str = "SELECT t.thread_id, t.tree_id, t.metadata, t.config, t.created_at, t.updated_at, \
     b.updated_at, b.branch_id, b.head_checkpoint_id, b.head_depth, b.writer_epoch, b.outcome, \
     b.error, \
     EXISTS (SELECT 1 FROM runs r WHERE r.tree_id = t.tree_id \
       AND r.thread_id = t.thread_id AND r.status IN ('pending', 'running') \
       AND coalesce(r.branch_id, t.active_branch_id) = t.active_branch_id), \
     coalesce(b.reparented_checkpoint_id = b.head_checkpoint_id, 0) \
    FROM threads t JOIN branches b \
      ON b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id \
    WHERE t.thread_id = ?1 AND t.deleted_at IS NULL";

/// A living thread.
pub(in super::super) fn thread(db: &Connection, thread: ThreadId) -> Result<Option<Thread>> {
    let found = thread_and_head(db, thread)?;
    Ok(found.map(|(thread, _)| thread))
}

/// A living thread, and whether pruning gave another parent to the head of its active branch.
pub(super) fn thread_and_head(db: &Connection, thread: ThreadId) -> Result<Option<(Thread, bool)>> {
    Ok(db
        .prepare_cached(THREAD)?
        .query_row([thread], |row| Ok((read_thread(row)?, row.get(14)?)))
        .optional()?)
}

/// A thread, out of the columns of [`THREAD`].
pub(super) fn read_thread(row: &Row<'_>) -> rusqlite::Result<Thread> {
    Ok(Thread {
        metadata: json_map(row, 2)?,
        config: json_map(row, 3)?,
        ..without_json(row)?
    })
}

/// A thread of a list, out of the same columns.
pub(super) fn read_listed(row: &Row<'_>, room: &mut Room) -> rusqlite::Result<Listed> {
    let bytes = |column| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_str()?.len());
    let (weight, is_whole) = room.take(bytes(2)? + bytes(3)?);
    let mut thread = without_json(row)?;
    if is_whole {
        (thread.metadata, thread.config) = (json_map(row, 2)?, json_map(row, 3)?);
    }
    Ok(Listed {
        thread,
        weight,
        is_whole,
    })
}

fn without_json(row: &Row<'_>) -> rusqlite::Result<Thread> {
    let updated: i64 = row.get(5)?;
    let state_updated: i64 = row.get(6)?;
    Ok(Thread {
        id: id(row, 0)?,
        tree: id(row, 1)?,
        metadata: Map::new(),
        config: Map::new(),
        created_at: Timestamp(row.get(4)?),
        updated_at: Timestamp(updated.max(state_updated)),
        state_updated_at: Timestamp(state_updated),
        active_branch: id(row, 7)?,
        head: id_if(row, 8)?,
        head_depth: row.get(9)?,
        epoch: row.get(10)?,
        outcome: parsed(row, 11)?,
        error: json_if(row, 12)?,
        busy: row.get(13)?,
    })
}
