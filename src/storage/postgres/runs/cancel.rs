//! Cancelling runs: requests, and other runs, end them from outside.

use tokio_postgres::Client;

use super::super::{
    columns::{Json, column, word},
    connection::{Failure, Object, prepare},
    events::{append_rows, ended},
    tree::LEVEL_ON_THREAD,
};
use crate::{
    id::{RunId, ThreadId},
    runs::NewRun,
    tree::members::Level,
    value::Value,
};

/// Of a process that is silent nobody expects anything.
const REQUEST_CANCEL: &str = "
UPDATE runs r SET cancel = $2 WHERE r.run_id = $1
   AND CASE WHEN r.status = 'running' THEN (SELECT w.lease_until > now() FROM workers w WHERE w.worker_id = r.worker_id) END";

/// See [`runs::Store::request_cancel`](crate::runs::Tx::request_cancel).
pub(in super::super) async fn request_cancel(
    db: &Object,
    run: RunId,
    reason: &Value,
) -> Result<bool, Failure> {
    let statement = prepare(db, REQUEST_CANCEL).await?;
    let reason = Json::of_value(reason);
    Ok(db.execute(&statement, &[&run.0, &reason]).await? > 0)
}

/// Branches first, then runs: the order in which everybody locks.
pub(in super::super) const LOCK_SLOTS: &str = "
SELECT 1 FROM branches b WHERE (b.tree_id, b.branch_id) IN (
  SELECT r.tree_id, COALESCE(r.branch_id, t.active_branch_id) FROM threads t JOIN runs r ON r.tree_id = t.tree_id AND r.thread_id = t.thread_id
   WHERE t.thread_id = $1 AND r.status IN ('pending', 'running') AND ($2::uuid IS NULL OR r.run_id = $2))
 ORDER BY b.branch_id FOR NO KEY UPDATE";

/// The branch stays as it was unless the run moved its head.
pub(in super::super) const CANCEL: &str = concat!(
    "
WITH o AS (
  SELECT r.tree_id, r.run_id, r.seq, r.status, r.branch_id, r.base_checkpoint_id, r.temporary, t.active_branch_id FROM threads t JOIN runs r ON r.tree_id = t.tree_id AND r.thread_id = t.thread_id
   WHERE t.thread_id = $1 AND r.status IN ('pending', 'running') AND ($2::uuid IS NULL OR r.run_id = $2) FOR UPDATE OF r),
f AS (
  UPDATE branches b SET writer_epoch = b.writer_epoch + 1, outcome = CASE WHEN b.head_checkpoint_id IS NOT DISTINCT FROM o.base_checkpoint_id THEN b.outcome ELSE 'interrupted' END,
         error = COALESCE($3, CASE WHEN b.head_checkpoint_id IS NOT DISTINCT FROM o.base_checkpoint_id THEN b.error END), updated_at = now() FROM o
   WHERE o.status = 'running' AND b.tree_id = o.tree_id AND b.branch_id = o.branch_id
  RETURNING b.branch_id, b.head_checkpoint_id),
u AS (
  UPDATE runs r SET status = 'interrupted', last_checkpoint_id = f.head_checkpoint_id, updated_at = now()
    FROM o LEFT JOIN f ON o.status = 'running' AND f.branch_id = o.branch_id
   WHERE r.tree_id = o.tree_id AND r.run_id = o.run_id),
d AS (
  SELECT o.tree_id, $1::uuid AS thread_id, o.seq, o.run_id, COALESCE(o.branch_id, o.active_branch_id) AS branch_id, o.base_checkpoint_id AS base,
         f.head_checkpoint_id AS head, 'interrupted' AS status, o.temporary
    FROM o LEFT JOIN f ON o.status = 'running' AND f.branch_id = o.branch_id),",
    ended!(),
    append_rows!(),
    "
SELECT run_id FROM o ORDER BY seq"
);

/// Ends the runs of a slot. Unless `$3`, what they wrote is rolled back next, so that the log gets
/// nothing but their ends and the branch stays as it was.
pub(super) const END_OTHERS: &str = concat!(
    "
WITH t AS (SELECT t.tree_id, t.thread_id, t.active_branch_id, COALESCE($2::uuid, t.active_branch_id) AS slot_branch_id FROM threads t WHERE t.thread_id = $1 AND t.deleted_at IS NULL),
o AS (
  SELECT r.tree_id, r.run_id, r.seq, r.status, r.branch_id, r.base_checkpoint_id, r.temporary FROM runs r, t
   WHERE r.tree_id = t.tree_id AND r.thread_id = t.thread_id AND r.status IN ('pending', 'running')
     AND COALESCE(r.branch_id, t.active_branch_id) = t.slot_branch_id FOR UPDATE OF r),
h AS (SELECT b.head_checkpoint_id FROM branches b, t WHERE b.tree_id = t.tree_id AND b.branch_id = t.slot_branch_id),
f AS (
  UPDATE branches b SET writer_epoch = b.writer_epoch + 1, outcome = CASE WHEN NOT $3::bool OR b.head_checkpoint_id IS NOT DISTINCT FROM o.base_checkpoint_id THEN b.outcome ELSE 'interrupted' END,
         error = CASE WHEN NOT $3 OR b.head_checkpoint_id IS NOT DISTINCT FROM o.base_checkpoint_id THEN b.error END, updated_at = now() FROM o
   WHERE o.status = 'running' AND b.tree_id = o.tree_id AND b.branch_id = o.branch_id),
u AS (
  UPDATE runs r SET status = 'interrupted', updated_at = now(), webhook = CASE WHEN $3::bool THEN r.webhook END,
         last_checkpoint_id = CASE WHEN o.status = 'running' THEN (SELECT head_checkpoint_id FROM h) END
    FROM o WHERE r.tree_id = o.tree_id AND r.run_id = o.run_id),
d AS (
  SELECT o.tree_id, $1::uuid AS thread_id, o.seq, o.run_id, COALESCE(o.branch_id, t.active_branch_id) AS branch_id, o.base_checkpoint_id AS base,
         CASE WHEN $3::bool AND o.status = 'running' THEN (SELECT head_checkpoint_id FROM h) END AS head, 'interrupted' AS status, o.temporary FROM o, t),",
    ended!(),
    append_rows!(),
    "
SELECT o.tree_id, o.run_id, o.status, o.branch_id, o.base_checkpoint_id, (SELECT head_checkpoint_id FROM h) AS head_checkpoint_id
  FROM o ORDER BY o.seq"
);

/// Behind the lock of the branch, before its runs are ended.
const UNCHANGED: &str = "SELECT 1 FROM threads WHERE thread_id = $1 AND last_event_number = $2";

/// Whether nothing has happened on a thread since its event of this number.
pub(super) async fn is_unchanged(
    client: &Client,
    thread: ThreadId,
    number: i64,
) -> Result<bool, Failure> {
    let row = client.query_opt(UNCHANGED, &[&thread.0, &number]).await?;
    Ok(row.is_some())
}

/// Whether the client has the level that a run takes which ends others, behind the lock of the tree.
pub(super) async fn may_create(client: &Client, new: &NewRun) -> Result<bool, Failure> {
    let Some(principal) = new.access.principal() else {
        return Ok(true);
    };
    let row = client
        .query_opt(LEVEL_ON_THREAD, &[&new.thread.0, &&**principal])
        .await?;
    let level = match &row {
        Some(row) => column::<Option<&str>>(row, "level")?,
        None => None,
    };
    let level = level.map(word::<Level>).transpose()?;
    Ok(level >= Some(new.access.needed()))
}

statements!(REQUEST_CANCEL, LOCK_SLOTS, CANCEL, END_OTHERS, UNCHANGED);
