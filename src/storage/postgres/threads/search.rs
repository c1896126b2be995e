//! Searching and counting the threads that are not deleted.

use uuid::Uuid;

use super::{
    super::{
        Store,
        columns::{Json, Params},
        connection::{self, prepare},
    },
    rows::thread_of,
};
use crate::{
    checkpoint::Error,
    tree::{
        Thread,
        search::{ThreadFilter, ThreadPage},
    },
};

/// Living threads that pass the filter, as the table `y`.
macro_rules! found {
    ($rest:expr) => {
        concat!(
            "
WITH x AS (
  SELECT t.thread_id, t.tree_id, t.metadata, t.config, t.created_at, GREATEST(t.updated_at, b.updated_at) AS updated_at,
         b.updated_at AS state_updated_at, b.branch_id, b.head_checkpoint_id, b.head_depth, b.writer_epoch, b.outcome, b.error,
         EXISTS (SELECT 1 FROM runs r WHERE r.tree_id = t.tree_id AND r.thread_id = t.thread_id AND r.status IN ('pending', 'running')
                    AND COALESCE(r.branch_id, t.active_branch_id) = t.active_branch_id) AS busy
    FROM threads t JOIN branches b ON b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id
   WHERE t.deleted_at IS NULL
     AND ($1::uuid[] IS NULL OR t.thread_id = ANY($1))
     AND ($2::jsonb IS NULL OR t.metadata @> $2)
     AND ($4::text IS NULL OR EXISTS (SELECT 1 FROM trees o WHERE o.tree_id = t.tree_id AND o.owner = $4)
          OR EXISTS (SELECT 1 FROM tree_members m WHERE m.tree_id = t.tree_id AND m.principal = $4))
     AND ($5 <> 'roots' OR t.parent_thread_id IS NULL)
     AND ($5 <> 'latest-fork' OR NOT EXISTS (
       SELECT 1 FROM threads o JOIN branches ob ON ob.tree_id = o.tree_id AND ob.branch_id = o.active_branch_id
        WHERE o.tree_id = t.tree_id AND o.deleted_at IS NULL AND o.thread_id <> t.thread_id
          AND (GREATEST(o.updated_at, ob.updated_at), o.thread_id) > (GREATEST(t.updated_at, b.updated_at), t.thread_id)))),
y AS (SELECT x.*, CASE WHEN x.busy THEN 'busy' ELSE x.outcome END AS status FROM x) ",
            $rest
        )
    };
}

macro_rules! page {
    ($order:literal) => {
        found!(concat!(
            "
SELECT * FROM y WHERE ($3::text IS NULL OR y.status = $3)
 ORDER BY CASE WHEN $6 = 'status' THEN y.status END COLLATE \"C\" ", $order, ",
  CASE $6 WHEN 'created_at' THEN y.created_at WHEN 'updated_at' THEN y.updated_at WHEN 'state_updated_at' THEN y.state_updated_at END ",
            $order, ", y.thread_id ", $order, " LIMIT $7 OFFSET $8"
        ))
    };
}

const ASCENDING: &str = page!("ASC");
const DESCENDING: &str = page!("DESC");
const COUNT: &str = found!("SELECT count(*) FROM y WHERE ($3::text IS NULL OR y.status = $3)");

/// The values of a filter as they are bound.
struct Bound<'a> {
    ids: Option<Vec<Uuid>>,
    metadata: Option<Json<'a>>,
    status: Option<&'static str>,
    principal: Option<&'a str>,
    mode: &'static str,
}

impl<'a> Bound<'a> {
    fn of(filter: &'a ThreadFilter) -> Self {
        let ids = filter.ids.as_ref();
        Self {
            ids: ids.map(|ids| ids.iter().map(|id| id.0).collect()),
            metadata: (!filter.metadata.is_empty()).then(|| Json::of_map(&filter.metadata)),
            status: filter.status.map(|status| status.as_str()),
            principal: filter.principal.as_deref(),
            mode: filter.mode.as_str(),
        }
    }
}

/// A page of living threads.
pub(super) async fn search(store: &Store, page: &ThreadPage) -> Result<Vec<Thread>, Error> {
    let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
    let offset = i64::try_from(page.offset).unwrap_or(i64::MAX);
    let rows = connection::retry(&store.pools.reads, |client| async move {
        let text = if page.ascending {
            ASCENDING
        } else {
            DESCENDING
        };
        let statement = prepare(&client, text).await?;
        let bound = Bound::of(&page.filter);
        let sort_by = page.sort_by.as_str();
        let params: Params<'_, 8> = [
            &bound.ids,
            &bound.metadata,
            &bound.status,
            &bound.principal,
            &bound.mode,
            &sort_by,
            &limit,
            &offset,
        ];
        Ok(client.query(&statement, &params).await?)
    })
    .await?;
    rows.iter().map(thread_of).collect()
}

/// How many living threads there are.
pub(super) async fn count(store: &Store, filter: &ThreadFilter) -> Result<u64, Error> {
    let count: i64 = connection::retry(&store.pools.reads, |client| async move {
        let statement = prepare(&client, COUNT).await?;
        let bound = Bound::of(filter);
        let params: Params<'_, 5> = [
            &bound.ids,
            &bound.metadata,
            &bound.status,
            &bound.principal,
            &bound.mode,
        ];
        Ok(client.query_one(&statement, &params).await?.try_get(0)?)
    })
    .await?;
    Ok(u64::try_from(count).unwrap_or(0))
}
