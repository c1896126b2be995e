//! Searching and counting the threads that are not deleted.

use const_format::formatcp;
use uuid::Uuid;

use super::{
    super::{
        columns::{Json, Params, Time},
        connection::{Object, Result, prepare},
    },
    narrow::narrowed,
    rows::listed_of,
};
use crate::{
    time::Timestamp,
    tree::search::{Listed, ROOM, SortBy, ThreadFilter, ThreadPage},
};

/// The thread `t` with its active branch `b`.
const WITH_BRANCH: &str = "CROSS JOIN LATERAL (
    SELECT b.branch_id, b.head_checkpoint_id, b.head_depth, b.writer_epoch, b.outcome, b.error, b.updated_at,
           EXISTS (SELECT 1 FROM runs r WHERE r.tree_id = t.tree_id AND r.thread_id = t.thread_id AND r.status IN ('pending', 'running')
                      AND COALESCE(r.branch_id, t.active_branch_id) = t.active_branch_id) AS busy
      FROM branches b WHERE b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id LIMIT 1) b";

/// The columns of a page, of a thread `t` and its branch `b`.
const THREAD_COLUMNS: &str = "t.thread_id, t.tree_id, t.metadata, t.config, t.created_at, GREATEST(t.updated_at, b.updated_at) AS updated_at,
          b.updated_at AS state_updated_at, b.branch_id, b.head_checkpoint_id, b.head_depth, b.writer_epoch, b.outcome, b.error, b.busy";

/// The columns of a page without the JSON of a thread.
const ROW: &str = "thread_id, tree_id, created_at, updated_at, state_updated_at, branch_id, head_checkpoint_id, head_depth, writer_epoch, outcome, busy";

/// What is shown of the metadata and of the config of a thread `p`: what is not requested is not read.
const METADATA: &str = "CASE WHEN $11::boolean THEN p.metadata::text
       WHEN $12::boolean THEN jsonb_build_object('graph_id', p.metadata -> 'graph_id')::text ELSE '{}' END";
const CONFIG: &str = "CASE WHEN $13::boolean THEN p.config::text ELSE '{}' END";

/// A page in its order, with metadata and configs of the first threads of it, as long as all of these have few bytes:
/// what is not sent takes no memory.
macro_rules! bounded {
    ($page:expr, $by:expr) => {
        formatcp!(
            "SELECT {ROW}, CASE WHEN $14::boolean THEN error END AS error, bytes, CASE WHEN sum(bytes) OVER w <= {ROOM} THEN json_metadata END AS metadata,
       CASE WHEN sum(bytes) OVER w <= {ROOM} THEN json_config END AS config
  FROM (SELECT {ROW}, error, json_metadata, json_config, octet_length(json_metadata) + octet_length(json_config) AS bytes
          FROM ({page}) p CROSS JOIN LATERAL (SELECT {METADATA} AS json_metadata, {CONFIG} AS json_config OFFSET 0) j) y
WINDOW w AS (ORDER BY {by} ROWS UNBOUNDED PRECEDING)
 ORDER BY {by}",
            page = $page,
            by = $by
        )
    };
}

/// Threads with a run that is executed: the times of their branches move on while their own stay.
const ACTIVE: &str = "act AS MATERIALIZED (
  SELECT DISTINCT t.thread_id, t.tree_id, GREATEST(t.updated_at, b.updated_at) AS updated_at FROM runs r
   CROSS JOIN LATERAL (SELECT t.* FROM threads t WHERE t.thread_id = r.thread_id AND t.deleted_at IS NULL LIMIT 1) t
   CROSS JOIN LATERAL (SELECT b.updated_at FROM branches b WHERE b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id LIMIT 1) b
   WHERE r.status = 'running')";

/// What a thread `t` with its branch `b` must pass. The newest of a family of forks is the first
/// one by the index of the tree, or one that has a running run.
const PASSES: &str = "t.deleted_at IS NULL AND ($2::jsonb IS NULL OR t.metadata @> $2)
     AND ($5 <> 'roots' OR t.parent_thread_id IS NULL)
     AND ($3::text IS NULL OR CASE WHEN b.busy THEN 'busy' ELSE b.outcome END = $3)
     AND ($5 <> 'latest-fork' OR t.thread_id = (SELECT n.thread_id FROM (
        (SELECT o.thread_id, o.updated_at FROM threads o WHERE o.tree_id = t.tree_id AND CASE WHEN o.deleted_at IS NULL THEN true END
          ORDER BY o.updated_at DESC, o.thread_id DESC LIMIT 1)
        UNION ALL
        SELECT a.thread_id, a.updated_at FROM act a WHERE a.tree_id = t.tree_id) n ORDER BY n.updated_at DESC, n.thread_id DESC LIMIT 1))";

/// Every text has all parameters, whether it needs them or not.
const PARAMETERS: &str = "($1::uuid[] IS NULL OR $4::text IS NULL OR $6::text IS NULL OR $9::timestamptz IS NULL OR $10::uuid IS NULL OR true)";

/// Threads that were shared with the principal.
pub(super) const SHARED: &str = "tree_members m CROSS JOIN LATERAL (SELECT t.* FROM threads t WHERE t.tree_id = m.tree_id OFFSET 0) t";

/// By the last change, in the order of an index, behind `($9, $10)`.
macro_rules! recent {
    ($own:literal, $shared:expr, $may_see:literal, $order:literal, $behind:literal) => {
        bounded!(formatcp!(
            "WITH {ACTIVE}
SELECT * FROM (
  (SELECT {THREAD_COLUMNS} FROM threads t {WITH_BRANCH}
    WHERE (t.updated_at, t.thread_id) {behind} ($9, $10) AND t.thread_id NOT IN (SELECT a.thread_id FROM act a) AND {own} {PASSES}
    ORDER BY t.updated_at {order}, t.thread_id {order} LIMIT $7::bigint + $8::bigint) {shared}
  UNION ALL
  (SELECT {THREAD_COLUMNS} FROM act a CROSS JOIN LATERAL (SELECT t.* FROM threads t WHERE t.thread_id = a.thread_id LIMIT 1) t {WITH_BRANCH}
    WHERE (a.updated_at, a.thread_id) {behind} ($9, $10) AND {may_see} {PASSES})) y
 WHERE {PARAMETERS}
 ORDER BY y.updated_at {order}, y.thread_id {order} LIMIT $7 OFFSET $8",
            behind = $behind,
            own = $own,
            order = $order,
            shared = $shared,
            may_see = $may_see
        ), formatcp!("y.updated_at {order}, y.thread_id {order}", order = $order))
    };
    (all $order:literal, $behind:literal) => {
        recent!("", "", "", $order, $behind)
    };
    (of $order:literal, $behind:literal) => {
        recent!(
            "t.owner = $4 AND",
            formatcp!(
                "
  UNION ALL
  (SELECT {THREAD_COLUMNS} FROM {SHARED} {WITH_BRANCH}
    WHERE m.principal = $4 AND t.owner <> $4 AND (t.updated_at, t.thread_id) {behind} ($9, $10)
      AND t.thread_id NOT IN (SELECT a.thread_id FROM act a) AND {PASSES}
    ORDER BY t.updated_at {order}, t.thread_id {order} LIMIT $7::bigint + $8::bigint)",
                behind = $behind,
                order = $order
            ),
            "(t.owner = $4 OR EXISTS (SELECT 1 FROM tree_members m WHERE m.tree_id = t.tree_id AND m.principal = $4)) AND",
            $order,
            $behind
        )
    };
}

const RECENT_LAST: &str = recent!(all "ASC", ">");
const RECENT_FIRST: &str = recent!(all "DESC", "<");
const RECENT_LAST_OF: &str = recent!(of "ASC", ">");
const RECENT_FIRST_OF: &str = recent!(of "DESC", "<");

/// By what never changes, in the order of an index, behind `$9` and `$10`.
macro_rules! in_order {
    ($behind:literal, $by:literal, $page_by:literal) => {
        bounded!(
            formatcp!(
                "WITH {ACTIVE}
SELECT {THREAD_COLUMNS} FROM threads t {WITH_BRANCH}
 WHERE {behind} AND {PASSES} AND {PARAMETERS}
 ORDER BY {by} LIMIT $7 OFFSET $8",
                behind = $behind,
                by = $by
            ),
            $page_by
        )
    };
}

const CREATED_LAST: &str = in_order!(
    "(t.created_at, t.thread_id) > ($9, $10)",
    "t.created_at, t.thread_id",
    "y.created_at, y.thread_id"
);
const CREATED_FIRST: &str = in_order!(
    "(t.created_at, t.thread_id) < ($9, $10)",
    "t.created_at DESC, t.thread_id DESC",
    "y.created_at DESC, y.thread_id DESC"
);
const BY_ID: &str = in_order!("t.thread_id >= $10", "t.thread_id", "y.thread_id");
const BY_ID_BACKWARDS: &str =
    in_order!("t.thread_id <= $10", "t.thread_id DESC", "y.thread_id DESC");

/// The same of a principal: its own threads and those that were shared with it. The indexes of owners are alone
/// in having the order.
macro_rules! in_order_of {
    ($behind:literal, $by:literal, $all_by:literal) => {
        bounded!(formatcp!(
            "WITH {ACTIVE}
SELECT * FROM (
  (SELECT {THREAD_COLUMNS} FROM threads t {WITH_BRANCH}
    WHERE t.owner = $4 AND {behind} AND {PASSES} ORDER BY {by} LIMIT $7::bigint + $8::bigint)
  UNION ALL
  (SELECT {THREAD_COLUMNS} FROM {SHARED} {WITH_BRANCH}
    WHERE m.principal = $4 AND t.owner <> $4 AND {behind} AND {PASSES} ORDER BY {by} LIMIT $7::bigint + $8::bigint)) y
 WHERE {PARAMETERS}
 ORDER BY {all_by} LIMIT $7 OFFSET $8",
            behind = $behind,
            by = $by,
            all_by = $all_by
        ), $all_by)
    };
}

const CREATED_LAST_OF: &str = in_order_of!(
    "(t.created_at, t.thread_id) > ($9, $10)",
    "t.created_at NULLS FIRST, t.thread_id NULLS FIRST",
    "y.created_at, y.thread_id"
);
const CREATED_FIRST_OF: &str = in_order_of!(
    "(t.created_at, t.thread_id) < ($9, $10)",
    "t.created_at DESC NULLS LAST, t.thread_id DESC NULLS LAST",
    "y.created_at DESC, y.thread_id DESC"
);
const BY_ID_OF: &str = in_order_of!(
    "t.thread_id >= $10",
    "t.thread_id NULLS FIRST",
    "y.thread_id"
);
const BY_ID_BACKWARDS_OF: &str = in_order_of!(
    "t.thread_id <= $10",
    "t.thread_id DESC NULLS LAST",
    "y.thread_id DESC"
);

/// Threads with these ids, those of a principal, or all of them.
macro_rules! source {
    (ids) => {
        "(SELECT t.* FROM (SELECT DISTINCT unnest($1::uuid[]) AS id) i CROSS JOIN LATERAL (SELECT t.* FROM threads t WHERE t.thread_id = i.id LIMIT 1) t
    WHERE $4::text IS NULL OR t.owner = $4 OR EXISTS (SELECT 1 FROM tree_members m WHERE m.tree_id = t.tree_id AND m.principal = $4)) t"
    };
    (of) => {
        formatcp!(
            "(SELECT t.* FROM threads t WHERE t.owner = $4 AND t.deleted_at IS NULL
    UNION ALL SELECT t.* FROM {SHARED} WHERE m.principal = $4 AND t.owner <> $4) t"
        )
    };
    (all) => {
        "(SELECT t.* FROM threads t WHERE t.deleted_at IS NULL OFFSET 0) t"
    };
}

/// In any order: all are read.
macro_rules! sorted {
    (by $order:literal) => {
        formatcp!(
            "CASE WHEN $6 = 'status' THEN CASE WHEN y.busy THEN 'busy' ELSE y.outcome END END COLLATE \"C\" {order},
  CASE $6 WHEN 'created_at' THEN y.created_at WHEN 'updated_at' THEN y.updated_at WHEN 'state_updated_at' THEN y.state_updated_at END {order},
      y.thread_id {order}",
            order = $order
        )
    };
    ($source:ident $order:literal) => {
        bounded!(formatcp!(
            "WITH {ACTIVE},
y AS (SELECT {THREAD_COLUMNS} FROM {source} {WITH_BRANCH} WHERE {PASSES})
SELECT * FROM y WHERE {PARAMETERS}
 ORDER BY {by} LIMIT $7 OFFSET $8",
            source = source!($source),
            by = sorted!(by $order)
        ), sorted!(by $order))
    };
}

const SORTED: [&str; 6] = [
    sorted!(all "ASC"),
    sorted!(all "DESC"),
    sorted!(of "ASC"),
    sorted!(of "DESC"),
    sorted!(ids "ASC"),
    sorted!(ids "DESC"),
];

macro_rules! count {
    ($source:ident) => {
        formatcp!(
            "WITH {ACTIVE}
SELECT count(*) FROM {source} {WITH_BRANCH} WHERE {PASSES} AND ($1::uuid[] IS NULL OR $4::text IS NULL OR true)",
            source = source!($source)
        )
    };
}

const COUNT: [&str; 3] = [count!(all), count!(of), count!(ids)];

/// The place of a filter's threads in [`SORTED`], by twos, and in [`COUNT`].
fn source(filter: &ThreadFilter) -> usize {
    match (&filter.ids, &filter.principal) {
        (Some(_), _) => 2,
        (None, Some(_)) => 1,
        (None, None) => 0,
    }
}

fn text(page: &ThreadPage) -> &'static str {
    let is_of = page.filter.principal.is_some();
    if !page.is_in_order() {
        return SORTED[2 * source(&page.filter) + usize::from(!page.ascending)];
    }
    match (page.sort_by, page.ascending, is_of) {
        (SortBy::ThreadId, true, true) => BY_ID_OF,
        (SortBy::ThreadId, true, false) => BY_ID,
        (SortBy::ThreadId, false, true) => BY_ID_BACKWARDS_OF,
        (SortBy::ThreadId, false, false) => BY_ID_BACKWARDS,
        (SortBy::CreatedAt, true, true) => CREATED_LAST_OF,
        (SortBy::CreatedAt, true, false) => CREATED_LAST,
        (SortBy::CreatedAt, false, true) => CREATED_FIRST_OF,
        (SortBy::CreatedAt, false, false) => CREATED_FIRST,
        (_, true, true) => RECENT_LAST_OF,
        (_, true, false) => RECENT_LAST,
        (_, false, true) => RECENT_FIRST_OF,
        (_, false, false) => RECENT_FIRST,
    }
}

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
pub(in super::super) async fn search(db: &Object, page: &ThreadPage) -> Result<Vec<Listed>> {
    let mut narrow = page.clone();
    if page.after.is_none()
        && let Some(filter) = narrowed(db, &page.filter).await?
    {
        narrow.filter = filter;
    }
    let page = &narrow;
    // Their sum must fit too.
    let bounded =
        |number: usize| i64::try_from(number).map_or(i64::MAX / 2, |n| n.min(i64::MAX / 2));
    let (limit, offset) = (bounded(page.limit), bounded(page.offset));
    let statement = prepare(db, text(page)).await?;
    let bound = Bound::of(&page.filter);
    let sort_by = page.sort_by.as_str();
    let (at, id) = match &page.after {
        Some(_) if page.sort_by == SortBy::ThreadId => match page.first_id() {
            Some(id) => (EARLIEST, id),
            None => return Ok(vec![]),
        },
        Some(after) => (after.at, after.id.0),
        // Before the first of any order.
        None if page.ascending => (EARLIEST, Uuid::nil()),
        None => (LATEST, Uuid::max()),
    };
    let at = Time(at);
    let columns = &page.columns;
    let params: Params<'_, 14> = [
        &bound.ids,
        &bound.metadata,
        &bound.status,
        &bound.principal,
        &bound.mode,
        &sort_by,
        &limit,
        &offset,
        &at,
        &id,
        &columns.metadata,
        &columns.graph,
        &columns.config,
        &columns.error,
    ];
    let rows = db.query(&statement, &params).await?;
    Ok(rows.iter().map(listed_of).collect::<Result<_, _>>()?)
}

/// How many living threads there are.
pub(in super::super) async fn count(db: &Object, filter: &ThreadFilter) -> Result<u64> {
    let narrow = narrowed(db, filter).await?;
    let filter = narrow.as_ref().unwrap_or(filter);
    let statement = prepare(db, COUNT[source(filter)]).await?;
    let bound = Bound::of(filter);
    let params: Params<'_, 5> = [
        &bound.ids,
        &bound.metadata,
        &bound.status,
        &bound.principal,
        &bound.mode,
    ];
    let row = db.query_one(&statement, &params).await?;
    let count: i64 = row.try_get(0)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Times beyond any that is stored, and within what Postgres has.
const EARLIEST: Timestamp = Timestamp(0);
const LATEST: Timestamp = Timestamp(250_000_000_000_000_000);

statements!(
    RECENT_LAST,
    RECENT_FIRST,
    RECENT_LAST_OF,
    RECENT_FIRST_OF,
    CREATED_LAST,
    CREATED_FIRST,
    CREATED_LAST_OF,
    CREATED_FIRST_OF,
    BY_ID,
    BY_ID_BACKWARDS,
    BY_ID_OF,
    BY_ID_BACKWARDS_OF,
    SORTED,
    COUNT
);
