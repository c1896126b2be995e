//! Runs: created, claimed, ended. Each call is one transaction.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{OptionalExtension, params};

use rows::read_run;

use super::Store;
use crate::{
    checkpoint::Error,
    id::{RunId, ThreadId, TreeId, WorkerId},
    runs::{
        self, Claimed, Created, Finish, NewRun, Recover, Recovered, Run, Status, Undo,
        request::codec as request_codec,
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

mod cancel;
mod claim;
mod create;
mod finish;
mod open_runs;
mod recover;
mod rows;
mod undo;

pub(super) use cancel::{cancel, end_running};
#[cfg(test)]
pub(super) use claim::CLAIM;
pub(super) use create::create;

/// What a test plans.
#[cfg(test)]
pub(super) const PLANNED: &[&str] = &[
    CLAIM,
    OF_THREAD,
    open_runs::EVERYWHERE,
    open_runs::OPEN,
    recover::LOST,
    undo::RUN,
    undo::UNPINNED,
];

pub(super) const OF_THREAD: &str = select!(
    "FROM runs r WHERE r.thread_id = ?1 AND (?2 IS NULL OR r.status = ?2) \
     ORDER BY r.seq DESC LIMIT ?3 OFFSET ?4"
);

#[async_trait]
impl runs::Store for Store {
    async fn create_run(&self, new: NewRun) -> Result<Created, Error> {
        let kwargs = request_codec::encode(&new.kwargs, new.columns());
        self.writer
            .submit(move |db| create(db, new, &kwargs, Timestamp::now()))
            .await
    }

    async fn claim(&self, worker: WorkerId, limit: usize) -> Result<Vec<Claimed>, Error> {
        self.writer
            .submit(move |db| claim::claim(db, worker, limit, Timestamp::now()))
            .await
    }

    async fn finish(&self, finish: Finish) -> Result<(), Error> {
        self.writer
            .submit(move |db| finish::finish(db, &finish, Timestamp::now()))
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
            .read(move |db| open_runs::everywhere(db, status))
            .await
    }

    // One process uses a database: nobody has to see how long it has been silent.
    async fn renew(&self, worker: WorkerId, _lease: Duration) -> Result<(), Error> {
        self.writer
            .submit(move |db| {
                db.prepare_cached(
                    "INSERT INTO workers (worker_id) VALUES (?1) ON CONFLICT DO NOTHING",
                )?
                .execute([worker.0.as_bytes()])?;
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
            .submit(move |db| recover::recover(db, &by, Timestamp::now()))
            .await
    }

    async fn running(&self, worker: WorkerId) -> Result<Vec<RunId>, Error> {
        self.readers
            .read(move |db| recover::running(db, worker))
            .await
    }

    async fn begin(&self, _tree: TreeId) -> Result<Box<dyn runs::Tx>, Error> {
        Ok(Box::new(self.transaction().await?))
    }
}
