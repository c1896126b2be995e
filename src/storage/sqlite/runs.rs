//! Runs: created, claimed, ended. Each call is one transaction.

use std::time::Duration;

use const_format::formatcp;
use rows::read_run;
use rusqlite::{Connection, Row, params};

use crate::{
    checkpoint::{Error, Result},
    id::{RunId, ThreadId, TreeId, WorkerId},
    runs::{EndedRun, Run, Status},
    storage::sqlite::columns::{id, one},
    time::Timestamp,
};

/// The columns of a run, of the row `r`, with these as its metadata and its request.
macro_rules! run_columns_with {
    ($metadata:literal, $kwargs:literal) => {
        concat!(
            "r.run_id, r.tree_id, r.thread_id, r.branch_id, r.assistant_id, r.status, ",
            $metadata,
            ", r.type, ",
            $kwargs,
            ", r.address, r.strategy, r.attempt, r.temporary, r.error, r.last_checkpoint_id, r.run_at, \
             r.created_at, r.updated_at, r.base_checkpoint_id, r.principal, r.thread_user"
        )
    };
}

/// A query for runs, the modules below included.
macro_rules! select {
    ($($rest:literal),+) => {
        concat!("SELECT ", run_columns_with!("r.metadata", "r.kwargs"), " ", $($rest),+)
    };
}

mod cancel;
mod claim;
mod create;
mod finish;
mod fire;
mod open_runs;
mod reclaim;
mod recover;
mod rows;
mod undo;

pub(super) use cancel::{cancel, end_running, request_cancel};
pub(super) use claim::claim;
#[cfg(test)]
pub(super) use claim::{BEHIND, PRINCIPAL, READY};
pub(super) use create::{create, create_all, create_or_nothing};
pub(super) use finish::{await_end, finish};
pub(super) use fire::fire;
pub(super) use open_runs::{is_open, open, open_states};
pub(super) use reclaim::reclaim;
pub(super) use recover::{recover, running};
pub(super) use undo::remove;

const COLUMNS: &str = run_columns_with!("r.metadata", "r.kwargs");
/// What its request contains is left out.
const WITHOUT_REQUEST: &str = run_columns_with!("NULL", "NULL");
/// Its request is left out where the row has the metadata beside it.
const WITH_METADATA: &str = run_columns_with!(
    "r.metadata",
    "CASE WHEN substr(r.metadata, 1, 1) = '[' THEN NULL ELSE r.kwargs END"
);

/// One run of a thread, and those of a page.
const ONE: &str = "FROM runs r WHERE r.run_id = ?1 AND r.thread_id = ?2";
const PAGE: &str = "FROM runs r WHERE r.thread_id = ?1 AND (?2 IS NULL OR r.status = ?2) \
     ORDER BY r.seq DESC LIMIT ?3 OFFSET ?4";

const RUN: &str = formatcp!("SELECT {COLUMNS} {ONE}");
const RUN_WITHOUT_REQUEST: &str = formatcp!("SELECT {WITHOUT_REQUEST} {ONE}");
const RUN_WITH_METADATA: &str = formatcp!("SELECT {WITH_METADATA} {ONE}");
pub(super) const RUNS: &str = formatcp!("SELECT {COLUMNS} {PAGE}");
const RUNS_WITHOUT_REQUESTS: &str = formatcp!("SELECT {WITHOUT_REQUEST} {PAGE}");
const RUNS_WITH_METADATA: &str = formatcp!("SELECT {WITH_METADATA} {PAGE}");

/// What the request of the run `r` weighs, and its metadata.
const KWARGS_WEIGHT: &str = concat!("coalesce(", weight!("r.type", "r.kwargs"), ", 0)");
const METADATA_WEIGHT: &str = concat!("coalesce(", json_weight!("r.metadata"), ", 0)");

const RUN_WEIGHT: &str = formatcp!("SELECT {KWARGS_WEIGHT} + {METADATA_WEIGHT} {ONE}");
const RUN_WEIGHTS: &str = formatcp!("SELECT r.run_id, {KWARGS_WEIGHT} + {METADATA_WEIGHT} {PAGE}");
/// What is read of runs for their metadata weighs.
const METADATA_WEIGHTS: &str = formatcp!(
    "SELECT r.run_id, CASE WHEN substr(r.metadata, 1, 1) = '[' THEN 0 ELSE {KWARGS_WEIGHT} END \
     + {METADATA_WEIGHT} {PAGE}"
);

pub(super) fn run(db: &Connection, thread: ThreadId, run: RunId) -> Result<Option<Run>> {
    one(db, RUN, params![run, thread], read_run)
}

pub(super) fn run_without_request(
    db: &Connection,
    thread: ThreadId,
    run: RunId,
) -> Result<Option<Run>> {
    one(db, RUN_WITHOUT_REQUEST, params![run, thread], read_run)
}

pub(super) fn run_with_metadata(
    db: &Connection,
    thread: ThreadId,
    run: RunId,
) -> Result<Option<Run>> {
    one(db, RUN_WITH_METADATA, params![run, thread], read_run)
}

pub(super) fn run_weight(db: &Connection, thread: ThreadId, run: RunId) -> Result<Option<u64>> {
    let read = |row: &Row<'_>| Ok(row.get::<_, i64>(0)?.unsigned_abs());
    one(db, RUN_WEIGHT, params![run, thread], read)
}

const THREAD: &str = "SELECT thread_id FROM runs WHERE run_id = ?1";

pub(super) fn thread_of_run(db: &Connection, run: RunId) -> Result<Option<ThreadId>> {
    one(db, THREAD, [run], |row| id(row, 0))
}

/// What the outbox has of a run that went with its thread, in the columns of [`read_run`].
const REPORTED: &str = "SELECT o.run_id, o.tree_id, o.thread_id, NULL, o.assistant_id, o.status, \
    o.metadata, o.type, o.kwargs, NULL, o.strategy, o.attempts, 1, o.error, NULL, o.run_created_at, \
    o.run_created_at, o.ended_at, NULL, NULL, NULL, o.started_at FROM outbox o \
    WHERE o.run_id = ?1 AND o.tree_id = ?2 AND o.kwargs IS NOT NULL";

pub(super) fn ended_run(db: &Connection, tree: TreeId, run: RunId) -> Result<Option<EndedRun>> {
    let key = params![run, tree];
    let read = |row: &Row<'_>| {
        Ok(EndedRun {
            run: read_run(row)?,
            started_at: row.get::<_, Option<i64>>(21)?.map(Timestamp),
        })
    };
    let own = select!(
        ", r.started_at FROM runs r WHERE r.run_id = ?1 AND r.tree_id = ?2 \
         AND r.status NOT IN ('pending', 'running')"
    );
    match one(db, own, key, read)? {
        Some(ended) => Ok(Some(ended)),
        None => one(db, REPORTED, key, read),
    }
}

pub(super) fn runs(
    db: &Connection,
    thread: ThreadId,
    status: Option<Status>,
    limit: usize,
    offset: usize,
) -> Result<Vec<Run>> {
    of_thread(db, RUNS, (thread, status, limit, offset), read_run)
}

pub(super) fn runs_without_requests(
    db: &Connection,
    thread: ThreadId,
    status: Option<Status>,
    limit: usize,
    offset: usize,
) -> Result<Vec<Run>> {
    let page = (thread, status, limit, offset);
    of_thread(db, RUNS_WITHOUT_REQUESTS, page, read_run)
}

pub(super) fn runs_with_metadata(
    db: &Connection,
    thread: ThreadId,
    status: Option<Status>,
    limit: usize,
    offset: usize,
) -> Result<Vec<Run>> {
    let page = (thread, status, limit, offset);
    of_thread(db, RUNS_WITH_METADATA, page, read_run)
}

pub(super) fn metadata_weights(
    db: &Connection,
    thread: ThreadId,
    status: Option<Status>,
    limit: usize,
    offset: usize,
) -> Result<Vec<(RunId, u64)>> {
    let page = (thread, status, limit, offset);
    of_thread(db, METADATA_WEIGHTS, page, |row| {
        Ok((id(row, 0)?, row.get::<_, i64>(1)?.unsigned_abs()))
    })
}

pub(super) fn run_weights(
    db: &Connection,
    thread: ThreadId,
    status: Option<Status>,
    limit: usize,
    offset: usize,
) -> Result<Vec<(RunId, u64)>> {
    of_thread(db, RUN_WEIGHTS, (thread, status, limit, offset), |row| {
        Ok((id(row, 0)?, row.get::<_, i64>(1)?.unsigned_abs()))
    })
}

fn of_thread<T>(
    db: &Connection,
    text: &'static str,
    (thread, status, limit, offset): (ThreadId, Option<Status>, usize, usize),
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let mut statement = db.prepare_cached(text)?;
    let rows = statement.query_map(
        params![
            thread,
            status.map(Status::as_str),
            i64::try_from(limit).unwrap_or(i64::MAX),
            i64::try_from(offset).unwrap_or(i64::MAX),
        ],
        read,
    )?;
    rows.map(|row| row.map_err(Error::from)).collect()
}

/// One process uses a database: nobody has to see how long it has been silent.
pub(super) fn renew(db: &Connection, worker: WorkerId, _lease: Duration) -> Result<()> {
    db.prepare_cached("INSERT INTO workers (worker_id) VALUES (?1) ON CONFLICT DO NOTHING")?
        .execute([worker])?;
    Ok(())
}

pub(super) fn retire(db: &Connection, worker: WorkerId) -> Result<()> {
    db.prepare_cached("DELETE FROM workers WHERE worker_id = ?1")?
        .execute([worker])?;
    Ok(())
}
