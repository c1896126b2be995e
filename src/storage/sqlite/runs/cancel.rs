//! Cancelling runs: requests, and other runs, end them from outside.

use rusqlite::{Connection, params};

use super::{
    super::columns::id_if,
    finish::log_end,
    open_runs::{OpenRunRow, open_runs},
};
use crate::{
    checkpoint::{Result, Slot},
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
    runs::{Status, transitions::run_events::EndedRun},
    time::Timestamp,
    value::Value,
};

/// Ends those open runs of a thread that `is_meant` picks, and returns their ids. The branches of
/// those that were executed get `error`.
pub(in super::super) fn cancel(
    db: &Connection,
    thread: ThreadId,
    is_meant: impl Fn(RunId) -> bool,
    error: Option<&Value>,
) -> Result<Vec<RunId>> {
    let now = Timestamp::now();
    let mut ended = Vec::new();
    for open in open_runs(db, thread, None)? {
        if is_meant(open.id) {
            interrupt(db, &open, true, now)?;
            if let (true, Some(error)) = (open.is_running(), error) {
                set_error(db, open.tree, open.branch, error)?;
            }
            ended.push(open.id);
        }
    }
    Ok(ended)
}

/// Ends a run from outside. Its worker, if it has one, is fenced off. The branch is marked
/// interrupted when the run moved it; unless `keep`, what the run wrote is rolled back next, so
/// that the branch stays as it was.
pub(super) fn interrupt(
    db: &Connection,
    open: &OpenRunRow,
    keep: bool,
    now: Timestamp,
) -> Result<()> {
    let head: Option<CheckpointId> = if open.is_running() {
        db.prepare_cached(
            "UPDATE branches SET writer_epoch = writer_epoch + 1, updated_at = ?3, \
             error = CASE WHEN NOT ?5 OR head_checkpoint_id IS ?4 THEN error END, \
             outcome = CASE WHEN NOT ?5 OR head_checkpoint_id IS ?4 THEN outcome \
               ELSE 'interrupted' END \
             WHERE tree_id = ?1 AND branch_id = ?2 RETURNING head_checkpoint_id",
        )?
        .query_row(
            params![open.tree, open.branch, now.0, open.base, keep],
            |row| id_if(row, 0),
        )?
    } else {
        None
    };
    db.prepare_cached(
        "UPDATE runs SET status = 'interrupted', last_checkpoint_id = ?2, updated_at = ?3, \
         webhook = CASE WHEN ?4 THEN webhook END \
         WHERE run_id = ?1 AND status IN ('pending', 'running')",
    )?
    .execute(params![open.id, head, now.0, keep])?;
    if open.temporary {
        return Ok(());
    }
    let ended = EndedRun {
        id: open.id,
        branch: open.branch,
        base: open.base,
        head: head.filter(|_| keep),
        status: Status::Interrupted,
    };
    log_end(db, open.tree, open.thread, &ended, now)
}

/// Ends the run that is executed on a slot's branch, if there is one.
pub(in super::super) fn end_running(db: &Connection, slot: &Slot, now: Timestamp) -> Result<()> {
    for open in open_runs(db, slot.thread, Some(slot.branch))? {
        if open.is_running() {
            interrupt(db, &open, true, now)?;
        }
    }
    Ok(())
}

/// Stores on a branch why a run ended.
pub(super) fn set_error(
    db: &Connection,
    tree: TreeId,
    branch: BranchId,
    error: &Value,
) -> Result<()> {
    db.prepare_cached("UPDATE branches SET error = ?3 WHERE tree_id = ?1 AND branch_id = ?2")?
        .execute(params![tree, branch, error.to_json()])?;
    Ok(())
}

/// No other process executes runs of this database.
pub(in super::super) fn request_cancel(
    _db: &Connection,
    _run: RunId,
    _reason: &Value,
) -> Result<bool> {
    Ok(false)
}
