//! Runs of dead processes: taken over, or ended when that has happened too often.

use rusqlite::{Connection, params};

use super::{
    super::{
        row::{id, id_if},
        threads::{self, delete},
    },
    log, read_run, slot_of,
};
use crate::{
    checkpoint::{Error, Slot},
    id::{RunId, WorkerId},
    runs::{Claimed, DEATHS, Recover, Recovered, Run, Status, Undo},
    time::Timestamp,
};

/// How often the process of a run of `runs` has died by now, since the run moved last.
macro_rules! losses {
    () => {
        "(EXISTS (SELECT 1 FROM workers w WHERE w.worker_id = runs.worker_id) \
          + CASE WHEN losses = 0 OR lost_at IS (SELECT b.head_checkpoint_id FROM branches b \
             WHERE b.tree_id = runs.tree_id AND b.branch_id = runs.branch_id) \
            THEN losses ELSE 0 END)"
    };
}

/// One process uses a database, so whatever another one left `running` is dead.
pub(super) fn recover(db: &Connection, by: &Recover, now: Timestamp) -> Result<Recovered, Error> {
    let mut recovered = Recovered::default();
    for (end, temporary) in give_up(db, by.worker, now)? {
        if temporary {
            delete::thread(db, end.tree, end.thread, false)?;
        } else {
            log::ended(db, &end, now)?;
        }
        recovered.ended.push(end.run);
    }
    recovered.taken = take_over(db, by, now)?;
    // While a run of it waits, its row tells that it died: it would have been given back.
    db.prepare_cached(
        "DELETE FROM workers WHERE worker_id <> ?1 AND NOT EXISTS (SELECT 1 FROM runs r \
         WHERE r.status = 'running' AND r.worker_id = workers.worker_id)",
    )?
    .execute([by.worker.0.as_bytes()])?;
    Ok(recovered)
}

fn take_over(db: &Connection, by: &Recover, now: Timestamp) -> Result<Vec<Claimed>, Error> {
    let lost: Vec<(Run, Slot)> = db
        .prepare_cached(select!(
            ", b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth FROM runs r \
             INDEXED BY one_running_per_branch JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = r.branch_id \
             WHERE r.status = 'running' AND r.worker_id IS NOT ?1 ORDER BY r.seq LIMIT ?2"
        ))?
        .query_map(
            params![
                by.worker.0.as_bytes(),
                i64::try_from(by.limit).unwrap_or(i64::MAX)
            ],
            |row| {
                let run = read_run(row)?;
                let slot = slot_of(&run, row)?;
                Ok((run, slot))
            },
        )?
        .collect::<Result<_, _>>()?;
    let mut taken = Vec::with_capacity(lost.len());
    for (mut run, mut slot) in lost {
        slot.epoch = threads::raise_epoch(db, slot.tree, slot.branch)?;
        db.prepare_cached(concat!(
            "UPDATE runs SET epoch = ?2, worker_id = ?3, attempt = attempt + 1, updated_at = ?4, \
             losses = ",
            losses!(),
            ", lost_at = CASE WHEN EXISTS (SELECT 1 FROM workers w \
               WHERE w.worker_id = runs.worker_id) THEN ?5 ELSE lost_at END \
             WHERE run_id = ?1"
        ))?
        .execute(params![
            run.id.0.as_bytes(),
            slot.epoch,
            by.worker.0.as_bytes(),
            now.0,
            slot.head.as_ref().map(|id| id.0.as_bytes()),
        ])?;
        run.attempt += 1;
        run.updated_at = now;
        log::started(db, &run, &slot, now)?;
        taken.push(Claimed { run, slot });
    }
    Ok(taken)
}

/// Whether their threads go with them is told as well.
fn give_up(
    db: &Connection,
    me: WorkerId,
    now: Timestamp,
) -> Result<Vec<(log::Ended, bool)>, Error> {
    let error = Undo::lost().to_json();
    db.prepare_cached(concat!(
        "UPDATE branches SET writer_epoch = writer_epoch + 1, outcome = 'error', error = ?2, \
         updated_at = ?3 WHERE (tree_id, branch_id) IN (SELECT tree_id, branch_id FROM runs \
           WHERE status = 'running' AND worker_id IS NOT ?1 AND ",
        losses!(),
        " >= ?4)"
    ))?
    .execute(params![me.0.as_bytes(), error, now.0, DEATHS])?;
    let mut statement = db.prepare_cached(concat!(
        "UPDATE runs SET status = 'error', error = ?2, updated_at = ?3, \
         last_checkpoint_id = (SELECT b.head_checkpoint_id FROM branches b \
           WHERE b.tree_id = runs.tree_id AND b.branch_id = runs.branch_id) \
         WHERE status = 'running' AND worker_id IS NOT ?1 AND ",
        losses!(),
        " >= ?4 \
         RETURNING run_id, tree_id, thread_id, branch_id, base_checkpoint_id, \
          last_checkpoint_id, temporary"
    ))?;
    let ended = statement.query_map(params![me.0.as_bytes(), error, now.0, DEATHS], |row| {
        let end = log::Ended {
            run: id(row, 0)?,
            tree: id(row, 1)?,
            thread: id(row, 2)?,
            branch: id(row, 3)?,
            base: id_if(row, 4)?,
            head: id_if(row, 5)?,
            status: Status::Error,
        };
        Ok((end, row.get(6)?))
    })?;
    ended.map(|row| row.map_err(Error::from)).collect()
}

/// The runs that are `running` in the name of a worker.
pub(super) fn held(db: &Connection, worker: WorkerId) -> Result<Vec<RunId>, Error> {
    let mut statement = db.prepare_cached(
        "SELECT run_id FROM runs INDEXED BY one_running_per_branch \
         WHERE status = 'running' AND worker_id = ?1",
    )?;
    let held = statement.query_map([worker.0.as_bytes()], |row| id(row, 0))?;
    held.map(|row| row.map_err(Error::from)).collect()
}
