//! Tables derived from events.

use futures::future::join_all;
use tokio_postgres::{Client, Row, Statement};
use uuid::Uuid;

use super::{
    columns::{Params, Time, column, name, unname},
    connection::{Object, Result, prepare},
};
use crate::{
    checkpoint::Error,
    id::{ThreadId, TreeId},
    tree::projection::{HeadRow, Progress, ProjectedRows, Projection, ProjectionStep},
};

const BEHIND: &str = "
SELECT t.thread_id, t.deleted_at IS NULL AND t.last_event_number > 0
       AND (SELECT count(*) FROM projection_offsets o WHERE o.thread_id = t.thread_id
             AND o.last_event_number >= t.last_event_number) < $3 AS behind
  FROM threads t WHERE t.thread_id > COALESCE($1, '00000000-0000-0000-0000-000000000000'::uuid) ORDER BY t.thread_id LIMIT $2";

/// One statement, so that an offset and the row it belongs to are of one moment.
const PROGRESS: &str = "
SELECT t.thread_id, t.tree_id, t.last_event_number AS last, o.projection, o.last_event_number AS number,
       h.event_number, h.messages, h.branches, h.runs, h.last_message_id, h.last_role, h.last_preview, h.updated_at
  FROM threads t LEFT JOIN projection_offsets o ON o.thread_id = t.thread_id
  LEFT JOIN thread_heads h ON h.tree_id = t.tree_id AND h.thread_id = t.thread_id
 WHERE t.thread_id = ANY($1) AND t.deleted_at IS NULL ORDER BY t.thread_id";

/// Keeps deletions of these trees out until the end: what is deleted must not come back.
const TREES: &str = "
SELECT tree_id FROM trees WHERE tree_id = ANY($1) ORDER BY tree_id FOR SHARE";

/// Moves the offset of table $1 and thread $2 from $4 to $5, if that is what it is.
macro_rules! step {
    ($rows:literal) => {
        concat!(
            "
WITH i AS (
  INSERT INTO projection_offsets AS o (projection, thread_id, tree_id, last_event_number)
  SELECT $1, t.thread_id, t.tree_id, $5 FROM threads t
   WHERE t.thread_id = $2 AND t.tree_id = $3 AND t.deleted_at IS NULL AND $4::bigint = 0
  ON CONFLICT (thread_id, projection) DO UPDATE SET last_event_number = EXCLUDED.last_event_number
   WHERE o.last_event_number = 0 RETURNING 1),
u AS (
  UPDATE projection_offsets SET last_event_number = $5
   WHERE projection = $1 AND thread_id = $2 AND last_event_number = $4 AND $4 > 0 RETURNING 1),
o AS (SELECT 1 FROM i UNION ALL SELECT 1 FROM u)",
            $rows
        )
    };
}

const TIMELINE: &str = step!(
    "
INSERT INTO thread_timeline (tree_id, thread_id, event_number, kind)
SELECT $3, $2, x.* FROM o, unnest($6::bigint[], $7::smallint[]) x
ON CONFLICT (tree_id, thread_id, event_number) DO UPDATE SET kind = EXCLUDED.kind"
);

const HEAD: &str = step!(
    "
INSERT INTO thread_heads (tree_id, thread_id, event_number, messages, branches, runs, last_message_id, last_role, last_preview, updated_at)
SELECT $3, $2, $6::bigint, $7::bigint, $8::bigint, $9::bigint, $10::text, $11::text, $12::text, $13::timestamptz FROM o
ON CONFLICT (tree_id, thread_id) DO UPDATE SET event_number = EXCLUDED.event_number, messages = EXCLUDED.messages,
   branches = EXCLUDED.branches, runs = EXCLUDED.runs, last_message_id = EXCLUDED.last_message_id, last_role = EXCLUDED.last_role,
   last_preview = EXCLUDED.last_preview, updated_at = EXCLUDED.updated_at"
);

const SEARCH: &str = step!(
    "
INSERT INTO search (tree_id, thread_id, event_number, text)
SELECT $3, $2, x.* FROM o, unnest($6::bigint[], $7::text[]) x
ON CONFLICT (tree_id, thread_id, event_number) DO UPDATE SET text = EXCLUDED.text"
);

/// Keeps steps out until the end, also those that begin at 0 and have no row to wait for.
const LOCK: &str = "LOCK TABLE projection_offsets IN SHARE ROW EXCLUSIVE MODE";

const DELETE_OFFSET: &str =
    "DELETE FROM projection_offsets WHERE projection = $1 AND thread_id = $2";

const DELETE_OFFSETS: &str = "DELETE FROM projection_offsets WHERE projection = $1";

pub(super) async fn behind(
    db: &Object,
    after: Option<ThreadId>,
    limit: usize,
) -> Result<(Vec<ThreadId>, Option<ThreadId>)> {
    let statement = prepare(db, BEHIND).await?;
    let after = after.map(|thread| thread.0);
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let tables = Projection::ALL.len() as i64;
    let rows = db.query(&statement, &[&after, &most, &tables]).await?;
    let mut behind = Vec::new();
    for row in &rows {
        if column(row, "behind")? {
            behind.push(ThreadId(column(row, "thread_id")?));
        }
    }
    let last = match rows.last() {
        Some(row) if rows.len() == limit => Some(ThreadId(column(row, "thread_id")?)),
        _ => None,
    };
    Ok((behind, last))
}

pub(super) async fn progress(db: &Object, threads: &[ThreadId]) -> Result<Vec<Progress>> {
    let threads: Vec<Uuid> = threads.iter().map(|thread| thread.0).collect();
    let statement = prepare(db, PROGRESS).await?;
    let params: Params<'_, 1> = [&threads];
    Ok(gather(&db.query(&statement, &params).await?)?)
}

/// In one round trip, and without waiting for the disk: a crash loses rows together with their
/// offsets, and they are derived once more.
pub(super) async fn apply(db: &Object, steps: &[ProjectionStep]) -> Result<()> {
    // Everybody takes rows in one order.
    let mut steps: Vec<&ProjectionStep> = steps.iter().collect();
    steps.sort_by_key(|step| (step.thread, step.rows.projection()));
    let trees = prepare(db, TREES).await?;
    let mut statements = Vec::with_capacity(steps.len());
    for step in &steps {
        let text = match step.rows {
            ProjectedRows::Timeline(_) => TIMELINE,
            ProjectedRows::Head(_) => HEAD,
            ProjectedRows::Search(_) => SEARCH,
        };
        statements.push(prepare(db, text).await?);
    }
    let mut ids: Vec<Uuid> = steps.iter().map(|step| step.tree.0).collect();
    ids.dedup();
    let by_tree: Params<'_, 1> = [&ids];
    let requests = steps.iter().zip(&statements);
    let requests = requests.map(|(step, statement)| send(db, statement, step));
    let (begun, locked, written, ended) = tokio::join!(
        biased;
        db.batch_execute("BEGIN; SET LOCAL synchronous_commit = off"),
        db.query(&trees, &by_tree),
        join_all(requests),
        db.batch_execute("COMMIT"),
    );
    begun?;
    // After a failure the rest only reports that the transaction is over, and COMMIT rolls back.
    locked?;
    for one in written {
        one?;
    }
    Ok(ended?)
}

pub(super) async fn reset(
    db: &mut Object,
    projection: Option<Projection>,
    thread: Option<ThreadId>,
) -> Result<()> {
    let (offset, rows) = match thread {
        Some(_) => (DELETE_OFFSET, DELETE_OF_THREAD),
        None => (DELETE_OFFSETS, DELETE_ALL),
    };
    let offset = prepare(db, offset).await?;
    let mut tables = Vec::new();
    for one in Projection::ALL {
        if projection.is_none_or(|only| only == one) {
            tables.push((one, prepare(db, rows[one.index()]).await?));
        }
    }
    let transaction = db.transaction().await?;
    transaction.batch_execute(LOCK).await?;
    for (one, statement) in &tables {
        let name = one.as_str();
        if let Some(thread) = &thread {
            transaction.execute(&offset, &[&name, &thread.0]).await?;
            transaction.execute(statement, &[&thread.0]).await?;
        } else {
            transaction.execute(&offset, &[&name]).await?;
            transaction.execute(statement, &[]).await?;
        }
    }
    Ok(transaction.commit().await?)
}

/// In the order of [`Projection::ALL`], as the next. The keys of the tables begin with the tree.
const DELETE_OF_THREAD: [&str; Projection::ALL.len()] = [
    "DELETE FROM search WHERE thread_id = $1
        AND tree_id = (SELECT t.tree_id FROM threads t WHERE t.thread_id = $1)",
    "DELETE FROM thread_heads WHERE thread_id = $1
        AND tree_id = (SELECT t.tree_id FROM threads t WHERE t.thread_id = $1)",
    "DELETE FROM thread_timeline WHERE thread_id = $1
        AND tree_id = (SELECT t.tree_id FROM threads t WHERE t.thread_id = $1)",
];

const DELETE_ALL: [&str; Projection::ALL.len()] = [
    "DELETE FROM search",
    "DELETE FROM thread_heads",
    "DELETE FROM thread_timeline",
];

fn gather(rows: &[Row]) -> Result<Vec<Progress>, Error> {
    let mut found: Vec<Progress> = Vec::new();
    for row in rows {
        let thread = ThreadId(column(row, "thread_id")?);
        if found.last().is_none_or(|last| last.thread != thread) {
            found.push(Progress {
                tree: TreeId(column(row, "tree_id")?),
                thread,
                last: column(row, "last")?,
                offsets: [0; Projection::ALL.len()],
                head: head(row)?,
            });
        }
        let name: Option<&str> = column(row, "projection")?;
        if let (Some(progress), Some(name)) = (found.last_mut(), name) {
            let projection = Projection::named(name)
                .ok_or_else(|| Error::Corrupt(format!("`{name}` is not a projection")))?;
            progress.offsets[projection.index()] = column(row, "number")?;
        }
    }
    Ok(found)
}

fn head(row: &Row) -> Result<Option<HeadRow>, Error> {
    let Some(number) = column(row, "event_number")? else {
        return Ok(None);
    };
    let text =
        |name: &str| -> Result<_, Error> { Ok(column::<Option<&str>>(row, name)?.map(unname)) };
    Ok(Some(HeadRow {
        number,
        messages: column(row, "messages")?,
        branches: column(row, "branches")?,
        runs: column(row, "runs")?,
        last_message_id: text("last_message_id")?,
        last_role: text("last_role")?,
        last_preview: text("last_preview")?,
        updated_at: column::<Time>(row, "updated_at")?.0.0,
    }))
}

/// Sends one step.
async fn send(client: &Client, statement: &Statement, step: &ProjectionStep) -> Result<u64> {
    let table = step.rows.projection().as_str();
    let own = |text: &Option<std::sync::Arc<str>>| text.as_deref().map(|t| name(t).into_owned());
    let key: Params<'_, 5> = [&table, &step.thread.0, &step.tree.0, &step.from, &step.to];
    macro_rules! execute {
        ($($value:expr),*) => {{
            let [a, b, c, d, e] = key;
            client.execute(statement, &[a, b, c, d, e, $($value),*]).await?
        }};
    }
    macro_rules! all {
        ($rows:expr, $row:ident => $value:expr) => {
            $rows.iter().map(|$row| $value).collect::<Vec<_>>()
        };
    }
    Ok(match &step.rows {
        ProjectedRows::Timeline(rows) => {
            execute!(&all!(rows, row => row.number), &all!(rows, row => row.code))
        }
        ProjectedRows::Head(head) => execute!(
            &head.number,
            &head.messages,
            &head.branches,
            &head.runs,
            &own(&head.last_message_id),
            &own(&head.last_role),
            &own(&head.last_preview),
            &Time(crate::time::Timestamp(head.updated_at))
        ),
        ProjectedRows::Search(rows) => execute!(
            &all!(rows, row => row.number),
            &all!(rows, row => name(&row.text).into_owned())
        ),
    })
}

statements!(
    BEHIND,
    PROGRESS,
    TREES,
    TIMELINE,
    HEAD,
    SEARCH,
    LOCK,
    DELETE_OFFSET,
    DELETE_OFFSETS,
    DELETE_OF_THREAD,
    DELETE_ALL
);
