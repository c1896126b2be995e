//! Runs that are deleted: an open one is rolled back, one that has ended leaves what others build on.

use deadpool_postgres::Transaction;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::super::{
    Store,
    columns::{Json, column},
    connection::{self, Failure},
    events,
    threads::{
        blobs::{Named, forget_results},
        delete::DROP_CHECKPOINTS,
        event_facts,
    },
};
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, TaskId, ThreadId, TreeId},
    runs::{Status, Undo},
    tree::{event, store::rows::NewEvent},
};

/// Nothing of a tree may be pinned while rows of it go.
const LOCK_TREE: &str = "
SELECT 1 FROM trees WHERE tree_id = (SELECT tree_id FROM threads WHERE thread_id = $1) FOR UPDATE";

/// Branches first, then runs: the order in which everybody locks.
const LOCK_BRANCH: &str = "
SELECT 1 FROM branches b WHERE (b.tree_id, b.branch_id) IN (
  SELECT r.tree_id, COALESCE(r.branch_id, t.active_branch_id) FROM threads t JOIN runs r ON r.tree_id = t.tree_id AND r.thread_id = t.thread_id
   WHERE t.thread_id = $1 AND r.run_id = $2) FOR NO KEY UPDATE";

const RUN: &str = "
SELECT r.tree_id, r.status, r.branch_id, r.base_checkpoint_id, r.last_checkpoint_id, r.opened_branch, r.temporary, b.head_checkpoint_id,
       r.base_checkpoint_id IS NULL OR EXISTS (SELECT 1 FROM checkpoints c WHERE c.tree_id = r.tree_id AND c.checkpoint_ns = ''
                  AND c.checkpoint_id = r.base_checkpoint_id) AS rooted,
       EXISTS (SELECT 1 FROM runs o WHERE o.tree_id = r.tree_id AND o.thread_id = r.thread_id AND o.branch_id = r.branch_id
                  AND o.status = 'running') AS busy
  FROM runs r LEFT JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = r.branch_id
 WHERE r.thread_id = $1 AND r.run_id = $2 FOR UPDATE OF r";

const FENCE: &str = "
UPDATE branches SET writer_epoch = writer_epoch + 1 WHERE tree_id = $1 AND branch_id = $2";

/// Why the last run ended: noted on its branch, or on the active one when that branch went too.
const NOTE: &str = "
UPDATE branches SET error = $4 WHERE tree_id = $1 AND branch_id = COALESCE(
  (SELECT b.branch_id FROM branches b WHERE b.tree_id = $1 AND b.branch_id = $2),
  (SELECT t.active_branch_id FROM threads t WHERE t.thread_id = $3))";

const HIDE: &str = "
INSERT INTO deleted_runs (tree_id, run_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";

const DELETE: &str = "DELETE FROM runs WHERE tree_id = $1 AND run_id = $2";

/// See [`runs::Store::remove`](crate::runs::Store::remove).
pub(super) async fn remove(store: &Store, what: &Undo) -> Result<bool, Error> {
    let again = &std::sync::atomic::AtomicBool::new(false);
    connection::retry(&store.pools.critical, |mut client| async move {
        // An attempt whose answer was lost may have deleted it.
        let again = again.swap(true, std::sync::atomic::Ordering::Relaxed);
        let transaction = client.transaction().await?;
        transaction.query(LOCK_TREE, &[&what.thread.0]).await?;
        transaction
            .query(LOCK_BRANCH, &[&what.thread.0, &what.run.0])
            .await?;
        let row = transaction
            .query_opt(RUN, &[&what.thread.0, &what.run.0])
            .await?;
        let Some(row) = row else {
            return Ok(again);
        };
        if !apply(&transaction, what, &row).await? {
            return Ok(false);
        }
        transaction.commit().await?;
        Ok(true)
    })
    .await
}

async fn apply(transaction: &Transaction<'_>, what: &Undo, row: &Row) -> Result<bool, Failure> {
    let tree: Uuid = column(row, "tree_id")?;
    let branch: Option<Uuid> = column(row, "branch_id")?;
    let base: Option<Uuid> = column(row, "base_checkpoint_id")?;
    let last: Option<Uuid> = column(row, "last_checkpoint_id")?;
    let head: Option<Uuid> = column(row, "head_checkpoint_id")?;
    let status: &str = column(row, "status")?;
    let open = matches!(status, "pending" | "running");
    if !open && !what.ended {
        return Ok(false);
    }
    // After an end, only while nothing came after it.
    if open && !column::<bool>(row, "temporary")? {
        let told = NewEvent {
            kind: event::RUN_FINISHED,
            payload: event::end_of_run(what.run, Status::Interrupted.as_str()),
            branch: branch.map(BranchId),
            ..NewEvent::default()
        };
        events::append(transaction.client(), TreeId(tree), what.thread, &[told]).await?;
    }
    let is_newest = !open && head.is_some() && last == head && base != head;
    // Where it began may have been pruned: then the branch cannot go back there.
    let goes_back = is_newest && column(row, "rooted")? && !column::<bool>(row, "busy")?;
    if status == "running" || goes_back {
        transaction.execute(FENCE, &[&tree, &branch]).await?;
        roll_back(transaction.client(), row, what.thread.0).await?;
        if let Some(error) = &what.error {
            let error = Json::of_value(error);
            transaction
                .execute(NOTE, &[&tree, &branch, &what.thread.0, &error])
                .await?;
        }
    } else if !open {
        // Later states need what it wrote; lists leave it out.
        transaction.execute(HIDE, &[&tree, &what.run.0]).await?;
    }
    transaction.execute(DELETE, &[&tree, &what.run.0]).await?;
    Ok(true)
}

/// The rows of an undone run, from its head `$2` back to its base `$3`, that no pin's path holds.
const UNDONE: &str = "
WITH RECURSIVE base AS (SELECT COALESCE((SELECT depth FROM checkpoints WHERE tree_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $3), -1) AS depth),
run_rows AS (
  SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints
   WHERE tree_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $2 AND $2::uuid IS DISTINCT FROM $3::uuid
  UNION ALL
  SELECT c.checkpoint_id, c.parent_checkpoint_id FROM run_rows r
    JOIN checkpoints c ON c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = r.parent_checkpoint_id
   WHERE r.parent_checkpoint_id IS DISTINCT FROM $3),
keep AS (
  SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth FROM pins p
    JOIN checkpoints c ON c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = p.checkpoint_id
   WHERE p.tree_id = $1 AND p.depth > (SELECT depth FROM base)
  UNION
  SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth FROM keep k
    JOIN checkpoints c ON c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = k.parent_checkpoint_id
   WHERE c.depth > (SELECT depth FROM base))
SELECT array_agg(checkpoint_id) AS ids FROM run_rows r WHERE NOT EXISTS (SELECT 1 FROM keep k WHERE k.checkpoint_id = r.checkpoint_id)";

/// The head goes back. The branch is as it was: with an open question at its base or without.
const HEAD_BACK: &str = "
UPDATE branches SET head_checkpoint_id = $3, version = version + 1, updated_at = now(), error = NULL,
       outcome = CASE WHEN EXISTS (SELECT 1 FROM checkpoint_writes WHERE tree_id = $1 AND branch_id = $2 AND checkpoint_ns = ''
                                      AND checkpoint_id = $3 AND idx = -3) THEN 'interrupted' ELSE 'idle' END,
       head_depth = COALESCE((SELECT depth FROM checkpoints WHERE tree_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $3), -1)
 WHERE tree_id = $1 AND branch_id = $2";

/// What the run decided at its base: results of tasks that had asked, and answers it brought.
const CLEAN_BASE: &str = "
DELETE FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.branch_id = $2 AND w.checkpoint_ns = '' AND w.checkpoint_id = $3
   AND (w.task_id = $4 OR (w.idx = 0 AND EXISTS (SELECT 1 FROM checkpoint_writes o WHERE o.tree_id = $1 AND o.branch_id = $2
          AND o.checkpoint_ns = '' AND o.checkpoint_id = $3 AND o.task_id = w.task_id AND o.idx = -3)))";

/// Versions that checkpoints about to go name.
const NAMED: &str = "
SELECT array_agg(x.checkpoint_ns) AS nss, array_agg(x.key) AS channels, array_agg(x.value) AS versions FROM (
  SELECT DISTINCT c.checkpoint_ns, v.key, v.value FROM checkpoints c CROSS JOIN LATERAL jsonb_each_text(c.checkpoint->'channel_versions') v
   WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = ANY($2)
  UNION SELECT c.checkpoint_ns, v.key, v.value FROM checkpoints c CROSS JOIN LATERAL jsonb_each_text(c.checkpoint->'channel_versions') v
   WHERE c.tree_id = $1 AND c.checkpoint_ns <> '' AND c.root_checkpoint_id = ANY($2)) x";

/// Results at checkpoints that stay, whose superstep's checkpoint is about to go. Those of the
/// branch itself at the base go too.
const RESULTS_ABOVE: &str = "
SELECT w.checkpoint_ns, w.type, w.writes FROM checkpoints c
  JOIN checkpoint_writes w ON w.tree_id = $1 AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.parent_checkpoint_id AND w.idx = 0
 WHERE c.tree_id = $1 AND ((c.checkpoint_ns = '' AND c.checkpoint_id = ANY($2) AND c.parent_checkpoint_id <> ALL($2))
    OR (c.checkpoint_ns <> '' AND c.root_checkpoint_id = ANY($2)))
   AND NOT (w.checkpoint_ns = '' AND w.branch_id = $4 AND w.checkpoint_id IS NOT DISTINCT FROM $3)";

/// Those of them that nothing else names. A version made after the base is named by checkpoints
/// after it alone, so the base and what is deeper are all there is to look at.
const DROP_NAMED: &str = "
WITH RECURSIVE gone AS (SELECT x.ns COLLATE \"C\" AS ns, x.channel COLLATE \"C\" AS channel, x.version COLLATE \"C\" AS version
    FROM unnest($2::text[], $3::text[], $4::text[]) x(ns, channel, version)),
live AS (
  SELECT c.checkpoint_ns, v.key COLLATE \"C\" AS channel, v.value COLLATE \"C\" AS version
    FROM checkpoints c CROSS JOIN LATERAL jsonb_each_text(c.checkpoint->'channel_versions') v
   WHERE c.tree_id = $1 AND (c.checkpoint_ns <> '' OR c.depth >=
         COALESCE((SELECT b.depth FROM checkpoints b WHERE b.tree_id = $1 AND b.checkpoint_ns = '' AND b.checkpoint_id = $5), 0))
  UNION
  SELECT x.ns COLLATE \"C\", x.channel COLLATE \"C\", x.version COLLATE \"C\" FROM unnest($6::text[], $7::text[], $8::text[]) x(ns, channel, version)
  UNION
  SELECT b.checkpoint_ns, b.channel, b.base_version FROM live l CROSS JOIN LATERAL (
    SELECT b.* FROM checkpoint_blobs b WHERE b.tree_id = $1 AND b.checkpoint_ns = l.checkpoint_ns AND b.channel = l.channel
       AND b.version = l.version LIMIT 1) b WHERE b.base_version IS NOT NULL)
DELETE FROM checkpoint_blobs b USING gone g WHERE b.tree_id = $1 AND b.checkpoint_ns = g.ns AND b.channel = g.channel AND b.version = g.version
   AND NOT EXISTS (SELECT 1 FROM live l WHERE l.checkpoint_ns = g.ns AND l.channel = g.channel AND l.version = g.version)";

/// A branch that the undone run had made goes, and its source is active again. Runs that waited
/// on it float again.
const CLOSE_BRANCH: &str = "
WITH b AS (DELETE FROM branches WHERE tree_id = $1 AND branch_id = $2 AND source_branch_id IS NOT NULL RETURNING source_branch_id),
r AS (UPDATE runs SET branch_id = NULL WHERE tree_id = $1 AND thread_id = $3 AND branch_id = $2 AND status = 'pending')
UPDATE threads t SET active_branch_id = b.source_branch_id, updated_at = now() FROM b
 WHERE t.thread_id = $3 AND t.active_branch_id = $2";

/// Undoes a run that was just ended: `row` tells its branch, base and head.
pub(super) async fn roll_back(client: &Client, row: &Row, thread: Uuid) -> Result<(), Failure> {
    let tree: Uuid = column(row, "tree_id")?;
    let branch: Uuid = column(row, "branch_id")?;
    let base: Option<Uuid> = column(row, "base_checkpoint_id")?;
    let head: Option<Uuid> = column(row, "head_checkpoint_id")?;
    client.execute(HEAD_BACK, &[&tree, &branch, &base]).await?;
    client
        .execute(CLEAN_BASE, &[&tree, &branch, &base, &TaskId::NULL.0])
        .await?;
    let opened: bool = column(row, "opened_branch")?;
    tell_undone(client, tree, thread, branch, base, opened).await?;
    if opened {
        client
            .execute(CLOSE_BRANCH, &[&tree, &branch, &thread])
            .await?;
    }
    let undone: Option<Vec<Uuid>> = client
        .query_one(UNDONE, &[&tree, &head, &base])
        .await?
        .try_get("ids")?;
    let Some(undone) = undone else {
        return Ok(());
    };
    let named = client.query_one(NAMED, &[&tree, &undone]).await?;
    let above = client
        .query(RESULTS_ABOVE, &[&tree, &undone, &base, &branch])
        .await?;
    let kept = Named::by(&above)?;
    event_facts::keep(client, tree, &undone, true).await?;
    client
        .execute(DROP_CHECKPOINTS, &[&tree, &undone, &true])
        .await?;
    let nss: Option<Vec<&str>> = named.try_get("nss")?;
    let channels: Option<Vec<&str>> = named.try_get("channels")?;
    let versions: Option<Vec<&str>> = named.try_get("versions")?;
    if nss.is_some() {
        client
            .execute(
                DROP_NAMED,
                &[
                    &tree,
                    &nss,
                    &channels,
                    &versions,
                    &base,
                    &kept.nss,
                    &kept.channels,
                    &kept.versions,
                ],
            )
            .await?;
    }
    forget_results(client, tree, branch, base).await
}

const SOURCE: &str = "
SELECT b.name, s.branch_id AS source_id, s.name AS source FROM branches b JOIN branches s ON s.tree_id = b.tree_id AND s.branch_id = b.source_branch_id
 WHERE b.tree_id = $1 AND b.branch_id = $2";

/// Appends to the thread's log that a branch is back at `base`, or goes for the one it came from.
async fn tell_undone(
    client: &Client,
    tree: Uuid,
    thread: Uuid,
    branch: Uuid,
    base: Option<Uuid>,
    opened: bool,
) -> Result<(), Failure> {
    let about = |kind, branch| NewEvent {
        kind,
        branch: Some(BranchId(branch)),
        ..NewEvent::default()
    };
    let at_base = |event| NewEvent {
        checkpoint: base.map(CheckpointId),
        ..event
    };
    let source = match opened {
        true => client.query_opt(SOURCE, &[&tree, &branch]).await?,
        false => None,
    };
    let told = match source {
        Some(row) => vec![
            at_base(NewEvent {
                payload: event::about_branch(column(&row, "name")?),
                ..about(event::BRANCH_DELETED, branch)
            }),
            event::branch_activated(
                BranchId(column(&row, "source_id")?),
                column(&row, "source")?,
            ),
        ],
        None => vec![at_base(about(event::BRANCH_HEAD_RESET, branch))],
    };
    events::append(client, TreeId(tree), ThreadId(thread), &told).await?;
    Ok(())
}
