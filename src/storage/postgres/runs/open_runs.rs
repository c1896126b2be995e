//! Runs that are pending or running.

use deadpool_postgres::Object;

use super::super::{
    columns::column,
    connection::{Failure, prepare},
};
use crate::{
    checkpoint::Error,
    id::{RunId, ThreadId},
    runs::{OpenRunState, Status},
};

const EVERYWHERE: &str = "
SELECT thread_id, run_id FROM runs WHERE status IN ('pending', 'running') AND ($1::text IS NULL OR status = $1) ORDER BY seq";

/// Pending and running runs of all threads, oldest first.
pub(in super::super) async fn open(
    db: &Object,
    status: Option<Status>,
) -> Result<Vec<(ThreadId, RunId)>, Failure> {
    let statement = prepare(db, EVERYWHERE).await?;
    let rows = db.query(&statement, &[&status.map(Status::as_str)]).await?;
    rows.iter()
        .map(|row| {
            let thread = ThreadId(column(row, "thread_id")?);
            Ok((thread, RunId(column(row, "run_id")?)))
        })
        .collect()
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

statements!(EVERYWHERE, STATES);
