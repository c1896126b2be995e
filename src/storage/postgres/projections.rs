//! Tables derived from events.

mod columns;

use std::collections::BTreeMap;

use tokio_postgres::Row;
use uuid::Uuid;

use self::columns::Columns;
use super::{
    Store,
    columns::{Params, Time, column, unname},
    connection::{self, Object, Result, prepare},
};
use crate::{
    checkpoint::Error,
    id::{ThreadId, TreeId},
    tree::projection::{HeadRow, Progress, Projection, ProjectionStep},
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

/// Moves offsets from where steps begin to where they end, of each thread that is where the step begins, and writes
/// the rows of those threads alone. $1 to $4 have the steps, by thread: thread, tree, begin, end.
const STEP: &str = "
WITH s AS MATERIALIZED (
  SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[]) s(thread, tree, begins, ends)),
i AS (
  INSERT INTO projection_offsets AS o (projection, thread_id, tree_id, last_event_number)
  SELECT 'thread_heads', s.thread, s.tree, s.ends FROM s
   WHERE s.begins = 0 AND EXISTS (SELECT 1 FROM threads t WHERE t.thread_id = s.thread AND t.tree_id = s.tree AND t.deleted_at IS NULL)
  ON CONFLICT (thread_id, projection) DO UPDATE SET last_event_number = EXCLUDED.last_event_number
   WHERE o.last_event_number = 0 RETURNING thread_id),
u AS (
  UPDATE projection_offsets o SET last_event_number = s.ends FROM s
   WHERE o.projection = 'thread_heads' AND o.thread_id = s.thread AND o.last_event_number = s.begins AND s.begins > 0 RETURNING o.thread_id),
o AS MATERIALIZED (
  SELECT array_agg(x.thread_id) AS threads FROM (SELECT thread_id FROM i UNION ALL SELECT thread_id FROM u) x)
INSERT INTO thread_heads (tree_id, thread_id, event_number, messages, branches, runs, last_message_id, last_role, last_preview, updated_at)
SELECT x.* FROM o, unnest($2::uuid[], $1::uuid[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[], $10::text[], $11::text[],
                          $12::timestamptz[])
       x(tree, thread, number, messages, branches, runs, message, role, preview, at) WHERE x.thread = ANY (o.threads)
ON CONFLICT (tree_id, thread_id) DO UPDATE SET event_number = EXCLUDED.event_number, messages = EXCLUDED.messages,
   branches = EXCLUDED.branches, runs = EXCLUDED.runs, last_message_id = EXCLUDED.last_message_id, last_role = EXCLUDED.last_role,
   last_preview = EXCLUDED.last_preview, updated_at = EXCLUDED.updated_at";

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

/// Those of trees that nobody changes now go first, together; the others follow as each tree's turn comes. So do all of
/// them where somebody in another process changes one: it holds up nobody of the others.
pub(super) async fn apply(store: &Store, steps: &[ProjectionStep]) -> Result<(), Error> {
    let mut by_tree: BTreeMap<TreeId, Vec<&ProjectionStep>> = BTreeMap::new();
    for step in steps {
        by_tree.entry(step.tree).or_default().push(step);
    }
    let turns: BTreeMap<TreeId, _> = by_tree
        .keys()
        .filter_map(|tree| Some((*tree, store.hot.try_derived(*tree)?)))
        .collect();
    let free = by_tree.iter().filter(|(tree, _)| turns.contains_key(tree));
    let free: Vec<_> = free.flat_map(|(_, steps)| steps).copied().collect();
    let reads = &store.pools.reads;
    if !free.is_empty() && connection::once(reads, |db| write(db, &free)).await.is_ok() {
        by_tree.retain(|tree, _| !turns.contains_key(tree));
    }
    drop(turns);
    let mut result = Ok(());
    for (tree, steps) in by_tree {
        let written = async {
            let _turn = store.hot.derived(tree).await?;
            connection::retry(reads, |db| write(db, &steps)).await
        };
        // The others need not wait for one tree whose turn does not come.
        if let Err(error) = written.await {
            result = Err(error);
        }
    }
    result
}

/// In one round trip, and without waiting for the disk: a crash loses rows together with their
/// offsets, and they are derived once more. All threads have one statement.
async fn write(db: Object, steps: &[&ProjectionStep]) -> Result<()> {
    // Everybody takes rows in one order.
    let mut steps = steps.to_vec();
    steps.sort_by_key(|step| step.thread);
    let trees = prepare(&db, TREES).await?;
    let step = prepare(&db, STEP).await?;
    let columns = Columns::of(steps.iter().copied());
    let params = columns.params();
    let mut ids: Vec<Uuid> = steps.iter().map(|step| step.tree.0).collect();
    ids.dedup();
    let by_tree: Params<'_, 1> = [&ids];
    let (begun, locked, written, ended) = tokio::join!(
        biased;
        db.batch_execute("BEGIN; SET LOCAL synchronous_commit = off"),
        db.query(&trees, &by_tree),
        db.execute(&step, &params),
        db.batch_execute("COMMIT"),
    );
    begun?;
    // After a failure the rest only reports that the transaction is over, and COMMIT rolls back.
    locked?;
    written?;
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
const DELETE_OF_THREAD: [&str; Projection::ALL.len()] =
    ["DELETE FROM thread_heads WHERE thread_id = $1
        AND tree_id = (SELECT t.tree_id FROM threads t WHERE t.thread_id = $1)"];

const DELETE_ALL: [&str; Projection::ALL.len()] = ["DELETE FROM thread_heads"];

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

statements!(
    BEHIND,
    PROGRESS,
    TREES,
    STEP,
    LOCK,
    DELETE_OFFSET,
    DELETE_OFFSETS,
    DELETE_OF_THREAD,
    DELETE_ALL
);
