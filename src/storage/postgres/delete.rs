//! Deletion: a thread with everything nobody else needs, and the rows of a run that is undone.

use deadpool_postgres::Transaction;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::{
    Store,
    commit::prepare,
    events,
    params::{Params, column},
    pool::{self, Failure},
};
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, TaskId, ThreadId, TreeId},
    tree::{event, rows::NewEvent},
};

/// Lets the rest of the transaction delete events.
const ALLOW_PURGE: &str = "SELECT set_config('backstitch.purge', 'on', true)";

/// The thread and its relatives, tombstones too.
const FAMILY: &str = "
SELECT thread_id, deleted_at IS NULL AS alive FROM threads WHERE tree_id = $1 FOR UPDATE";

const LOCK_TREE: &str = "SELECT 1 FROM trees WHERE tree_id = $1 FOR UPDATE";

/// A thread without relatives: everything goes by the key of its tree. Rows of the branch go
/// first, which fences every writer.
const WIPE: &str = "
WITH b AS (DELETE FROM branches WHERE tree_id = $1),
r AS (DELETE FROM runs WHERE tree_id = $1),
g AS (DELETE FROM tags WHERE tree_id = $1),
c AS (DELETE FROM checkpoints WHERE tree_id = $1),
v AS (DELETE FROM checkpoint_blobs WHERE tree_id = $1),
w AS (DELETE FROM checkpoint_writes WHERE tree_id = $1),
m AS (DELETE FROM message_nodes WHERE tree_id = $1),
e AS (DELETE FROM events WHERE tree_id = $1),
d AS (DELETE FROM deleted_runs WHERE tree_id = $1),
p AS (DELETE FROM projection_offsets WHERE thread_id = $2)
SELECT 1";

const WIPE_TREE: &str = "
WITH t AS (DELETE FROM threads WHERE tree_id = $1), x AS (DELETE FROM trees WHERE tree_id = $1) SELECT 1";

/// A thread with relatives becomes a tombstone; what they inherit is the path of their base.
const BURY: [&str; 4] = [
    "DELETE FROM tags WHERE tree_id = $1 AND thread_id = $2",
    "DELETE FROM branches WHERE tree_id = $1 AND thread_id = $2",
    "DELETE FROM runs WHERE tree_id = $1 AND thread_id = $2",
    "UPDATE threads SET deleted_at = now(), metadata = '{}', config = '{}', active_branch_id = NULL
      WHERE tree_id = $1 AND thread_id = $2",
];

/// Rows of dead threads that are on no live thread's path.
const DOOMED: &str = "
WITH RECURSIVE keep AS (
  SELECT c.checkpoint_id, c.parent_checkpoint_id FROM threads t
    JOIN checkpoints c ON c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = t.fork_checkpoint_id WHERE t.tree_id = $1 AND t.deleted_at IS NULL
  UNION SELECT c.checkpoint_id, c.parent_checkpoint_id FROM keep k
    JOIN checkpoints c ON c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = k.parent_checkpoint_id),
doomed AS MATERIALIZED (
  SELECT c.checkpoint_id FROM checkpoints c JOIN threads t ON t.thread_id = c.thread_id AND t.deleted_at IS NOT NULL
   WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND NOT EXISTS (SELECT 1 FROM keep k WHERE k.checkpoint_id = c.checkpoint_id))
SELECT array_agg(checkpoint_id) AS ids FROM doomed";

/// Checkpoints of the root graph with everything that hangs on them.
const DROP_CHECKPOINTS: &str = "
WITH d AS (SELECT unnest($2::uuid[]) AS id),
w AS (DELETE FROM checkpoint_writes w USING d WHERE w.tree_id = $1 AND w.checkpoint_ns = '' AND w.checkpoint_id = d.id),
m AS (DELETE FROM message_nodes m USING d WHERE m.tree_id = $1 AND m.checkpoint_id = d.id),
s AS (DELETE FROM checkpoints s USING d WHERE s.tree_id = $1 AND s.checkpoint_ns <> '' AND s.root_checkpoint_id = d.id
      RETURNING s.checkpoint_ns, s.checkpoint_id),
sw AS (DELETE FROM checkpoint_writes w USING s WHERE w.tree_id = $1 AND w.checkpoint_ns = s.checkpoint_ns AND w.checkpoint_id = s.checkpoint_id)
DELETE FROM checkpoints c USING d WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = d.id";

/// Numbers up to a child's fork point are coordinates of that fork.
const DROP_EVENTS: &str = "
DELETE FROM events e WHERE e.tree_id = $1 AND e.thread_id = $2 AND e.event_number >
  (SELECT COALESCE(max(t.fork_event_number), 0) FROM threads t WHERE t.tree_id = $1 AND t.parent_thread_id = $2)";

/// Channel values that no checkpoint names any more, directly or by a chain of deltas.
const DROP_BLOBS: &str = "
WITH RECURSIVE live AS (
  SELECT c.checkpoint_ns, v.key COLLATE \"C\" AS channel, v.value COLLATE \"C\" AS version
    FROM checkpoints c, jsonb_each_text(c.checkpoint->'channel_versions') v WHERE c.tree_id = $1
  UNION
  SELECT b.checkpoint_ns, b.channel, b.base_version FROM live l JOIN checkpoint_blobs b ON b.tree_id = $1
     AND b.checkpoint_ns = l.checkpoint_ns AND b.channel = l.channel AND b.version = l.version WHERE b.base_version IS NOT NULL)
DELETE FROM checkpoint_blobs b WHERE b.tree_id = $1
   AND NOT EXISTS (SELECT 1 FROM live l WHERE l.checkpoint_ns = b.checkpoint_ns AND l.channel = b.channel AND l.version = b.version)";

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

impl Store {
    pub(super) async fn delete(&self, thread: ThreadId) -> Result<bool, Error> {
        pool::retry(&self.pools.reads, |mut client| async move {
            let client = &mut client;
            let find = prepare(
                client,
                "SELECT tree_id FROM threads WHERE thread_id = $1 AND deleted_at IS NULL",
            )
            .await?;
            let transaction = client.transaction().await?;
            let Some(row) = transaction.query_opt(&find, &[&thread.0]).await? else {
                return Ok(false);
            };
            let tree: Uuid = row.try_get(0)?;
            let deleted = purge(&transaction, tree, thread.0).await?;
            transaction.commit().await?;
            Ok(deleted)
        })
        .await
    }
}

/// Deletes a thread in the caller's transaction. False when somebody else was first.
pub(super) async fn purge(
    transaction: &Transaction<'_>,
    tree: Uuid,
    thread: Uuid,
) -> Result<bool, Failure> {
    let allow = transaction.prepare_cached(ALLOW_PURGE).await?;
    let lock = transaction.prepare_cached(LOCK_TREE).await?;
    let family = transaction.prepare_cached(FAMILY).await?;
    let wipe = transaction.prepare_cached(WIPE).await?;
    let wipe_tree = transaction.prepare_cached(WIPE_TREE).await?;
    let by_tree: Params<'_, 1> = [&tree];
    let by_thread: Params<'_, 2> = [&tree, &thread];
    let (allowed, locked, members) = tokio::join!(
        biased;
        transaction.query(&allow, &[]),
        transaction.query(&lock, &by_tree),
        transaction.query(&family, &by_tree),
    );
    allowed?;
    locked?;
    let mut alive = false;
    let mut alone = true;
    for row in &members? {
        if row.try_get::<_, Uuid>("thread_id")? == thread {
            alive = row.try_get("alive")?;
        } else {
            alone = false;
        }
    }
    if !alive {
        return Ok(false);
    }
    if alone {
        let (wiped, tree_wiped) = tokio::join!(
            biased;
            transaction.query(&wipe, &by_thread),
            transaction.query(&wipe_tree, &by_tree),
        );
        wiped?;
        tree_wiped?;
        return Ok(true);
    }
    for text in BURY {
        transaction.execute(text, &by_thread).await?;
    }
    let row = transaction.query_one(DOOMED, &by_tree).await?;
    if let Some(doomed) = row.try_get::<_, Option<Vec<Uuid>>>("ids")? {
        transaction
            .execute(DROP_CHECKPOINTS, &[&tree, &doomed])
            .await?;
    }
    transaction.execute(DROP_EVENTS, &by_thread).await?;
    transaction.execute(DROP_BLOBS, &by_tree).await?;
    Ok(true)
}

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
    client.execute(DROP_CHECKPOINTS, &[&tree, &undone]).await?;
    let nss: Option<Vec<&str>> = named.try_get("nss")?;
    let channels: Option<Vec<&str>> = named.try_get("channels")?;
    let versions: Option<Vec<&str>> = named.try_get("versions")?;
    if nss.is_some() {
        client
            .execute(DROP_NAMED, &[&tree, &nss, &channels, &versions, &base])
            .await?;
    }
    Ok(())
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
            NewEvent {
                payload: event::about_branch(column(&row, "source")?),
                ..about(event::BRANCH_ACTIVATED, column(&row, "source_id")?)
            },
        ],
        None => vec![at_base(about(event::BRANCH_HEAD_RESET, branch))],
    };
    events::append(client, TreeId(tree), ThreadId(thread), &told).await?;
    Ok(())
}
