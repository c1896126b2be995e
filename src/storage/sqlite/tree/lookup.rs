//! Threads, branches, tags, events and open runs.

use const_format::formatcp;
use rusqlite::{Connection, Row, params};

use super::{THREAD_COLUMNS, WITH_GRAPH};
use crate::{
    checkpoint::Result,
    id::{BranchId, ThreadId, TreeId},
    storage::sqlite::columns::{all, id, id_if, json_if, json_map, one, parsed, parsed_if},
    time::Timestamp,
    tree::store::rows::{Branch, OpenRun, Tag, ThreadRow},
};

pub(super) fn read_thread(row: &Row<'_>) -> rusqlite::Result<ThreadRow> {
    let deleted: Option<i64> = row.get(14)?;
    Ok(ThreadRow {
        id: id(row, 0)?,
        tree: id(row, 1)?,
        parent: id_if(row, 2)?,
        fork_checkpoint: id_if(row, 3)?,
        fork_depth: row.get(4)?,
        fork_anchor: row.get(5)?,
        fork_position: parsed_if(row, 6)?,
        fork_event_number: row.get(7)?,
        fork_level: row.get(8)?,
        active_branch: id_if(row, 9)?,
        last_event_number: row.get(10)?,
        metadata: json_map(row, 11)?,
        created_at: Timestamp(row.get(12)?),
        updated_at: Timestamp(row.get(13)?),
        deleted_at: deleted.map(Timestamp),
    })
}

pub(super) const THREAD: &str =
    formatcp!("SELECT {THREAD_COLUMNS} FROM threads t WHERE t.thread_id = ?1");

pub(super) fn thread_row(db: &Connection, thread: ThreadId) -> Result<Option<ThreadRow>> {
    one(db, THREAD, [thread], read_thread)
}

const THREAD_WITH_GRAPH: &str =
    formatcp!("SELECT {WITH_GRAPH} FROM threads t WHERE t.thread_id = ?1");

pub(super) fn thread_rows(db: &Connection, ids: &[ThreadId]) -> Result<Vec<ThreadRow>> {
    let found = ids
        .iter()
        .map(|thread| one(db, THREAD_WITH_GRAPH, [thread], read_thread));
    found.filter_map(Result::transpose).collect()
}

macro_rules! branches {
    ($rest:literal) => {
        formatcp!(
            "SELECT tree_id, branch_id, thread_id, name, head_checkpoint_id, head_depth, \
             writer_epoch, version, outcome, error, origin, source_branch_id, creation_id, \
             created_at, updated_at FROM branches {rest}",
            rest = $rest
        )
    };
}

fn read_branch(row: &Row<'_>) -> rusqlite::Result<Branch> {
    Ok(Branch {
        tree: id(row, 0)?,
        id: id(row, 1)?,
        thread: id(row, 2)?,
        name: row.get(3)?,
        head: id_if(row, 4)?,
        head_depth: row.get(5)?,
        epoch: row.get(6)?,
        version: row.get(7)?,
        outcome: parsed(row, 8)?,
        error: json_if(row, 9)?,
        origin: row.get(10)?,
        source: id_if(row, 11)?,
        creation: id_if(row, 12)?,
        created_at: Timestamp(row.get(13)?),
        updated_at: Timestamp(row.get(14)?),
    })
}

pub(super) const BRANCHES: &str = branches!(
    "INDEXED BY sqlite_autoindex_branches_2 \
     WHERE tree_id = ?1 AND thread_id = ?2 ORDER BY created_at, branch_id"
);

/// By the index of the constraint that names are unique in a thread: the key would walk the
/// branches of every fork.
pub(super) fn branches(db: &Connection, tree: TreeId, thread: ThreadId) -> Result<Vec<Branch>> {
    all(db, BRANCHES, params![tree, thread], read_branch)
}

pub(super) const BRANCH: &str = branches!("WHERE tree_id = ?1 AND branch_id = ?2");

pub(super) fn branch(db: &Connection, tree: TreeId, branch: BranchId) -> Result<Option<Branch>> {
    one(db, BRANCH, params![tree, branch], read_branch)
}

/// A transaction keeps everybody else from writing, so there is nothing to lock.
pub(super) fn lock_branch(db: &Connection, tree: TreeId, id: BranchId) -> Result<Option<Branch>> {
    branch(db, tree, id)
}

macro_rules! tags {
    ($rest:literal) => {
        formatcp!(
            "SELECT name, checkpoint_id, depth, message_id, created_at, updated_at FROM tags \
             WHERE tree_id = ?1 AND thread_id = ?2 {rest}",
            rest = $rest
        )
    };
}

fn read_tag(row: &Row<'_>) -> rusqlite::Result<Tag> {
    Ok(Tag {
        name: row.get(0)?,
        checkpoint: id(row, 1)?,
        depth: row.get(2)?,
        message_id: row.get(3)?,
        created_at: Timestamp(row.get(4)?),
        updated_at: Timestamp(row.get(5)?),
    })
}

pub(super) const TAGS: &str = tags!("ORDER BY name");

pub(super) fn tags(db: &Connection, tree: TreeId, thread: ThreadId) -> Result<Vec<Tag>> {
    all(db, TAGS, params![tree, thread], read_tag)
}

pub(super) const TAG: &str = tags!("AND name = ?3");

pub(super) fn tag(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    name: &str,
) -> Result<Option<Tag>> {
    one(db, TAG, params![tree, thread, name], read_tag)
}

pub(super) const OPEN_RUNS: &str = "SELECT run_id, branch_id, status = 'running' FROM runs \
    WHERE tree_id = ?1 AND thread_id = ?2 AND status IN ('pending', 'running') \
    ORDER BY seq";

pub(super) fn open_runs(db: &Connection, tree: TreeId, thread: ThreadId) -> Result<Vec<OpenRun>> {
    all(db, OPEN_RUNS, params![tree, thread], |row| {
        Ok(OpenRun {
            id: id(row, 0)?,
            branch: id_if(row, 1)?,
            running: row.get(2)?,
        })
    })
}
