//! Threads of a list that are looked up by what few have: a field of their metadata, or a status.

use const_format::formatcp;
use tokio_postgres::Row;

use super::{
    super::{
        columns::column,
        connection::{Object, Result, prepare},
    },
    search::SHARED,
};
use crate::{
    checkpoint::Error,
    id::ThreadId,
    tree::search::{FEW, FEW_LABELLED, ThreadFilter},
};

/// Threads with a label, of everybody or of a principal; the filter decides among them.
const OF_LABEL: &str = formatcp!(
    "
(SELECT l.thread_id FROM thread_labels l WHERE $2::text IS NULL AND l.label = $1 LIMIT $3)
UNION ALL
(SELECT l.thread_id FROM thread_labels l WHERE l.label = $1 AND l.owner = $2 LIMIT $3)
UNION ALL
(SELECT t.thread_id FROM {SHARED} WHERE m.principal = $2 AND t.owner <> $2
    AND (SELECT true FROM thread_labels l WHERE l.label = $1 AND l.owner = t.owner AND l.thread_id = t.thread_id) LIMIT $3)
LIMIT $3"
);

/// Threads with a branch of a status that few have, or with an open run; the filter decides among them.
const OF_STATUS: &str = "
(SELECT r.thread_id FROM runs r WHERE $1 = 'busy' AND r.status IN ('pending', 'running') LIMIT $2)
UNION ALL
(SELECT b.thread_id FROM branches b WHERE b.outcome <> 'idle' AND b.outcome = $1 LIMIT $2)";

/// The filter among the threads that have what it asks for, if these are few.
pub(super) async fn narrowed(db: &Object, filter: &ThreadFilter) -> Result<Option<ThreadFilter>> {
    let principal = filter.principal.as_deref();
    for label in filter.labels() {
        let statement = prepare(db, OF_LABEL).await?;
        let most = more_than(FEW_LABELLED);
        let rows = db.query(&statement, &[&label, &principal, &most]).await?;
        if rows.len() <= FEW_LABELLED {
            return Ok(Some(among(filter, &rows)?));
        }
    }
    let Some(status) = filter.rare_status() else {
        return Ok(None);
    };
    let statement = prepare(db, OF_STATUS).await?;
    let most = more_than(FEW);
    let rows = db.query(&statement, &[&status.as_str(), &most]).await?;
    if rows.len() > FEW {
        return Ok(None);
    }
    Ok(Some(among(filter, &rows)?))
}

fn more_than(few: usize) -> i64 {
    i64::try_from(few).map_or(i64::MAX, |few| few + 1)
}

fn among(filter: &ThreadFilter, rows: &[Row]) -> Result<ThreadFilter, Error> {
    let ids = rows
        .iter()
        .map(|row| Ok(ThreadId(column(row, "thread_id")?)));
    Ok(filter.among(ids.collect::<Result<_, Error>>()?))
}

statements!(OF_LABEL, OF_STATUS);
