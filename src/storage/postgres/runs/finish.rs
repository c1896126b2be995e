//! Finishing runs: writes the final row of a run that ended by itself.

use deadpool_postgres::Object;

use super::super::{
    columns::{Json, Params, column},
    connection::{Failure, prepare},
    threads::delete,
};
use crate::{checkpoint::Error, id::RunId, runs::Finish, tree::event::codes::event_code};

/// The end of a run, with the events of
/// [`EndedRun`](crate::runs::transitions::run_events::EndedRun): in SQL, so that it is one round trip.
const FINISH: &str = concat!(
    "
WITH f AS (
  UPDATE branches b SET outcome = $5, error = $6, updated_at = now()
   WHERE b.tree_id = $1 AND b.branch_id = $2 AND b.writer_epoch = $3
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

/// Has the result of a run outlive it.
const LEAVE: &str = "
INSERT INTO ended_runs (run_id, tree_id, thread_id, principal, error, result)
SELECT r.run_id, r.tree_id, r.thread_id, r.principal, r.error, $3 FROM runs r WHERE r.tree_id = $1 AND r.run_id = $2
ON CONFLICT DO NOTHING";

const AWAIT: &str = "
UPDATE runs SET awaited = true WHERE run_id = $1 AND temporary AND NOT awaited AND status IN ('pending', 'running')";

/// Whether this end was written before and only its reply was lost.
const FINISHED: &str = "
SELECT 1 FROM runs WHERE tree_id = $1 AND run_id = $2 AND epoch = $3 AND status = $4";

/// See [`runs::Store::finish`](crate::runs::Store::finish).
pub(in super::super) async fn finish(db: &mut Object, finish: &Finish) -> Result<(), Failure> {
    let statement = prepare(db, FINISH).await?;
    let error = finish.error.as_ref().map(Json::of_value);
    let (tree, run, epoch) = (finish.slot.tree.0, finish.run.0, finish.slot.epoch);
    let outcome = finish.outcome.as_str();
    let status = finish.status.as_str();
    let log = !finish.delete_thread;
    let params: Params<'_, 8> = [
        &tree,
        &finish.slot.branch.0,
        &epoch,
        &run,
        &outcome,
        &error,
        &status,
        &log,
    ];
    if finish.delete_thread {
        let transaction = db.transaction().await?;
        let row = transaction.query_opt(&statement, &params).await?;
        if let Some(row) = row {
            let is_awaited = column::<Option<bool>>(&row, "awaited")?.unwrap_or(false);
            let left = finish.left.as_ref();
            if let Some(left) = left.filter(|left| is_awaited || left.is_foreign) {
                let leave = transaction.prepare_cached(LEAVE).await?;
                let result = left.body.to_json();
                transaction.execute(&leave, &[&tree, &run, &result]).await?;
            }
            delete::purge(&transaction, tree, finish.slot.thread.0).await?;
            transaction.commit().await?;
            return Ok(());
        }
    } else if db.query_opt(&statement, &params).await?.is_some() {
        return Ok(());
    }
    let statement = prepare(db, FINISHED).await?;
    let before = db
        .query_opt(&statement, &[&tree, &run, &epoch, &status])
        .await?;
    before.map(drop).ok_or_else(|| Error::Fenced.into())
}

/// See [`runs::Store::await_end`](crate::runs::Store::await_end).
pub(in super::super) async fn await_end(db: &Object, run: RunId) -> Result<bool, Failure> {
    let statement = prepare(db, AWAIT).await?;
    Ok(db.execute(&statement, &[&run.0]).await? > 0)
}

statements!(FINISH, FINISHED, LEAVE, AWAIT);
