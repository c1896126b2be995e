//! Runs: created, claimed, ended. Each call is one transaction.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    Store, purge,
    row::{id, id_if, json_if, json_map_if, parsed, unreadable},
    threads,
};
use crate::{
    checkpoint::{Error, Slot},
    id::{RunId, ThreadId, TreeId, WorkerId},
    runs::{
        self, Claimed, Created, Finish, NewRun, Recover, Recovered, Run, Status, Strategy, Undo,
        kept::{self, Columns},
    },
    time::Timestamp,
    value::Value,
};

/// A query for runs, the modules below included.
macro_rules! select {
    ($($rest:literal),+) => {
        concat!(
            "SELECT r.run_id, r.tree_id, r.thread_id, r.branch_id, r.assistant_id, r.status, \
             r.metadata, r.type, r.kwargs, r.address, r.strategy, r.attempt, r.temporary, \
             r.error, r.last_checkpoint_id, r.run_at, r.created_at, r.updated_at, \
             r.base_checkpoint_id ",
            $($rest),+
        )
    };
}

mod create;
mod log;
mod open;
mod takeover;
mod undo;

pub(super) use create::create;
pub(super) use open::end_running;
use open::{interrupt, open_runs};

/// What a test plans.
#[cfg(test)]
pub(super) const PLANNED: &[&str] = &[CLAIM, OF_THREAD, open::OPEN, undo::EVERYWHERE];

fn read_run(row: &Row<'_>) -> rusqlite::Result<Run> {
    let tag = row.get_ref(7)?.as_str()?;
    let columns = Columns {
        run: id(row, 0)?,
        thread: id(row, 2)?,
        assistant: id(row, 4)?,
    };
    let mut kwargs = kept::decode(tag, row.get_ref(8)?.as_blob()?, columns)
        .map_err(|why| unreadable(8, why.to_string()))?;
    Ok(Run {
        id: columns.run,
        tree: id(row, 1)?,
        thread: columns.thread,
        branch: id_if(row, 3)?,
        assistant: columns.assistant,
        status: parsed::<Status>(row, 5)?,
        metadata: kept::metadata(json_map_if(row, 6)?, &mut kwargs),
        kwargs,
        address: id_if(row, 9)?,
        base: id_if(row, 18)?,
        strategy: strategy(row, 10)?,
        attempt: row.get(11)?,
        temporary: row.get(12)?,
        error: json_if(row, 13)?,
        last_checkpoint: id_if(row, 14)?,
        run_at: Timestamp(row.get(15)?),
        created_at: Timestamp(row.get(16)?),
        updated_at: Timestamp(row.get(17)?),
    })
}

/// The slot of a run, of the columns behind its own.
fn slot_of(run: &Run, row: &Row<'_>) -> rusqlite::Result<Slot> {
    Ok(Slot {
        tree: run.tree,
        thread: run.thread,
        branch: id(row, 19)?,
        epoch: row.get(20)?,
        head: id_if(row, 21)?,
        head_depth: row.get(22)?,
    })
}

fn strategy(row: &Row<'_>, column: usize) -> rusqlite::Result<Strategy> {
    let word = row.get_ref(column)?.as_str()?;
    [
        Strategy::Reject,
        Strategy::Enqueue,
        Strategy::Interrupt,
        Strategy::Rollback,
    ]
    .into_iter()
    .find(|strategy| strategy.as_str() == word)
    .ok_or_else(|| unreadable(column, format!("`{word}` is not a multitask strategy")))
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
    Timestamp(time.0.saturating_add(micros))
}

pub(super) const OF_THREAD: &str = select!(
    "FROM runs r WHERE r.thread_id = ?1 AND (?2 IS NULL OR r.status = ?2) \
     ORDER BY r.seq DESC LIMIT ?3 OFFSET ?4"
);

#[async_trait]
impl runs::Store for Store {
    async fn create_run(&self, new: NewRun) -> Result<Created, Error> {
        let kwargs = kept::encode(&new.kwargs, new.columns());
        self.writer
            .submit(move |db| create(db, new, &kwargs, Timestamp::now()))
            .await
    }

    async fn claim(&self, worker: WorkerId, limit: usize) -> Result<Vec<Claimed>, Error> {
        self.writer
            .submit(move |db| claim(db, worker, limit, Timestamp::now()))
            .await
    }

    async fn finish(&self, finish: Finish) -> Result<(), Error> {
        self.writer
            .submit(move |db| end_well(db, &finish, Timestamp::now()))
            .await
    }

    async fn run(&self, thread: ThreadId, run: RunId) -> Result<Option<Run>, Error> {
        self.readers
            .read(move |db| {
                Ok(db
                    .prepare_cached(select!(
                        "FROM runs r WHERE r.run_id = ?1 AND r.thread_id = ?2"
                    ))?
                    .query_row(params![run.0.as_bytes(), thread.0.as_bytes()], read_run)
                    .optional()?)
            })
            .await
    }

    async fn runs(
        &self,
        thread: ThreadId,
        status: Option<Status>,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Run>, Error> {
        self.readers
            .read(move |db| {
                let mut statement = db.prepare_cached(OF_THREAD)?;
                let rows = statement.query_map(
                    params![
                        thread.0.as_bytes(),
                        status.map(Status::as_str),
                        i64::try_from(limit).unwrap_or(i64::MAX),
                        i64::try_from(offset).unwrap_or(i64::MAX),
                    ],
                    read_run,
                )?;
                rows.map(|row| row.map_err(Error::from)).collect()
            })
            .await
    }

    async fn cancel(
        &self,
        thread: ThreadId,
        run: Option<RunId>,
        error: Option<Value>,
    ) -> Result<Vec<RunId>, Error> {
        self.writer
            .submit(move |db| {
                let meant = |open| run.is_none_or(|run| run == open);
                cancel(db, thread, meant, error.as_ref())
            })
            .await
    }

    async fn remove(&self, what: Undo) -> Result<bool, Error> {
        self.writer
            .submit(move |db| undo::remove(db, &what, Timestamp::now()))
            .await
    }

    async fn open(&self, status: Option<Status>) -> Result<Vec<(ThreadId, RunId)>, Error> {
        self.readers
            .read(move |db| undo::everywhere(db, status))
            .await
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), Error> {
        self.writer
            .submit(move |db| {
                db.prepare_cached(
                    "INSERT INTO workers (worker_id, lease_until) VALUES (?1, ?2) \
                     ON CONFLICT DO UPDATE SET lease_until = excluded.lease_until",
                )?
                .execute(params![
                    worker.0.as_bytes(),
                    later(Timestamp::now(), lease).0
                ])?;
                Ok(())
            })
            .await
    }

    async fn retire(&self, worker: WorkerId) -> Result<(), Error> {
        self.writer
            .submit(move |db| {
                db.prepare_cached("DELETE FROM workers WHERE worker_id = ?1")?
                    .execute([worker.0.as_bytes()])?;
                Ok(())
            })
            .await
    }

    async fn recover(&self, by: Recover) -> Result<Recovered, Error> {
        self.writer
            .submit(move |db| takeover::recover(db, &by, Timestamp::now()))
            .await
    }

    async fn held(&self, worker: WorkerId) -> Result<Vec<RunId>, Error> {
        self.readers
            .read(move |db| takeover::held(db, worker))
            .await
    }

    async fn begin(&self, _tree: TreeId) -> Result<Box<dyn runs::Tx>, Error> {
        Ok(Box::new(self.transaction().await?))
    }
}

/// Ends the open runs of a thread that are meant; answers them. `error` is noted on the branches
/// of those that were executed.
pub(super) fn cancel(
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
                undo::note(db, &open, error)?;
            }
            ended.push(open.run);
        }
    }
    Ok(ended)
}

pub(super) const CLAIM: &str = select!(
    ", b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth FROM runs r \
     JOIN threads t ON t.thread_id = r.thread_id AND t.deleted_at IS NULL \
     JOIN branches b ON b.tree_id = r.tree_id \
      AND b.branch_id = coalesce(r.branch_id, t.active_branch_id) \
     WHERE r.status = 'pending' AND r.run_at <= ?1 AND NOT EXISTS ( \
       SELECT 1 FROM runs o WHERE o.tree_id = r.tree_id AND o.thread_id = r.thread_id \
          AND o.status IN ('pending', 'running') \
          AND coalesce(o.branch_id, t.active_branch_id) = b.branch_id \
          AND (o.status = 'running' OR o.seq < r.seq)) \
     ORDER BY r.run_at, r.seq LIMIT ?2"
);

fn claim(
    db: &Connection,
    worker: WorkerId,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Claimed>, Error> {
    let waiting: Vec<(Run, Slot)> = db
        .prepare_cached(CLAIM)?
        .query_map(
            params![now.0, i64::try_from(limit).unwrap_or(i64::MAX)],
            |row| {
                let run = read_run(row)?;
                let slot = slot_of(&run, row)?;
                Ok((run, slot))
            },
        )?
        .collect::<Result<_, _>>()?;
    let mut claimed = Vec::with_capacity(waiting.len());
    for (mut run, mut slot) in waiting {
        slot.epoch = threads::raise_epoch(db, slot.tree, slot.branch)?;
        db.prepare_cached(
            "UPDATE runs SET status = 'running', branch_id = ?2, epoch = ?3, worker_id = ?4, \
             attempt = attempt + 1, base_checkpoint_id = coalesce(base_checkpoint_id, ?5), \
             updated_at = ?6 WHERE run_id = ?1",
        )?
        .execute(params![
            run.id.0.as_bytes(),
            slot.branch.0.as_bytes(),
            slot.epoch,
            worker.0.as_bytes(),
            slot.head.as_ref().map(|id| id.0.as_bytes()),
            now.0,
        ])?;
        run.status = Status::Running;
        run.branch = Some(slot.branch);
        run.base = run.base.or(slot.head);
        run.attempt += 1;
        run.updated_at = now;
        log::started(db, &run, &slot, now)?;
        claimed.push(Claimed { run, slot });
    }
    Ok(claimed)
}

fn end_well(db: &Connection, finish: &Finish, now: Timestamp) -> Result<(), Error> {
    let slot = &finish.slot;
    threads::settle(db, slot, finish.outcome, finish.error.as_ref(), now)?;
    let base = db
        .prepare_cached(
            "UPDATE runs SET status = ?2, last_checkpoint_id = ?3, error = ?4, updated_at = ?5 \
             WHERE run_id = ?1 AND status = 'running' AND epoch = ?6 RETURNING base_checkpoint_id",
        )?
        .query_row(
            params![
                finish.run.0.as_bytes(),
                finish.status.as_str(),
                slot.head.as_ref().map(|id| id.0.as_bytes()),
                finish.error.as_ref().map(Value::to_json),
                now.0,
                slot.epoch,
            ],
            |row| id_if(row, 0),
        )
        .optional()?
        .ok_or(Error::Fenced)?;
    if finish.delete_thread {
        return purge::thread(db, slot.tree, slot.thread, false);
    }
    let end = log::Ended {
        tree: slot.tree,
        thread: slot.thread,
        run: finish.run,
        branch: slot.branch,
        base,
        head: slot.head,
        status: finish.status,
    };
    log::ended(db, &end, now)
}
