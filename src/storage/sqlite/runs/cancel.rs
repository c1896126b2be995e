//! Runs that are ended from outside.

use rusqlite::{Connection, params};

use super::{
    super::row::id_if,
    log,
    open_runs::{Open, open_runs},
};
use crate::{
    checkpoint::{Error, Slot},
    id::{CheckpointId, RunId, ThreadId},
    runs::Status,
    time::Timestamp,
    value::Value,
};

/// Ends the open runs of a thread that are meant; answers them. `error` is noted on the branches
/// of those that were executed.
pub(in super::super) fn cancel(
    db: &Connection,
    thread: ThreadId,
    is_meant: impl Fn(RunId) -> bool,
    error: Option<&Value>,
) -> Result<Vec<RunId>, Error> {
    let now = Timestamp::now();
    let mut ended = Vec::new();
    for open in open_runs(db, thread, None)? {
        if is_meant(open.run) {
            interrupt(db, &open, true, now)?;
            if let (true, Some(error)) = (open.running, error) {
                set_error(db, &open, error)?;
            }
            ended.push(open.run);
        }
    }
    Ok(ended)
}

/// Ends a run from outside. Its worker, if it has one, is fenced off. The branch is marked
/// interrupted when the run moved it and its work is kept.
pub(super) fn interrupt(
    db: &Connection,
    open: &Open,
    keep: bool,
    now: Timestamp,
) -> Result<(), Error> {
    let head: Option<CheckpointId> = if open.running {
        db.prepare_cached(
            "UPDATE branches SET writer_epoch = writer_epoch + 1, updated_at = ?3, \
             error = CASE WHEN NOT ?5 OR head_checkpoint_id IS ?4 THEN error END, \
             outcome = CASE WHEN NOT ?5 OR head_checkpoint_id IS ?4 THEN outcome \
               ELSE 'interrupted' END \
             WHERE tree_id = ?1 AND branch_id = ?2 RETURNING head_checkpoint_id",
        )?
        .query_row(
            params![
                open.tree.0.as_bytes(),
                open.branch.0.as_bytes(),
                now.0,
                open.base.as_ref().map(|id| id.0.as_bytes()),
                keep,
            ],
            |row| id_if(row, 0),
        )?
    } else {
        None
    };
    db.prepare_cached(
        "UPDATE runs SET status = 'interrupted', last_checkpoint_id = ?2, updated_at = ?3 \
         WHERE run_id = ?1 AND status IN ('pending', 'running')",
    )?
    .execute(params![
        open.run.0.as_bytes(),
        head.as_ref().map(|id| id.0.as_bytes()),
        now.0,
    ])?;
    if open.temporary {
        return Ok(());
    }
    let end = open.ended(head.filter(|_| keep), Status::Interrupted);
    log::ended(db, &end, now)
}

/// Ends the run that holds a slot, if one does.
pub(in super::super) fn end_running(
    db: &Connection,
    slot: &Slot,
    now: Timestamp,
) -> Result<(), Error> {
    for open in open_runs(db, slot.thread, Some(slot.branch))? {
        if open.running {
            interrupt(db, &open, true, now)?;
        }
    }
    Ok(())
}

/// Stores on a run's branch, or else on the active one, why the run ended.
pub(super) fn set_error(db: &Connection, open: &Open, error: &Value) -> Result<(), Error> {
    let error = error.to_json();
    let tree = open.tree.0.as_bytes();
    let changed = db
        .prepare_cached("UPDATE branches SET error = ?3 WHERE tree_id = ?1 AND branch_id = ?2")?
        .execute(params![tree, open.branch.0.as_bytes(), error])?;
    if changed == 0 {
        // The run's own branch went with it.
        db.prepare_cached(
            "UPDATE branches SET error = ?3 WHERE tree_id = ?1 AND branch_id = \
             (SELECT active_branch_id FROM threads WHERE thread_id = ?2)",
        )?
        .execute(params![tree, open.thread.0.as_bytes(), error])?;
    }
    Ok(())
}
