//! Runs: created, claimed, ended.

use std::time::Duration;

use const_format::formatcp;
use rows::run_of;
use tokio_postgres::Row;

use super::{
    Store,
    columns::{Time, all, column, execute, one},
    connection::{self, Object, Result},
};
use crate::{
    checkpoint::Error,
    id::{RunId, ThreadId, TreeId, WorkerId},
    runs::{EndedRun, Run, Status},
};

/// The columns of a run, of the row `r`; or with these as its metadata and its request.
macro_rules! run_columns {
    () => {
        run_columns_with!("r.metadata", "r.kwargs")
    };
}
macro_rules! run_columns_with {
    ($metadata:literal, $kwargs:literal) => {
        concat!(
            " r.tree_id, r.run_id, r.thread_id, r.branch_id, r.assistant_id, r.status, ",
            $metadata,
            " AS metadata, r.type, ",
            $kwargs,
            " AS kwargs, r.address, r.strategy, r.attempt, r.temporary, r.error, r.last_checkpoint_id, r.run_at, r.created_at,
          r.updated_at, r.base_checkpoint_id, r.principal, r.thread_user "
        )
    };
}

/// What the row of a run stores as its metadata, of what was bound and of what `n` inherits of its thread, as
/// [`stored_metadata`](crate::runs::request::codec::stored_metadata) says.
macro_rules! stored_metadata {
    ($bound:literal) => {
        concat!(
            "CASE WHEN n.inherited = '{}' OR n.inherited IS NULL THEN ",
            $bound,
            " WHEN jsonb_typeof(",
            $bound,
            ") = 'array' THEN jsonb_build_array(",
            $bound,
            "->0, n.inherited) ELSE n.inherited END"
        )
    };
}

/// Whether the principal of the run `r` may still write to its thread. Of a change of rights that
/// commits while a run is claimed, [`executed_for`](crate::runs::Tx::executed_for) sees to the run.
macro_rules! permitted {
    () => {
        " r.principal IS NULL OR EXISTS (SELECT 1 FROM trees o WHERE o.tree_id = r.tree_id AND o.owner = r.principal)
          OR EXISTS (SELECT 1 FROM tree_members m WHERE m.tree_id = r.tree_id AND m.principal = r.principal AND m.level <> 'reader') "
    };
}

mod cancel;
mod claim;
pub(super) mod create;
mod finish;
mod fire;
mod open_runs;
mod reclaim;
mod recover;
mod rows;
mod undo;

pub(super) use cancel::{CANCEL, LOCK_SLOTS, request_cancel};
pub(super) use claim::claim;
pub(super) use create::{batch::create_runs, create_run};
pub(super) use finish::{await_end, finish};
pub(super) use fire::fire;
pub(super) use open_runs::{is_open, open, open_states};
pub(super) use reclaim::reclaim;
pub(super) use recover::{recover, running};
pub(super) use undo::remove_within;

const RENEW: &str = "
INSERT INTO workers (worker_id, lease, lease_until)
VALUES ($1, make_interval(secs => $2), now() + make_interval(secs => $2))
ON CONFLICT (worker_id) DO UPDATE SET lease = EXCLUDED.lease, lease_until = EXCLUDED.lease_until";

const RETIRE: &str = "DELETE FROM workers WHERE worker_id = $1";

const COLUMNS: &str = run_columns!();
/// What its request contains is left out.
const WITHOUT_REQUEST: &str = run_columns_with!("'null'::jsonb", "NULL::bytea");
/// Its request is left out where the row has the metadata beside it.
const WITH_METADATA: &str = run_columns_with!(
    "r.metadata",
    "CASE WHEN jsonb_typeof(r.metadata) = 'array' THEN NULL ELSE r.kwargs END"
);

/// One run of a thread, and those of a page.
const ONE: &str = "FROM runs r WHERE r.run_id = $2 AND r.thread_id = $1";
const PAGE: &str = "FROM runs r WHERE r.thread_id = $1 AND ($2::text IS NULL OR r.status = $2)
      ORDER BY r.seq DESC LIMIT $3 OFFSET $4";

const RUN: &str = formatcp!("SELECT {COLUMNS} {ONE}");
const RUN_WITHOUT_REQUEST: &str = formatcp!("SELECT {WITHOUT_REQUEST} {ONE}");
const RUN_WITH_METADATA: &str = formatcp!("SELECT {WITH_METADATA} {ONE}");
const RUNS: &str = formatcp!("SELECT {COLUMNS} {PAGE}");
const RUNS_WITHOUT_REQUESTS: &str = formatcp!("SELECT {WITHOUT_REQUEST} {PAGE}");
const RUNS_WITH_METADATA: &str = formatcp!("SELECT {WITH_METADATA} {PAGE}");

/// What the request of the run `r` weighs, and its metadata.
const KWARGS_WEIGHT: &str = concat!("COALESCE(", weight!("r.type", "r.kwargs"), ", 0)");
const METADATA_WEIGHT: &str = concat!("COALESCE(", json_weight!("r.metadata::text"), ", 0)");
const REQUEST_WEIGHT: &str = formatcp!("({KWARGS_WEIGHT} + {METADATA_WEIGHT})::bigint AS weight");

const RUN_WEIGHT: &str = formatcp!("SELECT {REQUEST_WEIGHT} {ONE}");
const RUN_WEIGHTS: &str = formatcp!("SELECT r.run_id, {REQUEST_WEIGHT} {PAGE}");
/// What is read of runs for their metadata weighs.
const METADATA_WEIGHTS: &str = formatcp!(
    "SELECT r.run_id, (CASE WHEN jsonb_typeof(r.metadata) = 'array' THEN 0 ELSE {KWARGS_WEIGHT} END + {METADATA_WEIGHT})::bigint AS weight {PAGE}"
);

/// The row of a run that has ended, or else what the outbox has of it.
const ENDED: &str = concat!(
    "(SELECT",
    run_columns!(),
    ", r.started_at FROM runs r WHERE r.run_id = $1 AND r.tree_id = $2 AND r.status NOT IN ('pending', 'running'))
UNION ALL
(SELECT o.tree_id, o.run_id, o.thread_id, NULL::uuid, o.assistant_id, o.status, o.metadata, o.type, o.kwargs, NULL::jsonb, o.strategy,
        o.attempts, true, o.error, NULL::uuid, o.run_created_at, o.run_created_at, o.ended_at, NULL::uuid, NULL::text, NULL::jsonb, o.started_at
   FROM outbox o WHERE o.run_id = $1 AND o.tree_id = $2 AND o.kwargs IS NOT NULL)
 LIMIT 1"
);

pub(super) async fn run(db: &Object, thread: ThreadId, run: RunId) -> Result<Option<Run>> {
    one(db, RUN, &[&thread.0, &run.0], run_of).await
}

pub(super) async fn run_without_request(
    db: &Object,
    thread: ThreadId,
    run: RunId,
) -> Result<Option<Run>> {
    one(db, RUN_WITHOUT_REQUEST, &[&thread.0, &run.0], run_of).await
}

pub(super) async fn run_with_metadata(
    db: &Object,
    thread: ThreadId,
    run: RunId,
) -> Result<Option<Run>> {
    one(db, RUN_WITH_METADATA, &[&thread.0, &run.0], run_of).await
}

pub(super) async fn run_weight(db: &Object, thread: ThreadId, run: RunId) -> Result<Option<u64>> {
    one(db, RUN_WEIGHT, &[&thread.0, &run.0], weight_of).await
}

fn weight_of(row: &Row) -> Result<u64, Error> {
    let weight: i64 = column(row, "weight")?;
    Ok(u64::try_from(weight).unwrap_or(0))
}

const THREAD: &str = "SELECT thread_id FROM runs WHERE run_id = $1";

pub(super) async fn thread_of_run(db: &Object, run: RunId) -> Result<Option<ThreadId>> {
    let read = |row: &Row| column(row, "thread_id").map(ThreadId);
    one(db, THREAD, &[&run.0], read).await
}

pub(super) async fn ended_run(db: &Object, tree: TreeId, run: RunId) -> Result<Option<EndedRun>> {
    one(db, ENDED, &[&run.0, &tree.0], |row| {
        let started = column::<Option<Time>>(row, "started_at")?;
        Ok(EndedRun {
            run: run_of(row)?,
            started_at: started.map(|time| time.0),
        })
    })
    .await
}

pub(super) async fn runs(
    db: &Object,
    thread: ThreadId,
    status: Option<Status>,
    limit: usize,
    offset: usize,
) -> Result<Vec<Run>> {
    of_thread(db, RUNS, (thread, status, limit, offset), run_of).await
}

pub(super) async fn runs_without_requests(
    db: &Object,
    thread: ThreadId,
    status: Option<Status>,
    limit: usize,
    offset: usize,
) -> Result<Vec<Run>> {
    let page = (thread, status, limit, offset);
    of_thread(db, RUNS_WITHOUT_REQUESTS, page, run_of).await
}

pub(super) async fn runs_with_metadata(
    db: &Object,
    thread: ThreadId,
    status: Option<Status>,
    limit: usize,
    offset: usize,
) -> Result<Vec<Run>> {
    let page = (thread, status, limit, offset);
    of_thread(db, RUNS_WITH_METADATA, page, run_of).await
}

pub(super) async fn metadata_weights(
    db: &Object,
    thread: ThreadId,
    status: Option<Status>,
    limit: usize,
    offset: usize,
) -> Result<Vec<(RunId, u64)>> {
    let page = (thread, status, limit, offset);
    of_thread(db, METADATA_WEIGHTS, page, |row| {
        Ok((RunId(column(row, "run_id")?), weight_of(row)?))
    })
    .await
}

pub(super) async fn run_weights(
    db: &Object,
    thread: ThreadId,
    status: Option<Status>,
    limit: usize,
    offset: usize,
) -> Result<Vec<(RunId, u64)>> {
    of_thread(db, RUN_WEIGHTS, (thread, status, limit, offset), |row| {
        Ok((RunId(column(row, "run_id")?), weight_of(row)?))
    })
    .await
}

async fn of_thread<T>(
    db: &Object,
    text: &'static str,
    (thread, status, limit, offset): (ThreadId, Option<Status>, usize, usize),
    read: impl Fn(&Row) -> Result<T, Error>,
) -> Result<Vec<T>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    let status = status.map(Status::as_str);
    all(db, text, &[&thread.0, &status, &limit, &offset], read).await
}

/// How long the one connection for the lease may take to write it; whoever renews tries again.
const LEASE_LIMIT: Duration = Duration::from_secs(2);

pub(super) async fn renew(store: &Store, worker: WorkerId, lease: Duration) -> Result<(), Error> {
    let limit = (lease / 3).clamp(LEASE_LIMIT / 4, LEASE_LIMIT);
    connection::within(&store.pools.lease, limit, |db| {
        Box::pin(async move {
            execute(db, RENEW, &[&worker.0, &lease.as_secs_f64()]).await?;
            Ok(())
        })
    })
    .await
}

pub(super) async fn retire(store: &Store, worker: WorkerId) -> Result<(), Error> {
    connection::within(&store.pools.lease, LEASE_LIMIT, |db| {
        Box::pin(async move {
            execute(db, RETIRE, &[&worker.0]).await?;
            Ok(())
        })
    })
    .await
}

statements!(RENEW, RETIRE, RUN, RUN_WITHOUT_REQUEST, RUN_WITH_METADATA, RUN_WEIGHT, THREAD, ENDED, RUNS, RUNS_WITHOUT_REQUESTS, RUNS_WITH_METADATA, RUN_WEIGHTS, METADATA_WEIGHTS; cancel, claim, create, finish, fire, open_runs, reclaim, recover, undo);
