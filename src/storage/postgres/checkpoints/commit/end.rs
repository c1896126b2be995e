//! The final row of a run that ended by itself, as one statement that others can share a transaction with.

use tokio_postgres::{Client, Row, Statement};

use crate::{
    id::CheckpointId,
    runs::Finish,
    storage::postgres::{
        columns::{Json, Params},
        connection::{Failure, Object, prepare},
    },
    tree::event::codes::event_code,
};

/// The end of a run, with the events of
/// [`EndedRun`](crate::runs::transitions::run_events::EndedRun): in SQL, so that it is one round trip.
/// With `$9` only behind that checkpoint.
pub(crate) const FINISH: &str = concat!(
    "
WITH f AS (
  UPDATE branches b SET outcome = $5, error = $6, updated_at = now()
   WHERE b.tree_id = $1 AND b.branch_id = $2 AND b.writer_epoch = $3
     AND ($9::uuid IS NULL OR b.head_checkpoint_id = $9)
     AND (SELECT CASE WHEN r.status = 'running' THEN r.epoch = $3 END FROM runs r WHERE r.tree_id = $1 AND r.run_id = $4)
  RETURNING b.thread_id, b.head_checkpoint_id),
r AS (
  UPDATE runs r SET status = $7, error = $6, last_checkpoint_id = f.head_checkpoint_id, updated_at = now()
    FROM f WHERE r.tree_id = $1 AND r.run_id = $4
  RETURNING f.head_checkpoint_id IS DISTINCT FROM r.base_checkpoint_id AS moved, r.awaited),
m AS (
  UPDATE message_nodes m SET settled_checkpoint_id = (SELECT f.head_checkpoint_id FROM f)
   WHERE m.tree_id = $1 AND m.run_id = $4 AND m.node_id = (SELECT c.last_node_id FROM checkpoints c
         WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = (SELECT f.head_checkpoint_id FROM f))),
e AS (
  UPDATE threads t SET last_event_number = t.last_event_number + 1 + r.moved::int, updated_at = clock_timestamp() FROM f, r WHERE t.thread_id = f.thread_id AND $8
  RETURNING t.last_event_number AS n),
ev AS (
  INSERT INTO events (tree_id, thread_id, event_number, kind, branch_id, checkpoint_id, run_id, payload)
  SELECT $1, f.thread_id, e.n - 1, ",
    event_code!(CHECKPOINT_CREATED),
    ", $2, f.head_checkpoint_id, NULL, NULL FROM f, e, r WHERE r.moved
  UNION ALL
  SELECT $1, f.thread_id, e.n, ",
    event_code!(RUN_FINISHED),
    ", $2, f.head_checkpoint_id, $4, CASE WHEN $7 <> 'success' THEN jsonb_build_object('status', $7::text) END FROM f, e)
SELECT (SELECT r.awaited FROM r) AS awaited FROM f"
);

/// Whether this end was written before and only its reply was lost.
const FINISHED: &str = "
SELECT 1 FROM runs WHERE tree_id = $1 AND run_id = $2 AND epoch = $3 AND status = $4";

/// Sends the end of a run, behind the checkpoint `head` if there is one; false when the fence refused it.
///
/// The request leaves when this future is first polled.
pub(crate) async fn send(
    client: &Client,
    statement: &Statement,
    finish: &Finish,
    head: Option<CheckpointId>,
) -> Result<bool, Failure> {
    let row = send_row(client, statement, finish, head).await?;
    Ok(row.is_some())
}

/// [`send`], with the row: whether somebody waits for the result (`awaited`).
pub(crate) async fn send_row(
    client: &Client,
    statement: &Statement,
    finish: &Finish,
    head: Option<CheckpointId>,
) -> Result<Option<Row>, Failure> {
    let error = finish.error.as_ref().map(Json::of_value);
    let outcome = finish.outcome.as_str();
    let status = finish.status.as_str();
    let log = !finish.delete_thread;
    let head = head.map(|id| id.0);
    let params: Params<'_, 9> = [
        &finish.slot.tree.0,
        &finish.slot.branch.0,
        &finish.slot.epoch,
        &finish.run.0,
        &outcome,
        &error,
        &status,
        &log,
        &head,
    ];
    Ok(client.query_opt(statement, &params).await?)
}

/// Whether a run that the fence refused to end has ended so: an earlier attempt took effect, and its
/// reply was lost.
pub(crate) async fn was_written(db: &Object, finish: &Finish) -> Result<bool, Failure> {
    let statement = prepare(db, FINISHED).await?;
    let (tree, run) = (finish.slot.tree.0, finish.run.0);
    let status = finish.status.as_str();
    let params: Params<'_, 4> = [&tree, &run, &finish.slot.epoch, &status];
    Ok(db.query_opt(&statement, &params).await?.is_some())
}

statements!(FINISH, FINISHED);
