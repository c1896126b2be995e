//! Runs that are pending or running.

use super::super::{
    Store,
    columns::column,
    connection::{self, prepare},
};
use crate::{
    checkpoint::Error,
    id::{RunId, ThreadId},
    runs::Status,
};

const EVERYWHERE: &str = "
SELECT thread_id, run_id FROM runs WHERE status IN ('pending', 'running') AND ($1::text IS NULL OR status = $1) ORDER BY seq";

/// Pending and running runs of all threads, oldest first.
pub(super) async fn everywhere(
    store: &Store,
    status: Option<Status>,
) -> Result<Vec<(ThreadId, RunId)>, Error> {
    let rows = connection::retry(&store.pools.reads, |client| async move {
        let statement = prepare(&client, EVERYWHERE).await?;
        Ok(client
            .query(&statement, &[&status.map(Status::as_str)])
            .await?)
    })
    .await?;
    rows.iter()
        .map(|row| {
            let thread = ThreadId(column(row, "thread_id")?);
            Ok((thread, RunId(column(row, "run_id")?)))
        })
        .collect()
}
