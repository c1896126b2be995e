//! Recovering runs of dead processes: they are taken over, or ended when that has happened too often.

use rusqlite::{Connection, Row, params};

use super::{
    super::{
        columns::{id, id_if},
        events, log,
        threads::{delete, slots},
    },
    claim::is_permitted,
    finish::log_end,
    rows::{read_run, slot_of},
};
use crate::{
    checkpoint::{Error, Result, Slot},
    id::{CheckpointId, RunId, WorkerId},
    runs::{
        ClaimedRun, Recover, Recovered, Run, Status, Undo,
        transitions::{
            recovery::{LostRun, Recovery},
            run_events::{self, EndedRun},
        },
    },
    time::Timestamp,
    value::Value,
};

/// Microseconds that a run of this worker may be unknown to it: its claim may be on its way.
const REFUSED: i64 = 15_000_000;

/// Runs that another worker than this one left `running`, oldest first; and those of this worker
/// that it does not execute, since the storage refused their ends.
pub(super) const LOST: &str = select!(
    ", b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth, \
      r.losses, r.lost_at, EXISTS (SELECT 1 FROM workers w WHERE w.worker_id = r.worker_id) \
     FROM runs r INDEXED BY one_running_per_branch \
     JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = r.branch_id \
     WHERE r.status = 'running' AND (r.worker_id IS NOT ?1 OR r.updated_at < ?3) \
       AND NOT EXISTS (SELECT 1 FROM json_each(?4) x WHERE unhex(x.value) = r.run_id) \
     ORDER BY r.seq LIMIT ?2"
);

/// See [`runs::Store::recover`](crate::runs::Store::recover). One process uses a database, so
/// whatever another one left `running` is dead.
pub(in super::super) fn recover(db: &Connection, by: &Recover) -> Result<Recovered> {
    let now = Timestamp::now();
    let left = by.busy.iter().chain(&by.failed);
    let left = left.map(|run| format!("\"{}\"", run.0.simple()));
    let left = format!("[{}]", left.collect::<Vec<_>>().join(","));
    let lost = lost(db, by, now, &left)?;
    let mut recovered = Recovered::default();
    for (ClaimedRun { run, slot, .. }, lost) in lost {
        // One that cannot be written must not keep the others from going on.
        let (id, thread) = (run.id, run.thread);
        db.execute_batch("SAVEPOINT lost")?;
        let done = match lost.recovery() {
            Recovery::End => end(db, &run, &slot, now).map(|()| {
                recovered.ended.push(id);
                recovered.freed.push(thread);
            }),
            Recovery::TakeOver { losses, lost_at } => {
                let taken = take_over(db, by.worker, run, slot, (losses, lost_at), now);
                taken.map(|taken| recovered.taken.push(taken))
            }
        };
        if let Err(error) = done {
            // SQLite ends the whole transaction by itself when, for example, the disk is full.
            if db.is_autocommit() {
                return Err(error);
            }
            db.execute_batch("ROLLBACK TO lost")?;
            recovered.failed.push((id, error));
        }
        db.execute_batch("RELEASE lost")?;
    }
    // While a run of it waits, its row shows that it died: at shutdown it would have been deleted.
    db.prepare_cached(
        "DELETE FROM workers WHERE worker_id <> ?1 AND NOT EXISTS (SELECT 1 FROM runs r \
         WHERE r.status = 'running' AND r.worker_id = workers.worker_id)",
    )?
    .execute([by.worker])?;
    Ok(recovered)
}

/// Lost runs, as many as take all slots that there are: no request is decoded of those behind them. The statement
/// sorts what it finds, at most as many rows as there are slots, with their requests as they are stored.
fn lost(
    db: &Connection,
    by: &Recover,
    now: Timestamp,
    left: &str,
) -> Result<Vec<(ClaimedRun, LostRun)>> {
    let limit = i64::try_from(by.limit).unwrap_or(i64::MAX);
    let mut statement = db.prepare_cached(LOST)?;
    let rows = statement.query_map(params![by.worker, limit, now.0 - REFUSED, left], read_lost)?;
    let (mut found, mut slots) = (vec![], 0);
    for row in rows {
        let (claimed, lost) = row?;
        if let Recovery::TakeOver { .. } = lost.recovery() {
            slots += by.slots.of(claimed.run.kwargs.memory());
        }
        found.push((claimed, lost));
        if slots >= by.limit {
            break;
        }
    }
    Ok(found)
}

pub(super) fn read_lost(row: &Row<'_>) -> rusqlite::Result<(ClaimedRun, LostRun)> {
    let run = read_run(row)?;
    let slot = slot_of(&run, row)?;
    let lost = LostRun {
        losses: row.get(25)?,
        lost_at: id_if(row, 26)?,
        died: row.get(27)?,
        head: slot.head,
    };
    let claimed = ClaimedRun {
        run,
        slot,
        is_permitted: true,
    };
    Ok((claimed, lost))
}

pub(super) fn take_over(
    db: &Connection,
    worker: WorkerId,
    mut run: Run,
    mut slot: Slot,
    (losses, lost_at): (i32, Option<CheckpointId>),
    now: Timestamp,
) -> Result<ClaimedRun> {
    slot.epoch = slots::raise_epoch(db, slot.tree, slot.branch)?;
    log::supersede(db, &slot, run.id)?;
    db.prepare_cached(
        "UPDATE runs SET epoch = ?2, worker_id = ?3, attempt = attempt + 1, updated_at = ?4, \
         losses = ?5, lost_at = ?6 WHERE run_id = ?1",
    )?
    .execute(params![run.id, slot.epoch, worker, now.0, losses, lost_at])?;
    run.attempt += 1;
    run.updated_at = now;
    if !run.temporary {
        let started = run_events::started(run.id, slot.branch);
        events::append(db, run.tree, run.thread, &[started], now)?;
    }
    Ok(ClaimedRun {
        is_permitted: is_permitted(db, &run)?,
        run,
        slot,
    })
}

/// Ends a run with an error; its thread goes too when it was made for the run.
fn end(db: &Connection, run: &Run, slot: &Slot, now: Timestamp) -> Result<()> {
    let error = Undo::lost().to_json();
    db.prepare_cached(
        "UPDATE branches SET writer_epoch = writer_epoch + 1, outcome = 'error', error = ?3, \
         updated_at = ?4 WHERE tree_id = ?1 AND branch_id = ?2",
    )?
    .execute(params![slot.tree, slot.branch, error, now.0])?;
    db.prepare_cached(
        "UPDATE runs SET status = ?2, error = ?3, updated_at = ?4, last_checkpoint_id = ?5 \
         WHERE run_id = ?1",
    )?
    .execute(params![
        run.id,
        Status::Error.as_str(),
        error,
        now.0,
        slot.head,
    ])?;
    if run.temporary {
        return delete::thread(db, run.tree, run.thread, false);
    }
    let ended = EndedRun {
        id: run.id,
        branch: slot.branch,
        base: run.base,
        head: slot.head,
        status: Status::Error,
    };
    log_end(db, run.tree, run.thread, &ended, now)
}

/// The runs that are `running` in the name of a worker.
pub(in super::super) fn running(
    db: &Connection,
    worker: WorkerId,
) -> Result<Vec<(RunId, Option<Value>)>> {
    let mut statement = db.prepare_cached(
        "SELECT run_id FROM runs INDEXED BY one_running_per_branch \
         WHERE status = 'running' AND worker_id = ?1",
    )?;
    let runs = statement.query_map([worker], |row| Ok((id(row, 0)?, None)))?;
    runs.map(|row| row.map_err(Error::from)).collect()
}
