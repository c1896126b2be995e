//! Runs that are pending or running.

use super::super::{
    columns::{Params, all, column, name},
    connection::{Failure, Object, prepare},
};
use crate::{
    checkpoint::Error,
    id::{RunId, ThreadId},
    runs::{OpenPage, OpenRunState, OpenedRun, Status},
};

const EVERYWHERE: &str = "
SELECT r.seq, r.thread_id, r.run_id FROM runs r
 WHERE r.status IN ('pending', 'running') AND ($1::text IS NULL OR r.status = $1) AND ($2::bigint IS NULL OR r.seq > $2)
   AND ($3::text IS NULL OR EXISTS (SELECT 1 FROM trees o WHERE o.tree_id = r.tree_id AND o.owner = $3)
     OR EXISTS (SELECT 1 FROM tree_members m WHERE m.tree_id = r.tree_id AND m.principal = $3 AND m.level <> 'reader'))
 ORDER BY r.seq LIMIT $4";

/// See [`runs::Store::open`](crate::runs::Store::open).
pub(in super::super) async fn open(
    db: &Object,
    page: &OpenPage,
) -> Result<Vec<OpenedRun>, Failure> {
    let params: Params<'_, 4> = [
        &page.status.map(Status::as_str),
        &page.after,
        &page.writer.as_deref().map(name),
        &i64::try_from(page.limit).unwrap_or(i64::MAX),
    ];
    all(db, EVERYWHERE, &params, |row| {
        Ok(OpenedRun {
            seq: column(row, "seq")?,
            thread: ThreadId(column(row, "thread_id")?),
            run: RunId(column(row, "run_id")?),
        })
    })
    .await
}

const AMONG: &str = "
SELECT run_id, status IN ('pending', 'running') AS open FROM runs WHERE run_id = ANY ($2::uuid[]) AND thread_id = $1";

/// See [`runs::Store::is_open`](crate::runs::Store::is_open).
pub(in super::super) async fn is_open(
    db: &Object,
    thread: ThreadId,
    runs: &[RunId],
) -> Result<Vec<(RunId, bool)>, Failure> {
    let runs: Vec<_> = runs.iter().map(|run| run.0).collect();
    let params: Params<'_, 2> = [&thread.0, &runs];
    all(db, AMONG, &params, |row| {
        Ok((RunId(column(row, "run_id")?), column(row, "open")?))
    })
    .await
}

/// How open runs stand, of which nothing but their time is read.
const STATES: &str = "
SELECT CASE WHEN status = 'pending' THEN extract(epoch FROM now() - run_at)::float8 END AS waits
  FROM runs WHERE status IN ('pending', 'running') LIMIT $1";

/// See [`runs::Store::open_states`](crate::runs::Store::open_states).
pub(in super::super) async fn open_states(
    db: &Object,
    limit: usize,
) -> Result<Vec<OpenRunState>, Failure> {
    let statement = prepare(db, STATES).await?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = db.query(&statement, &[&limit]).await?;
    let state = |row| {
        let waits: Option<f64> = column(row, "waits")?;
        Ok(waits.map_or(OpenRunState::Executed, OpenRunState::Waits))
    };
    Ok(rows.iter().map(state).collect::<Result<_, Error>>()?)
}

statements!(EVERYWHERE, AMONG, STATES);
