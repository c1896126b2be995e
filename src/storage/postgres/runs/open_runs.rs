//! Runs that are pending or running.

use deadpool_postgres::Object;

use super::super::{
    columns::column,
    connection::{Failure, prepare},
};
use crate::{
    id::{RunId, ThreadId},
    runs::Status,
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

statements!(EVERYWHERE);
