//! Finishing runs that ended by themselves, and the events that a thread's log gets when a run ends.

use rusqlite::{Connection, OptionalExtension, params};

use super::super::{
    checkpoints::commit_all,
    columns::id_if,
    events, log,
    threads::{delete, slots},
};
use crate::{
    checkpoint::{Commit, Error, Result},
    id::{RunId, ThreadId, TreeId},
    runs::{Finish, transitions::run_events::EndedRun},
    time::Timestamp,
    value::Value,
};

/// See [`runs::Store::finish_with`](crate::runs::Store::finish_with).
pub(in super::super) fn finish(
    db: &Connection,
    commits: &[Commit],
    finish: &Finish,
) -> Result<Vec<i64>> {
    for result in commit_all(db, commits)? {
        result?;
    }
    let now = Timestamp::now();
    let slot = &finish.slot;
    let head = slots::record_outcome(db, slot, finish.outcome, finish.error.as_ref(), now)?;
    let base = db
        .prepare_cached(
            "UPDATE runs SET status = ?2, last_checkpoint_id = ?3, error = ?4, updated_at = ?5 \
             WHERE run_id = ?1 AND status = 'running' AND epoch = ?6 RETURNING base_checkpoint_id",
        )?
        .query_row(
            params![
                finish.run,
                finish.status.as_str(),
                head,
                finish.error.as_ref().map(Value::to_json),
                now.0,
                slot.epoch,
            ],
            |row| id_if(row, 0),
        )
        .optional()?
        .ok_or(Error::Fenced)?;
    if finish.delete_thread {
        delete::thread(db, slot.tree, slot.thread, false)?;
        return Ok(vec![]);
    }
    let ended = EndedRun {
        id: finish.run,
        branch: slot.branch,
        base,
        head,
        status: finish.status,
    };
    log_end(db, slot.tree, slot.thread, &ended, now)?;
    log::append_last(db, &finish.frames, now)
}

/// Appends the events of a run's end, and marks the last message that the run left as final.
pub(super) fn log_end(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    run: &EndedRun,
    now: Timestamp,
) -> Result<()> {
    if let Some(left) = run.left() {
        db.prepare_cached(
            "UPDATE message_nodes SET settled_checkpoint_id = ?2 WHERE tree_id = ?1 \
             AND node_id = (SELECT last_node_id FROM checkpoints \
               WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2) \
             AND run_id = ?3",
        )?
        .execute(params![tree, left, run.id])?;
    }
    events::append(db, tree, thread, &run.events(), now).map(drop)
}

/// No other process executes runs of this database.
pub(in super::super) fn await_end(_db: &Connection, _run: RunId) -> Result<bool> {
    Ok(false)
}
