//! Business events of threads: numbered without a gap and appended.

use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::{
    columns::{Json, JsonText, Params, Time, all, column, name, unname},
    connection::{Object, Result},
};
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
    tree::{
        event::{self, codes::event_code, row::LogRow},
        store::rows::{NewEvent, ThreadEvent},
    },
};

/// The end of a statement whose rows `x` (tree, thread, position of the last event from 1, kind, branch, checkpoint,
/// run, payload) are events of any number of threads. The row of a thread is the last one that a
/// transaction locks.
macro_rules! append_rows {
    () => {
        "
e AS (
  UPDATE threads t SET last_event_number = t.last_event_number + k.k, updated_at = clock_timestamp() FROM (SELECT thread_id, max(i) AS k FROM x GROUP BY thread_id) k
   WHERE t.thread_id = k.thread_id RETURNING t.thread_id, t.last_event_number - k.k AS before),
ev AS (
  INSERT INTO events (tree_id, thread_id, event_number, kind, branch_id, checkpoint_id, run_id, payload)
  SELECT x.tree_id, x.thread_id, e.before + x.i, x.kind, x.branch_id, x.checkpoint_id, x.run_id, x.payload FROM x JOIN e USING (thread_id))"
    };
}
pub(super) use append_rows;

/// Rows `x` about the ends of the runs `d` (tree, thread, seq, run, branch, base, head, status,
/// temporary): the checkpoint a run left, and its end. Its last message is marked with the
/// checkpoint it ended at.
macro_rules! ended {
    () => {
        concat!(
            "
m AS (
  UPDATE message_nodes m SET settled_checkpoint_id = k.head FROM (
      SELECT d.tree_id, d.run_id, d.head, (SELECT c.last_node_id FROM checkpoints c
        WHERE c.tree_id = d.tree_id AND c.checkpoint_ns = '' AND c.checkpoint_id = d.head) AS node_id FROM d OFFSET 0) k
   WHERE m.tree_id = k.tree_id AND m.node_id = k.node_id AND m.run_id = k.run_id),
x AS (
  SELECT k.tree_id, k.thread_id, sum(CASE WHEN k.has_left THEN 2 ELSE 1 END) OVER (PARTITION BY k.thread_id ORDER BY k.seq)::bigint AS i,
         CASE WHEN k.has_left THEN ",
            $crate::tree::event::codes::event_code!(CREATED_AND_FINISHED),
            " ELSE ",
            $crate::tree::event::codes::event_code!(RUN_FINISHED),
            " END AS kind, k.branch_id, k.head AS checkpoint_id, k.run_id,
         CASE WHEN k.status <> 'success' THEN jsonb_build_object('status', k.status) END AS payload
    FROM (SELECT d.*, d.head IS NOT NULL AND d.head IS DISTINCT FROM d.base AS has_left FROM d) k
   WHERE NOT k.temporary),"
        )
    };
}
pub(super) use ended;

/// Rows `x` about the starts of the runs `u` (tree, thread, seq, run, branch, temporary).
macro_rules! started {
    () => {
        concat!(
            "
x AS (
  SELECT tree_id, thread_id, row_number() OVER (PARTITION BY thread_id ORDER BY seq) AS i, ",
            $crate::tree::event::codes::event_code!(RUN_STARTED),
            " AS kind, branch_id, NULL::uuid AS checkpoint_id, run_id,
         NULL::jsonb AS payload FROM u WHERE NOT temporary),"
        )
    };
}
pub(super) use started;

const APPEND: &str = "
WITH e AS (UPDATE threads SET last_event_number = last_event_number + $3, updated_at = clock_timestamp() WHERE thread_id = $2 RETURNING last_event_number AS n),
ev AS (
  INSERT INTO events (tree_id, thread_id, event_number, created_at, kind, payload, branch_id, checkpoint_id, run_id, message_id)
  SELECT $1, $2, e.n - $3 + x.i, clock_timestamp(), x.kind, x.payload, x.branch, x.checkpoint, x.run, x.message
    FROM e, unnest($4::smallint[], $5::jsonb[], $6::uuid[], $7::uuid[], $8::uuid[], $9::text[], $10::bigint[])
         x(kind, payload, branch, checkpoint, run, message, i))
SELECT n FROM e";

/// Appends events to a thread's log in the caller's transaction and returns the number of the
/// last one. Lists show a thread as changed by whatever is logged of it. This is the last thing a
/// transaction locks.
pub(super) async fn append(
    client: &Client,
    tree: TreeId,
    thread: ThreadId,
    events: &[NewEvent],
) -> Result<i64> {
    let count = i64::try_from(events.len()).unwrap_or(i64::MAX);
    let rows = event::row::rows(events)?;
    let kinds: Vec<i16> = rows.iter().map(|row| row.code).collect();
    let payloads: Vec<_> = rows
        .iter()
        .map(|row| row.payload.as_ref().map(Json::of_map))
        .collect();
    let branches: Vec<_> = rows.iter().map(|row| row.branch.map(|id| id.0)).collect();
    let checkpoints: Vec<_> = rows
        .iter()
        .map(|row| row.checkpoint.map(|id| id.0))
        .collect();
    let runs: Vec<_> = rows.iter().map(|row| row.run.map(|id| id.0)).collect();
    let messages: Vec<_> = rows
        .iter()
        .map(|row| row.message_id.map(|id| name(id)))
        .collect();
    let positions: Vec<i64> = rows.iter().map(|row| row.position).collect();
    let row = client
        .query_opt(
            APPEND,
            &[
                &tree.0,
                &thread.0,
                &count,
                &kinds,
                &payloads,
                &branches,
                &checkpoints,
                &runs,
                &messages,
                &positions,
            ],
        )
        .await?;
    match row {
        Some(row) => Ok(row.try_get(0)?),
        None => {
            Err(Error::Database(format!("there is no thread {thread} to log events of")).into())
        }
    }
}

const AFTER: &str = concat!(
    "
SELECT e.thread_id, e.event_number, e.kind, e.payload, f.facts, e.branch_id, e.checkpoint_id, e.run_id, e.message_id, e.created_at
  FROM events e LEFT JOIN event_facts f ON f.tree_id = e.tree_id AND f.thread_id = e.thread_id
   AND f.event_number = e.event_number - CASE WHEN e.kind = ",
    event_code!(CREATED_AND_FINISHED),
    " THEN 1 ELSE 0 END
 WHERE e.tree_id = $1 AND e.thread_id = $2 AND e.event_number > $3 ORDER BY e.event_number LIMIT $4"
);

/// [`AFTER`] for several threads, each up to the first row before which there are rows of `$5` or more.
const AFTER_OF_THREADS: &str = concat!(
    "
SELECT e.* FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) i(tree, thread, number) CROSS JOIN LATERAL (
  SELECT e.*, sum(e.weight) OVER (ORDER BY e.event_number) - e.weight AS before FROM (
    SELECT e.thread_id, e.event_number, e.kind, e.payload, f.facts, e.branch_id, e.checkpoint_id, e.run_id, e.message_id, e.created_at,
           COALESCE(",
    json_weight!("e.payload::text"),
    ", 0) + COALESCE(",
    json_weight!("f.facts::text"),
    ", 0) AS weight
      FROM events e LEFT JOIN event_facts f ON f.tree_id = e.tree_id AND f.thread_id = e.thread_id
       AND f.event_number = e.event_number - CASE WHEN e.kind = ",
    event_code!(CREATED_AND_FINISHED),
    " THEN 1 ELSE 0 END
     WHERE e.tree_id = i.tree AND e.thread_id = i.thread AND e.event_number > i.number ORDER BY e.event_number LIMIT $4) e) e
 WHERE e.before < $5::bigint ORDER BY e.thread_id, e.event_number"
);

/// What the rows of [`AFTER`] weigh.
const WEIGHTS: &str = concat!(
    "
SELECT e.event_number, (COALESCE(",
    json_weight!("e.payload::text"),
    ", 0) + COALESCE(",
    json_weight!("f.facts::text"),
    ", 0))::bigint AS weight
  FROM events e LEFT JOIN event_facts f ON f.tree_id = e.tree_id AND f.thread_id = e.thread_id
   AND f.event_number = e.event_number - CASE WHEN e.kind = ",
    event_code!(CREATED_AND_FINISHED),
    " THEN 1 ELSE 0 END
 WHERE e.tree_id = $1 AND e.thread_id = $2 AND e.event_number > $3 ORDER BY e.event_number LIMIT $4"
);

/// The types are those of a partial index.
const NAMING: &str = concat!(
    "
SELECT thread_id, event_number, kind, payload, NULL::jsonb AS facts, branch_id, checkpoint_id, run_id, message_id, created_at FROM events
 WHERE tree_id = $1 AND branch_id = ANY($2) AND kind IN (",
    event_code!(BRANCH_CREATED),
    ", ",
    event_code!(BRANCH_RENAMED),
    ", ",
    event_code!(BRANCH_DELETED),
    ") ORDER BY event_number"
);

/// Events of a thread after a number, in order.
pub(super) async fn events(
    db: &Object,
    tree: TreeId,
    thread: ThreadId,
    after: i64,
    limit: usize,
) -> Result<Vec<ThreadEvent>> {
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let params: Params<'_, 4> = [&tree.0, &thread.0, &after, &most];
    let rows = all(db, AFTER, &params, log_row).await?;
    Ok(event::row::events_after(rows, after, limit)?)
}

/// Events of several threads, those of each after a number and in order.
pub(super) async fn events_of_threads(
    db: &Object,
    after: &[(TreeId, ThreadId, i64)],
    limit: usize,
    most: u64,
) -> Result<Vec<ThreadEvent>> {
    let trees: Vec<_> = after.iter().map(|(tree, ..)| tree.0).collect();
    let threads: Vec<_> = after.iter().map(|(_, thread, _)| thread.0).collect();
    let numbers: Vec<_> = after.iter().map(|(.., number)| *number).collect();
    let rows_of_each = i64::try_from(limit).unwrap_or(i64::MAX);
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let params: Params<'_, 5> = [&trees, &threads, &numbers, &rows_of_each, &most];
    let rows = all(db, AFTER_OF_THREADS, &params, log_row).await?;
    Ok(event::row::events_of_each(rows, after, limit)?)
}

/// The numbers of the rows of [`events`], and what these weigh.
pub(super) async fn event_weights(
    db: &Object,
    tree: TreeId,
    thread: ThreadId,
    after: i64,
    limit: usize,
) -> Result<Vec<(i64, u64)>> {
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let params: Params<'_, 4> = [&tree.0, &thread.0, &after, &most];
    all(db, WEIGHTS, &params, |row| -> Result<_, Error> {
        let weight: i64 = column(row, "weight")?;
        Ok((column(row, "event_number")?, weight.unsigned_abs()))
    })
    .await
}

/// Events that name branches from then on, or named them until then, in order.
pub(super) async fn naming_events(
    db: &Object,
    tree: TreeId,
    branches: &[BranchId],
) -> Result<Vec<ThreadEvent>> {
    let branches: Vec<_> = branches.iter().map(|id| id.0).collect();
    let rows = all(db, NAMING, &[&tree.0, &branches], log_row).await?;
    Ok(event::row::events_after(rows, 0, usize::MAX)?)
}

/// Reads a row of [`AFTER`] or [`NAMING`].
fn log_row(row: &Row) -> Result<LogRow, Error> {
    let map = |name| {
        column::<Option<JsonText>>(row, name)?
            .map(|json| json.map())
            .transpose()
    };
    Ok(LogRow {
        thread: ThreadId(column(row, "thread_id")?),
        number: column(row, "event_number")?,
        code: column(row, "kind")?,
        run: column::<Option<Uuid>>(row, "run_id")?.map(RunId),
        payload: map("payload")?,
        facts: map("facts")?,
        branch: column::<Option<Uuid>>(row, "branch_id")?.map(BranchId),
        checkpoint: column::<Option<Uuid>>(row, "checkpoint_id")?.map(CheckpointId),
        message_id: column::<Option<&str>>(row, "message_id")?.map(unname),
        created_at: column::<Time>(row, "created_at")?.0,
    })
}

statements!(APPEND, AFTER, AFTER_OF_THREADS, WEIGHTS, NAMING);
