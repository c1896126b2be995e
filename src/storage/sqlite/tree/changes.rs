//! Rows that operations on the tree insert, change and delete.

use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    checkpoint::{Commit, Result},
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
    runs::{Created, NewRun, request::codec as request_codec},
    storage::sqlite::{
        branches,
        checkpoints::commit,
        columns::{id_if, map_text},
        connection::Writing,
        events, runs,
    },
    time::Timestamp,
    tree::{
        Outcome, opening,
        store::rows::{NewEvent, Position, Tag},
        store::tx::{InsertBranch, InsertFork, SharedInside},
    },
};

pub(super) fn insert_branch(db: &Connection, new: &InsertBranch) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO branches (tree_id, branch_id, thread_id, name, head_checkpoint_id, \
         head_depth, outcome, origin, source_branch_id, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10)",
    )?
    .execute(params![
        new.tree,
        new.id,
        new.thread,
        new.name,
        new.head,
        new.head_depth,
        new.outcome.as_str(),
        new.origin,
        new.source,
        Timestamp::now().0,
    ])?;
    Ok(())
}

pub(super) const SET_CREATION: &str =
    "UPDATE branches SET creation_id = ?3 WHERE tree_id = ?1 AND branch_id = ?2";

pub(super) fn copy_writes(
    db: &Connection,
    tree: TreeId,
    base: CheckpointId,
    from: BranchId,
    to: BranchId,
) -> Result<()> {
    let creation = branches::creation_id(db, tree, base, from, true)?;
    branches::copy_writes(db, tree, base, from, to)?;
    db.prepare_cached(SET_CREATION)?
        .execute(params![tree, to, creation])?;
    Ok(())
}

pub(super) const INSIDE: &str = "SELECT (SELECT max(s.checkpoint_id) FROM checkpoints s INDEXED BY checkpoints_sub \
      WHERE s.tree_id = ?1 AND s.root_checkpoint_id = ?2 AND s.checkpoint_ns <> '' AND s.branch_id = ?3) AS own, \
    creation_id FROM branches WHERE tree_id = ?1 AND branch_id = ?3";

pub(super) fn inside(
    db: &Connection,
    tree: TreeId,
    base: CheckpointId,
    from: BranchId,
) -> Result<Option<SharedInside>> {
    let found = db
        .prepare_cached(INSIDE)?
        .query_row(params![tree, base, from], |row| {
            Ok((id_if(row, 0)?, id_if(row, 1)?))
        })
        .optional()?;
    Ok(found.and_then(|(own, creation)| opening::shared_inside(from, own, creation)))
}

pub(super) const SHARE_INSIDE: &str = "UPDATE branches SET source_branch_id = ?3, creation_id = ?4 WHERE tree_id = ?1 AND branch_id = ?2";

pub(super) fn share_inside(
    db: &Connection,
    tree: TreeId,
    to: BranchId,
    shared: SharedInside,
) -> Result<()> {
    db.prepare_cached(SHARE_INSIDE)?
        .execute(params![tree, to, shared.source, shared.creation])?;
    Ok(())
}

pub(super) const RENAME: &str =
    "UPDATE branches SET name = ?3, updated_at = ?4 WHERE tree_id = ?1 AND branch_id = ?2";

pub(super) fn rename_branch(
    db: &Connection,
    tree: TreeId,
    branch: BranchId,
    name: &str,
) -> Result<()> {
    db.prepare_cached(RENAME)?
        .execute(params![tree, branch, name, Timestamp::now().0])?;
    Ok(())
}

pub(super) const DELETE: &str = "DELETE FROM branches WHERE tree_id = ?1 AND branch_id = ?2";

pub(super) fn delete_branch(db: &Connection, tree: TreeId, branch: BranchId) -> Result<()> {
    db.prepare_cached(DELETE)?.execute(params![tree, branch])?;
    Ok(())
}

pub(super) const ACTIVATE: &str =
    "UPDATE threads SET active_branch_id = ?2, updated_at = ?3 WHERE thread_id = ?1";

pub(super) fn activate(db: &Connection, thread: ThreadId, branch: BranchId) -> Result<()> {
    db.prepare_cached(ACTIVATE)?
        .execute(params![thread, branch, Timestamp::now().0])?;
    Ok(())
}

pub(super) const MOVE_TAG: &str = "UPDATE tags SET checkpoint_id = ?4, depth = ?5, message_id = ?6, updated_at = ?7 \
    WHERE tree_id = ?1 AND thread_id = ?2 AND name = ?3";

pub(super) fn put_tag(db: &Connection, tree: TreeId, thread: ThreadId, tag: &Tag) -> Result<bool> {
    let moved = db.prepare_cached(MOVE_TAG)?.execute(params![
        tree,
        thread,
        tag.name,
        tag.checkpoint,
        tag.depth,
        tag.message_id,
        tag.updated_at.0,
    ])?;
    if moved > 0 {
        return Ok(false);
    }
    db.prepare_cached(
        "INSERT INTO tags (tree_id, thread_id, name, checkpoint_id, depth, message_id, \
         created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        tree,
        thread,
        tag.name,
        tag.checkpoint,
        tag.depth,
        tag.message_id,
        tag.created_at.0,
        tag.updated_at.0,
    ])?;
    Ok(true)
}

pub(super) const DELETE_TAG: &str =
    "DELETE FROM tags WHERE tree_id = ?1 AND thread_id = ?2 AND name = ?3";

pub(super) fn delete_tag(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    name: &str,
) -> Result<bool> {
    let deleted = db
        .prepare_cached(DELETE_TAG)?
        .execute(params![tree, thread, name])?;
    Ok(deleted > 0)
}

pub(super) fn cancel_runs(db: &Connection, thread: ThreadId, runs: &[RunId]) -> Result<()> {
    runs::cancel(db, thread, |open| runs.contains(&open), None).map(drop)
}

pub(super) const PIN_RUN: &str = "UPDATE runs SET branch_id = ?2, updated_at = ?3 \
    WHERE run_id = ?1 AND status = 'pending' AND branch_id IS NULL";

pub(super) fn pin_runs(db: &Connection, runs: &[RunId], branch: BranchId) -> Result<()> {
    let mut pin = db.prepare_cached(PIN_RUN)?;
    let now = Timestamp::now();
    for run in runs {
        pin.execute(params![run, branch, now.0])?;
    }
    Ok(())
}

pub(super) fn insert_fork(db: &Connection, new: &InsertFork) -> Result<()> {
    db.prepare_cached(
        "INSERT INTO threads (thread_id, tree_id, parent_thread_id, fork_checkpoint_id, \
         fork_checkpoint_depth, fork_anchor, fork_position, fork_event_number, fork_level, \
         active_branch_id, last_event_number, metadata, created_at, updated_at, owner) \
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?8, ?11, ?12, ?12, o.owner \
           FROM trees o WHERE o.tree_id = ?2",
    )?
    .execute(params![
        new.id,
        new.tree,
        new.parent,
        new.checkpoint,
        new.depth,
        new.anchor,
        new.position.map(Position::as_str),
        new.event_number,
        new.level,
        new.active_branch,
        map_text(&new.metadata),
        Timestamp::now().0,
    ])?;
    Ok(())
}

pub(super) fn put(db: &Connection, commit: &Commit) -> Result<i32> {
    commit::commit(db, commit)
}

pub(super) const SET_OUTCOME: &str = "UPDATE branches SET outcome = ?3, error = NULL, updated_at = ?4 \
    WHERE tree_id = ?1 AND branch_id = ?2";

pub(super) fn set_outcome(
    db: &Connection,
    tree: TreeId,
    branch: BranchId,
    outcome: Outcome,
) -> Result<()> {
    let now = Timestamp::now();
    db.prepare_cached(SET_OUTCOME)?
        .execute(params![tree, branch, outcome.as_str(), now.0])?;
    // No state is newer than its thread.
    db.prepare_cached(
        "UPDATE threads SET updated_at = max(updated_at, ?3) WHERE thread_id = ( \
         SELECT thread_id FROM branches WHERE tree_id = ?1 AND branch_id = ?2)",
    )?
    .execute(params![tree, branch, now.0])?;
    Ok(())
}

pub(super) const TOUCH: &str = "UPDATE threads SET updated_at = ?2 WHERE thread_id = ?1";

pub(super) fn append(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    new: &[NewEvent],
) -> Result<i64> {
    let now = Timestamp::now();
    if !new.is_empty() {
        db.prepare_cached(TOUCH)?.execute(params![thread, now.0])?;
    }
    events::append(db, tree, thread, new, now)
}

pub(super) fn create_run(db: &Writing<'_>, new: NewRun) -> Result<Created> {
    let kwargs = request_codec::encode(&new.kwargs, new.columns(), db.format);
    runs::create(db, new, &kwargs, Timestamp::now())
}
