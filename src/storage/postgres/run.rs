//! Runs: claim, finish, cancel, and what happens to those of dead workers.

use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Store,
    commit::prepare,
    events::{append_rows, ended, started},
    params::{Json, JsonText, Params, Time, column, word},
    pool, remove,
    thread::slot_of,
};
use crate::{
    checkpoint::Error,
    id::{AssistantId, BranchId, CheckpointId, RunId, ThreadId, TreeId, WorkerId},
    runs::{
        self, Claimed, Created, Finish, NewRun, Recover, Recovered, Run, Status, Strategy, Undo,
        kept::{self, Columns},
    },
    value::Value,
};

/// The columns of a run, of the row `r`.
macro_rules! run_columns {
    () => {
        " r.tree_id, r.run_id, r.thread_id, r.branch_id, r.assistant_id, r.status, r.metadata, r.type, r.kwargs, r.address, r.strategy,
          r.attempt, r.temporary, r.error, r.last_checkpoint_id, r.run_at, r.created_at, r.updated_at, r.base_checkpoint_id "
    };
}
pub(super) use run_columns;

/// The oldest run of each free slot.
const CLAIM: &str = concat!(
    "
WITH c AS (
  SELECT r.tree_id, r.run_id, b.branch_id FROM runs r JOIN threads t ON t.thread_id = r.thread_id AND t.deleted_at IS NULL
    JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = COALESCE(r.branch_id, t.active_branch_id)
   WHERE r.status = 'pending' AND r.run_at <= now()
     AND NOT EXISTS (SELECT 1 FROM runs o WHERE o.tree_id = r.tree_id AND o.thread_id = r.thread_id AND o.status IN ('pending', 'running')
            AND COALESCE(o.branch_id, t.active_branch_id) = b.branch_id AND (o.status = 'running' OR o.seq < r.seq))
   ORDER BY r.run_at, r.seq LIMIT $2 FOR UPDATE OF b, r SKIP LOCKED),
f AS (
  UPDATE branches b SET writer_epoch = b.writer_epoch + 1 FROM c WHERE b.tree_id = c.tree_id AND b.branch_id = c.branch_id
  RETURNING b.tree_id, b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth),
u AS (
  UPDATE runs r SET status = 'running', branch_id = f.branch_id, epoch = f.writer_epoch, worker_id = $1, attempt = r.attempt + 1,
         base_checkpoint_id = COALESCE(r.base_checkpoint_id, f.head_checkpoint_id), updated_at = now()
    FROM c JOIN f USING (tree_id, branch_id) WHERE r.tree_id = c.tree_id AND r.run_id = c.run_id
  RETURNING f.writer_epoch, f.head_checkpoint_id, f.head_depth, r.seq,",
    run_columns!(),
    "),",
    started!(),
    append_rows!(),
    "
SELECT * FROM u"
);

/// The end of a run, told with the checkpoint it left if it left one (kinds 18 and 8).
const FINISH: &str = "
WITH f AS (
  UPDATE branches b SET outcome = $5, error = $6, updated_at = now()
   WHERE b.tree_id = $1 AND b.branch_id = $2 AND b.writer_epoch = $3
     AND EXISTS (SELECT 1 FROM runs r WHERE r.tree_id = $1 AND r.run_id = $4 AND r.status = 'running' AND r.epoch = $3)
  RETURNING b.thread_id, b.head_checkpoint_id),
r AS (
  UPDATE runs r SET status = $7, error = $6, last_checkpoint_id = f.head_checkpoint_id, updated_at = now()
    FROM f WHERE r.tree_id = $1 AND r.run_id = $4
  RETURNING f.head_checkpoint_id IS DISTINCT FROM r.base_checkpoint_id AS moved),
m AS (
  UPDATE message_nodes m SET settled_checkpoint_id = f.head_checkpoint_id
    FROM f JOIN checkpoints c ON c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = f.head_checkpoint_id
   WHERE m.tree_id = $1 AND m.node_id = c.last_node_id AND m.run_id = $4),
e AS (
  UPDATE threads t SET last_event_number = t.last_event_number + 1 + r.moved::int FROM f, r WHERE t.thread_id = f.thread_id AND $8
  RETURNING t.last_event_number AS n),
ev AS (
  INSERT INTO events (tree_id, thread_id, event_number, kind, branch_id, checkpoint_id, run_id, payload)
  SELECT $1, f.thread_id, e.n - 1, 8, $2, f.head_checkpoint_id, NULL, NULL FROM f, e, r WHERE r.moved
  UNION ALL
  SELECT $1, f.thread_id, e.n, 18, $2, f.head_checkpoint_id, $4, CASE WHEN $7 <> 'success' THEN jsonb_build_object('status', $7::text) END FROM f, e)
SELECT 1 FROM f";

/// Whether this end was written before and only its reply was lost.
const FINISHED: &str = "
SELECT 1 FROM runs WHERE tree_id = $1 AND run_id = $2 AND epoch = $3 AND status = $4";

/// Branches first, then runs: the order in which everybody locks.
pub(super) const LOCK_SLOTS: &str = "
SELECT 1 FROM branches b WHERE (b.tree_id, b.branch_id) IN (
  SELECT r.tree_id, COALESCE(r.branch_id, t.active_branch_id) FROM threads t JOIN runs r ON r.tree_id = t.tree_id AND r.thread_id = t.thread_id
   WHERE t.thread_id = $1 AND r.status IN ('pending', 'running') AND ($2::uuid IS NULL OR r.run_id = $2))
 ORDER BY b.branch_id FOR NO KEY UPDATE";

/// The branch stays as it was unless the run moved its head.
pub(super) const CANCEL: &str = concat!(
    "
WITH o AS (
  SELECT r.tree_id, r.run_id, r.seq, r.status, r.branch_id, r.base_checkpoint_id, r.temporary, t.active_branch_id FROM threads t JOIN runs r ON r.tree_id = t.tree_id AND r.thread_id = t.thread_id
   WHERE t.thread_id = $1 AND r.status IN ('pending', 'running') AND ($2::uuid IS NULL OR r.run_id = $2) FOR UPDATE OF r),
f AS (
  UPDATE branches b SET writer_epoch = b.writer_epoch + 1, outcome = CASE WHEN b.head_checkpoint_id IS NOT DISTINCT FROM o.base_checkpoint_id THEN b.outcome ELSE 'interrupted' END,
         error = COALESCE($3, CASE WHEN b.head_checkpoint_id IS NOT DISTINCT FROM o.base_checkpoint_id THEN b.error END), updated_at = now() FROM o
   WHERE o.status = 'running' AND b.tree_id = o.tree_id AND b.branch_id = o.branch_id
  RETURNING b.branch_id, b.head_checkpoint_id),
u AS (
  UPDATE runs r SET status = 'interrupted', last_checkpoint_id = f.head_checkpoint_id, updated_at = now()
    FROM o LEFT JOIN f ON o.status = 'running' AND f.branch_id = o.branch_id
   WHERE r.tree_id = o.tree_id AND r.run_id = o.run_id),
d AS (
  SELECT o.tree_id, $1::uuid AS thread_id, o.seq, o.run_id, COALESCE(o.branch_id, o.active_branch_id) AS branch_id, o.base_checkpoint_id AS base,
         f.head_checkpoint_id AS head, 'interrupted' AS status, o.temporary
    FROM o LEFT JOIN f ON o.status = 'running' AND f.branch_id = o.branch_id),",
    ended!(),
    append_rows!(),
    "
SELECT run_id FROM o ORDER BY seq"
);

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

/// A row with the columns of a run.
pub(super) fn run_of(row: &Row) -> Result<Run, Error> {
    let kwargs: Option<&[u8]> = column(row, "kwargs")?;
    let columns = Columns {
        run: RunId(column(row, "run_id")?),
        thread: ThreadId(column(row, "thread_id")?),
        assistant: AssistantId(column(row, "assistant_id")?),
    };
    let mut kwargs = match kwargs {
        Some(bytes) => kept::decode(column(row, "type")?, bytes, columns)
            .map_err(|error| Error::Corrupt(error.to_string()))?,
        None => Value::Null,
    };
    let own = column::<JsonText>(row, "metadata")?.value()?;
    Ok(Run {
        id: columns.run,
        tree: TreeId(column(row, "tree_id")?),
        thread: columns.thread,
        branch: column::<Option<Uuid>>(row, "branch_id")?.map(BranchId),
        assistant: columns.assistant,
        status: word(column(row, "status")?)?,
        metadata: kept::metadata(own.as_map().cloned(), &mut kwargs),
        kwargs,
        address: column::<Option<JsonText>>(row, "address")?
            .map(|json| address(&json))
            .transpose()?
            .flatten(),
        base: column::<Option<Uuid>>(row, "base_checkpoint_id")?.map(CheckpointId),
        strategy: strategy(column(row, "strategy")?)?,
        attempt: column(row, "attempt")?,
        temporary: column(row, "temporary")?,
        error: column::<Option<JsonText>>(row, "error")?
            .map(|json| json.value())
            .transpose()?,
        last_checkpoint: column::<Option<Uuid>>(row, "last_checkpoint_id")?.map(CheckpointId),
        run_at: column::<Time>(row, "run_at")?.0,
        created_at: column::<Time>(row, "created_at")?.0,
        updated_at: column::<Time>(row, "updated_at")?.0,
    })
}

/// Runs that were claimed, oldest first.
pub(super) fn claimed(rows: &mut [Row]) -> Result<Vec<Claimed>, Error> {
    rows.sort_by_key(|row| row.try_get::<_, i64>("seq").unwrap_or(i64::MAX));
    rows.iter()
        .map(|row| {
            Ok(Claimed {
                run: run_of(row)?,
                slot: slot_of(row)?,
            })
        })
        .collect()
}

fn address(json: &JsonText) -> Result<Option<CheckpointId>, Error> {
    match json.value()?.get("checkpoint_id").and_then(Value::as_str) {
        Some(text) => word(text).map(Some),
        None => Ok(None),
    }
}

fn strategy(text: &str) -> Result<Strategy, Error> {
    [
        Strategy::Reject,
        Strategy::Enqueue,
        Strategy::Interrupt,
        Strategy::Rollback,
    ]
    .into_iter()
    .find(|strategy| strategy.as_str() == text)
    .ok_or_else(|| Error::Corrupt(format!("`{text}` is not a multitask strategy")))
}

pub(super) fn ids(rows: &[Row]) -> Result<Vec<RunId>, Error> {
    rows.iter()
        .map(|row| Ok(RunId(column(row, "run_id")?)))
        .collect()
}

#[async_trait]
impl runs::Store for Store {
    async fn create_run(&self, new: NewRun) -> Result<Created, Error> {
        self.create(new).await
    }

    async fn claim(&self, worker: WorkerId, limit: usize) -> Result<Vec<Claimed>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut rows = pool::retry(&self.pools.critical, |client| async move {
            let client = &client;
            let statement = prepare(client, CLAIM).await?;
            Ok(client.query(&statement, &[&worker.0, &limit]).await?)
        })
        .await?;
        claimed(&mut rows)
    }

    async fn finish(&self, finish: Finish) -> Result<(), Error> {
        let finish = &finish;
        let done = pool::retry(&self.pools.critical, |mut client| async move {
            let client = &mut client;
            let statement = prepare(client, FINISH).await?;
            let error = finish.error.as_ref().map(Json::of_value);
            let (tree, run, epoch) = (finish.slot.tree.0, finish.run.0, finish.slot.epoch);
            let outcome = finish.outcome.as_str();
            let status = finish.status.as_str();
            let log = !finish.delete_thread;
            let params: Params<'_, 8> = [
                &tree,
                &finish.slot.branch.0,
                &epoch,
                &run,
                &outcome,
                &error,
                &status,
                &log,
            ];
            if finish.delete_thread {
                let transaction = client.transaction().await?;
                let row = transaction.query_opt(&statement, &params).await?;
                if row.is_some() {
                    remove::purge(&transaction, tree, finish.slot.thread.0).await?;
                    transaction.commit().await?;
                    return Ok(true);
                }
            } else if client.query_opt(&statement, &params).await?.is_some() {
                return Ok(true);
            }
            let statement = prepare(client, FINISHED).await?;
            let before = client
                .query_opt(&statement, &[&tree, &run, &epoch, &status])
                .await?;
            Ok(before.is_some())
        })
        .await?;
        if done { Ok(()) } else { Err(Error::Fenced) }
    }

    async fn run(&self, thread: ThreadId, run: RunId) -> Result<Option<Run>, Error> {
        let row = pool::retry(&self.pools.reads, |client| async move {
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
        let rows = pool::retry(&self.pools.reads, |client| async move {
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
        let error = &error;
        let rows = pool::retry(&self.pools.critical, |client| async move {
            let client = &client;
            let lock = prepare(client, LOCK_SLOTS).await?;
            let cancel = prepare(client, CANCEL).await?;
            let run = run.map(|run| run.0);
            let error = error.as_ref().map(Json::of_value);
            let slots: Params<'_, 2> = [&thread.0, &run];
            let params: Params<'_, 3> = [&thread.0, &run, &error];
            let (begin, locked, rows, end) = tokio::join!(
                biased;
                client.batch_execute("BEGIN"),
                client.query(&lock, &slots),
                client.query(&cancel, &params),
                client.batch_execute("COMMIT"),
            );
            begin?;
            locked?;
            let rows = rows?;
            end?;
            Ok(rows)
        })
        .await?;
        ids(&rows)
    }

    async fn remove(&self, what: Undo) -> Result<bool, Error> {
        self.remove_run(what).await
    }

    async fn open(&self, status: Option<Status>) -> Result<Vec<(ThreadId, RunId)>, Error> {
        self.open_everywhere(status).await
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), Error> {
        pool::retry(&self.pools.critical, |client| async move {
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
        pool::retry(&self.pools.critical, |client| async move {
            let client = &client;
            let statement = prepare(client, RETIRE).await?;
            client.execute(&statement, &[&worker.0]).await?;
            Ok(())
        })
        .await
    }

    async fn recover(&self, by: Recover) -> Result<Recovered, Error> {
        self.take_over(by).await
    }

    async fn held(&self, worker: WorkerId) -> Result<Vec<RunId>, Error> {
        self.held_by(worker).await
    }

    async fn begin(&self, tree: TreeId) -> Result<Box<dyn runs::Tx>, Error> {
        self.transaction(tree).await
    }
}
