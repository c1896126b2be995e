//! The slots of branches: who may write to a branch, and the outcome of its last run.

use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    checkpoint::{Error, Result, Slot},
    id::{BranchId, CheckpointId, ThreadId, TreeId},
    storage::sqlite::columns::{id, id_if},
    time::Timestamp,
    tree::Outcome,
    value::Value,
};

/// The slot of a branch of a living thread, or without an id that of the active one.
pub(in super::super) fn slot(
    db: &Connection,
    thread: ThreadId,
    branch: Option<BranchId>,
) -> Result<Option<Slot>> {
    Ok(db
        .prepare_cached(
            "SELECT t.tree_id, b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth \
             FROM threads t JOIN branches b \
               ON b.tree_id = t.tree_id AND b.thread_id = t.thread_id \
              AND b.branch_id = coalesce(?2, t.active_branch_id) \
             WHERE t.thread_id = ?1 AND t.deleted_at IS NULL",
        )?
        .query_row(params![thread, branch], |row| {
            Ok(Slot {
                tree: id(row, 0)?,
                thread,
                branch: id(row, 1)?,
                epoch: row.get(2)?,
                head: id_if(row, 3)?,
                head_depth: row.get(4)?,
            })
        })
        .optional()?)
}

/// Fences off whoever writes to the branch; returns the new epoch.
pub(in super::super) fn raise_epoch(
    db: &Connection,
    tree: TreeId,
    branch: BranchId,
) -> Result<i64> {
    Ok(db
        .prepare_cached(
            "UPDATE branches SET writer_epoch = writer_epoch + 1 \
             WHERE tree_id = ?1 AND branch_id = ?2 RETURNING writer_epoch",
        )?
        .query_row(params![tree, branch], |row| row.get(0))?)
}

/// Whether a slot still has its branch's head.
pub(super) fn is_head(db: &Connection, slot: &Slot) -> Result<bool> {
    Ok(db
        .prepare_cached(
            "SELECT head_checkpoint_id IS ?3 FROM branches WHERE tree_id = ?1 AND branch_id = ?2",
        )?
        .query_row(params![slot.tree, slot.branch, slot.head], |row| row.get(0))
        .optional()?
        .unwrap_or(false))
}

/// Stores the outcome of a branch, unless its epoch has changed, and returns the branch's head: that of the slot may be
/// a checkpoint that was refused.
pub(in super::super) fn record_outcome(
    db: &Connection,
    slot: &Slot,
    outcome: Outcome,
    error: Option<&Value>,
    now: Timestamp,
) -> Result<Option<CheckpointId>> {
    db.prepare_cached(
        "UPDATE branches SET outcome = ?1, error = ?2, updated_at = ?3 \
         WHERE tree_id = ?4 AND branch_id = ?5 AND writer_epoch = ?6 RETURNING head_checkpoint_id",
    )?
    .query_row(
        params![
            outcome.as_str(),
            error.map(Value::to_json),
            now.0,
            slot.tree,
            slot.branch,
            slot.epoch,
        ],
        |row| id_if(row, 0),
    )
    .optional()?
    .ok_or(Error::Fenced)
}
