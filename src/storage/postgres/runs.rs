//! Runs: created, claimed, ended.

use std::time::Duration;

use async_trait::async_trait;
use rows::run_of;

use super::{
    Store,
    connection::{self, prepare},
};
use crate::{
    checkpoint::Error,
    id::{RunId, ThreadId, TreeId, WorkerId},
    runs::{self, Claimed, Created, Finish, NewRun, Recover, Recovered, Run, Status, Undo},
    value::Value,
};

/// The columns of a run, of the row `r`.
macro_rules! run_columns {
    () => {
        " r.tree_id, r.run_id, r.thread_id, r.branch_id, r.assistant_id, r.status, r.metadata, r.type, r.kwargs, r.address, r.strategy,
          r.attempt, r.temporary, r.error, r.last_checkpoint_id, r.run_at, r.created_at, r.updated_at, r.base_checkpoint_id "
    };
}

mod cancel;
mod claim;
pub(super) mod create;
mod finish;
mod open_runs;
mod recover;
mod rows;
mod undo;

pub(super) use cancel::{CANCEL, LOCK_SLOTS};

const RENEW: &str = "
INSERT INTO workers (worker_id, lease, lease_until)
VALUES ($1, make_interval(secs => $2), now() + make_interval(secs => $2))
ON CONFLICT (worker_id) DO UPDATE SET lease = EXCLUDED.lease, lease_until = EXCLUDED.lease_until";

const RETIRE: &str = "DELETE FROM workers WHERE worker_id = $1";

const RUN: &str = concat!(
    "SELECT",
    run_columns!(),
    "FROM runs r WHERE r.run_id = $2 AND r.thread_id = $1"
);

const RUNS: &str = concat!(
    "SELECT",
    run_columns!(),
    "FROM runs r WHERE r.thread_id = $1 AND ($2::text IS NULL OR r.status = $2)
      ORDER BY r.seq DESC LIMIT $3 OFFSET $4"
);

#[async_trait]
impl runs::Store for Store {
    async fn create_run(&self, new: NewRun) -> Result<Created, Error> {
        create::create(self, new).await
    }

    async fn claim(&self, worker: WorkerId, limit: usize) -> Result<Vec<Claimed>, Error> {
        claim::claim(self, worker, limit).await
    }

    async fn finish(&self, finish: Finish) -> Result<(), Error> {
        finish::finish(self, &finish).await
    }

    async fn run(&self, thread: ThreadId, run: RunId) -> Result<Option<Run>, Error> {
        let row = connection::retry(&self.pools.reads, |client| async move {
            let client = &client;
            let statement = prepare(client, RUN).await?;
            Ok(client.query_opt(&statement, &[&thread.0, &run.0]).await?)
        })
        .await?;
        row.as_ref().map(run_of).transpose()
    }

    async fn runs(
        &self,
        thread: ThreadId,
        status: Option<Status>,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Run>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        let rows = connection::retry(&self.pools.reads, |client| async move {
            let client = &client;
            let statement = prepare(client, RUNS).await?;
            let status = status.map(Status::as_str);
            Ok(client
                .query(&statement, &[&thread.0, &status, &limit, &offset])
                .await?)
        })
        .await?;
        rows.iter().map(run_of).collect()
    }

    async fn cancel(
        &self,
        thread: ThreadId,
        run: Option<RunId>,
        error: Option<Value>,
    ) -> Result<Vec<RunId>, Error> {
        cancel::cancel(self, thread, run, error.as_ref()).await
    }

    async fn remove(&self, what: Undo) -> Result<bool, Error> {
        undo::remove(self, &what).await
    }

    async fn open(&self, status: Option<Status>) -> Result<Vec<(ThreadId, RunId)>, Error> {
        open_runs::everywhere(self, status).await
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), Error> {
        connection::retry(&self.pools.critical, |client| async move {
            let client = &client;
            let statement = prepare(client, RENEW).await?;
            client
                .execute(&statement, &[&worker.0, &lease.as_secs_f64()])
                .await?;
            Ok(())
        })
        .await
    }

    async fn retire(&self, worker: WorkerId) -> Result<(), Error> {
        connection::retry(&self.pools.critical, |client| async move {
            let client = &client;
            let statement = prepare(client, RETIRE).await?;
            client.execute(&statement, &[&worker.0]).await?;
            Ok(())
        })
        .await
    }

    async fn recover(&self, by: Recover) -> Result<Recovered, Error> {
        recover::recover(self, by).await
    }

    async fn running(&self, worker: WorkerId) -> Result<Vec<RunId>, Error> {
        recover::running(self, worker).await
    }

    async fn begin(&self, tree: TreeId) -> Result<Box<dyn runs::Tx>, Error> {
        self.transaction(tree).await
    }
}
