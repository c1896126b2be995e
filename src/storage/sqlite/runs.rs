//! Runs: created, claimed, ended. Each call is one transaction.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use rows::read_run;

use crate::{
    checkpoint::{Error, Result},
    id::{RunId, ThreadId, TreeId, WorkerId},
    runs::{EndedRun, Run, Status},
    storage::sqlite::columns::{id, one},
    time::Timestamp,
};

/// A query for runs, the modules below included.
macro_rules! select {
    ($($rest:literal),+) => {
        concat!(
            "SELECT r.run_id, r.tree_id, r.thread_id, r.branch_id, r.assistant_id, r.status, \
             r.metadata, r.type, r.kwargs, r.address, r.strategy, r.attempt, r.temporary, \
             r.error, r.last_checkpoint_id, r.run_at, r.created_at, r.updated_at, \
             r.base_checkpoint_id, r.principal, r.thread_user ",
            $($rest),+
        )
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
pub(super) use create::{create, create_all};
pub(super) use finish::{await_end, finish};
pub(super) use fire::fire;
pub(super) use open_runs::{is_open, open, open_states};
pub(super) use reclaim::reclaim;
pub(super) use recover::{recover, running};
pub(super) use undo::remove;

pub(super) const OF_THREAD: &str = select!(
    "FROM runs r WHERE r.thread_id = ?1 AND (?2 IS NULL OR r.status = ?2) \
     ORDER BY r.seq DESC LIMIT ?3 OFFSET ?4"
);

/// A query for runs with what their requests contain left out.
macro_rules! select_without_request {
    ($rest:literal) => {
        concat!(
            "SELECT r.run_id, r.tree_id, r.thread_id, r.branch_id, r.assistant_id, r.status, NULL, \
             r.type, NULL, r.address, r.strategy, r.attempt, r.temporary, r.error, \
             r.last_checkpoint_id, r.run_at, r.created_at, r.updated_at, r.base_checkpoint_id, \
             r.principal, r.thread_user FROM runs r ",
            $rest
        )
    };
}

pub(super) const WITHOUT_REQUESTS: &str = select_without_request!(
    "WHERE r.thread_id = ?1 AND (?2 IS NULL OR r.status = ?2) \
     ORDER BY r.seq DESC LIMIT ?3 OFFSET ?4"
);

/// A query for runs with their metadata: a request is left out where the row has the metadata beside it.
macro_rules! select_with_metadata {
    ($rest:literal) => {
        concat!(
            "SELECT r.run_id, r.tree_id, r.thread_id, r.branch_id, r.assistant_id, r.status, \
             r.metadata, r.type, CASE WHEN substr(r.metadata, 1, 1) = '[' THEN NULL ELSE r.kwargs END, \
             r.address, r.strategy, r.attempt, r.temporary, r.error, r.last_checkpoint_id, r.run_at, \
             r.created_at, r.updated_at, r.base_checkpoint_id, r.principal, r.thread_user FROM runs r ",
            $rest
        )
    };
}

pub(super) const WITH_METADATA: &str = select_with_metadata!(
    "WHERE r.thread_id = ?1 AND (?2 IS NULL OR r.status = ?2) \
     ORDER BY r.seq DESC LIMIT ?3 OFFSET ?4"
);

/// What is read of the run `r` for its metadata weighs.
pub(super) const METADATA_WEIGHTS: &str = concat!(
    "SELECT r.run_id, CASE WHEN substr(r.metadata, 1, 1) = '[' THEN 0 ELSE coalesce(",
    weight!("r.type", "r.kwargs"),
    ", 0) END + coalesce(",
    json_weight!("r.metadata"),
    ", 0) FROM runs r \
    WHERE r.thread_id = ?1 AND (?2 IS NULL OR r.status = ?2) \
    ORDER BY r.seq DESC LIMIT ?3 OFFSET ?4"
);

/// What the request of the run `r` weighs.
macro_rules! request_weight {
    () => {
        concat!(
            "coalesce(",
            weight!("r.type", "r.kwargs"),
            ", 0) + coalesce(",
            json_weight!("r.metadata"),
            ", 0)"
        )
    };
}

const WEIGHT: &str = concat!(
    "SELECT ",
    request_weight!(),
    " FROM runs r WHERE r.run_id = ?1 AND r.thread_id = ?2"
);

pub(super) const WEIGHTS: &str = concat!(
    "SELECT r.run_id, ",
    request_weight!(),
    " FROM runs r \
    WHERE r.thread_id = ?1 AND (?2 IS NULL OR r.status = ?2) \
    ORDER BY r.seq DESC LIMIT ?3 OFFSET ?4"
);

pub(super) fn run(db: &Connection, thread: ThreadId, run: RunId) -> Result<Option<Run>> {
    Ok(db
        .prepare_cached(select!(
            "FROM runs r WHERE r.run_id = ?1 AND r.thread_id = ?2"
        ))?
        .query_row(params![run, thread], read_run)
        .optional()?)
}

pub(super) fn run_without_request(
    db: &Connection,
    thread: ThreadId,
    run: RunId,
) -> Result<Option<Run>> {
    Ok(db
        .prepare_cached(select_without_request!(
            "WHERE r.run_id = ?1 AND r.thread_id = ?2"
        ))?
        .query_row(params![run, thread], read_run)
        .optional()?)
}

pub(super) fn run_with_metadata(
    db: &Connection,
    thread: ThreadId,
    run: RunId,
) -> Result<Option<Run>> {
    Ok(db
        .prepare_cached(select_with_metadata!(
            "WHERE r.run_id = ?1 AND r.thread_id = ?2"
        ))?
        .query_row(params![run, thread], read_run)
        .optional()?)
}

pub(super) fn run_weight(db: &Connection, thread: ThreadId, run: RunId) -> Result<Option<u64>> {
    let mut statement = db.prepare_cached(WEIGHT)?;
    let found = statement.query_row(params![run, thread], |row| row.get::<_, i64>(0));
    Ok(found.optional()?.map(i64::unsigned_abs))
}

pub(super) const THREAD: &str = "SELECT thread_id FROM runs WHERE run_id = ?1";

pub(super) fn thread_of_run(db: &Connection, run: RunId) -> Result<Option<ThreadId>> {
    let mut statement = db.prepare_cached(THREAD)?;
    let found = statement.query_row([run], |row| id(row, 0));
    Ok(found.optional()?)
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
    of_thread(db, OF_THREAD, (thread, status, limit, offset), read_run)
}

pub(super) fn runs_without_requests(
    db: &Connection,
    thread: ThreadId,
    status: Option<Status>,
    limit: usize,
    offset: usize,
) -> Result<Vec<Run>> {
    let page = (thread, status, limit, offset);
    of_thread(db, WITHOUT_REQUESTS, page, read_run)
}

pub(super) fn runs_with_metadata(
    db: &Connection,
    thread: ThreadId,
    status: Option<Status>,
    limit: usize,
    offset: usize,
) -> Result<Vec<Run>> {
    let page = (thread, status, limit, offset);
    of_thread(db, WITH_METADATA, page, read_run)
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
    of_thread(db, WEIGHTS, (thread, status, limit, offset), |row| {
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
