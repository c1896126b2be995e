//! Deleting threads and trees, and the tombstones that deleted threads leave.

use deadpool_postgres::Transaction;
use futures::FutureExt;
use tokio_postgres::Client;
use uuid::Uuid;

use super::{
    super::{Store, columns::Params, connection::Failure},
    blobs::drop_blobs,
    event_facts,
    rows::tree_of,
};
use crate::{checkpoint::Error, id::ThreadId};

/// Lets the rest of the transaction delete events.
const ALLOW_PURGE: &str = "SELECT set_config('backstitch.purge', 'on', true)";

/// The thread and its relatives, tombstones too.
const FAMILY: &str = "
SELECT thread_id, deleted_at IS NULL AS alive FROM threads WHERE tree_id = $1 ORDER BY created_at, thread_id FOR UPDATE";

const LOCK_TREE: &str = "SELECT 1 FROM trees WHERE tree_id = $1 FOR UPDATE";

/// Everything goes by the key of the tree. Rows of branches go first, which fences every writer.
const WIPE: &str = "
WITH b AS (DELETE FROM branches WHERE tree_id = $1),
r AS (DELETE FROM runs WHERE tree_id = $1),
x AS (DELETE FROM deleted_runs WHERE tree_id = $1),
g AS (DELETE FROM tags WHERE tree_id = $1),
c AS (DELETE FROM checkpoints WHERE tree_id = $1),
v AS (DELETE FROM checkpoint_blobs WHERE tree_id = $1),
w AS (DELETE FROM checkpoint_writes WHERE tree_id = $1),
m AS (DELETE FROM message_nodes WHERE tree_id = $1),
e AS (DELETE FROM events WHERE tree_id = $1),
f AS (DELETE FROM event_facts WHERE tree_id = $1),
t AS (DELETE FROM trees WHERE tree_id = $1)
SELECT 1";

/// What is derived from one thread of a tree, or from all of them, while their rows are there.
const FORGET_DERIVED: [&str; 5] = [
    "DELETE FROM projection_offsets WHERE thread_id IN (SELECT thread_id FROM threads WHERE tree_id = $1 AND ($2::uuid IS NULL OR thread_id = $2))",
    "DELETE FROM thread_timeline WHERE tree_id = $1 AND ($2::uuid IS NULL OR thread_id = $2)",
    "DELETE FROM thread_heads WHERE tree_id = $1 AND ($2::uuid IS NULL OR thread_id = $2)",
    "DELETE FROM fork_index WHERE tree_id = $1 AND ($2::uuid IS NULL OR thread_id = $2)",
    "DELETE FROM search WHERE tree_id = $1 AND ($2::uuid IS NULL OR thread_id = $2)",
];

/// Leaves no tombstone.
const WIPE_THREADS: &str = "DELETE FROM threads WHERE tree_id = $1";

/// Nothing refers to these tombstones, nor they to anything: their ids can be used again.
const WIPE_CONTENT: &str = "
UPDATE threads SET tree_id = thread_id, parent_thread_id = NULL, fork_checkpoint_id = NULL, fork_checkpoint_depth = -1,
       fork_anchor = NULL, fork_position = NULL, fork_event_number = 0, fork_level = 0, active_branch_id = NULL,
       last_event_number = 0, metadata = '{}', config = '{}', deleted_at = COALESCE(deleted_at, now())
 WHERE tree_id = $1";

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

/// Checkpoints of the root graph with all rows that belong to them; with `$3` messages that
/// begin there too.
pub(in super::super) const DROP_CHECKPOINTS: &str = "
WITH d AS (SELECT unnest($2::uuid[]) AS id),
w AS (DELETE FROM checkpoint_writes w USING d WHERE w.tree_id = $1 AND w.checkpoint_ns = '' AND w.checkpoint_id = d.id),
m AS (DELETE FROM message_nodes m USING d WHERE $3 AND m.tree_id = $1 AND m.checkpoint_id = d.id),
s AS (DELETE FROM checkpoints s USING d WHERE s.tree_id = $1 AND s.checkpoint_ns <> '' AND s.root_checkpoint_id = d.id
      RETURNING s.checkpoint_ns, s.checkpoint_id),
sw AS (DELETE FROM checkpoint_writes w USING s WHERE w.tree_id = $1 AND w.checkpoint_ns = s.checkpoint_ns AND w.checkpoint_id = s.checkpoint_id)
DELETE FROM checkpoints c USING d WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = d.id";

/// Numbers up to a fork's point are coordinates of that fork, as long as it or a fork of it lives.
const DROP_EVENTS: &str = "
WITH RECURSIVE needed AS (
  SELECT thread_id, parent_thread_id, fork_event_number FROM threads WHERE tree_id = $1 AND deleted_at IS NULL
  UNION SELECT t.thread_id, t.parent_thread_id, t.fork_event_number FROM needed n JOIN threads t ON t.thread_id = n.parent_thread_id)
DELETE FROM events e USING threads t WHERE t.tree_id = $1 AND t.deleted_at IS NOT NULL AND e.tree_id = $1 AND e.thread_id = t.thread_id
   AND e.event_number > (SELECT COALESCE(max(n.fork_event_number), 0) FROM needed n WHERE n.parent_thread_id = t.thread_id)";

const DROP_FACTS: &str = "
DELETE FROM event_facts f WHERE f.tree_id = $1
   AND NOT EXISTS (SELECT 1 FROM events e WHERE e.tree_id = $1 AND e.thread_id = f.thread_id AND e.event_number = f.event_number)";

/// Tombstones that are old and that nothing refers to.
const FORGET: &str = "
DELETE FROM threads WHERE thread_id IN (
  SELECT t.thread_id FROM threads t WHERE t.deleted_at < now() - interval '30 days'
     AND NOT EXISTS (SELECT 1 FROM threads k WHERE k.parent_thread_id = t.thread_id)
     AND NOT EXISTS (SELECT 1 FROM events e WHERE e.tree_id = t.tree_id AND e.thread_id = t.thread_id)
     AND NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.tree_id = t.tree_id AND c.thread_id = t.thread_id)
   LIMIT 100 FOR UPDATE SKIP LOCKED)";

/// See [`tree::Store::delete_thread`](crate::tree::Store::delete_thread).
pub(super) async fn delete_thread(store: &Store, thread: ThreadId) -> Result<bool, Error> {
    let Some(tree) = tree_of(store, thread).await? else {
        return Ok(false);
    };
    let mut transaction = store.turns.begin(tree).await?;
    let deleted = transaction
        .run(move |client| delete(client, tree.0, thread.0).boxed())
        .await?;
    transaction.commit().await?;
    Ok(deleted)
}

/// See [`tree::Store::delete_tree`](crate::tree::Store::delete_tree).
pub(super) async fn delete_tree(store: &Store, thread: ThreadId) -> Result<Vec<ThreadId>, Error> {
    let Some(tree) = tree_of(store, thread).await? else {
        return Ok(Vec::new());
    };
    let mut transaction = store.turns.begin(tree).await?;
    let living = transaction
        .run(move |client| {
            async move {
                client.query(ALLOW_PURGE, &[]).await?;
                let living = living(client, tree.0).await?;
                wipe(client, tree.0).await?;
                Ok(living)
            }
            .boxed()
        })
        .await?;
    transaction.commit().await?;
    Ok(living)
}

/// The living threads of a tree, locked, oldest first.
async fn living(client: &Client, tree: Uuid) -> Result<Vec<ThreadId>, Failure> {
    let mut living = Vec::new();
    for row in client.query(FAMILY, &[&tree]).await? {
        if row.try_get("alive")? {
            living.push(ThreadId(row.try_get("thread_id")?));
        }
    }
    Ok(living)
}

/// Deletes a thread in a transaction that holds the tree. False when somebody else was first.
async fn delete(client: &Client, tree: Uuid, thread: Uuid) -> Result<bool, Failure> {
    client.query(ALLOW_PURGE, &[]).await?;
    let living = living(client, tree).await?;
    if !living.contains(&ThreadId(thread)) {
        return Ok(false);
    }
    if living.len() == 1 {
        wipe(client, tree).await?;
    } else {
        bury(client, tree, thread).await?;
    }
    Ok(true)
}

async fn wipe(client: &Client, tree: Uuid) -> Result<(), Failure> {
    for text in FORGET_DERIVED {
        client.execute(text, &[&tree, &None::<Uuid>]).await?;
    }
    client.query(WIPE, &[&tree]).await?;
    client.execute(WIPE_CONTENT, &[&tree]).await?;
    client.execute(FORGET, &[]).await?;
    Ok(())
}

async fn bury(client: &Client, tree: Uuid, thread: Uuid) -> Result<(), Failure> {
    for text in FORGET_DERIVED {
        client.execute(text, &[&tree, &Some(thread)]).await?;
    }
    for text in BURY {
        client.execute(text, &[&tree, &thread]).await?;
    }
    client.execute(DROP_EVENTS, &[&tree]).await?;
    client.execute(DROP_FACTS, &[&tree]).await?;
    let row = client.query_one(DOOMED, &[&tree]).await?;
    if let Some(doomed) = row.try_get::<_, Option<Vec<Uuid>>>("ids")? {
        event_facts::store(client, tree, &doomed, true).await?;
        client
            .execute(DROP_CHECKPOINTS, &[&tree, &doomed, &true])
            .await?;
    }
    drop_blobs(client, tree).await?;
    client.execute(FORGET, &[]).await?;
    Ok(())
}

/// Deletes a temporary thread together with its run, in the caller's transaction. Nothing of it is
/// left, unless somebody forked it.
pub(in super::super) async fn purge(
    transaction: &Transaction<'_>,
    tree: Uuid,
    thread: Uuid,
) -> Result<(), Failure> {
    let allow = transaction.prepare_cached(ALLOW_PURGE).await?;
    let lock = transaction.prepare_cached(LOCK_TREE).await?;
    let family = transaction.prepare_cached(FAMILY).await?;
    let by_tree: Params<'_, 1> = [&tree];
    let (allowed, locked, members) = tokio::join!(
        biased;
        transaction.query(&allow, &[]),
        transaction.query(&lock, &by_tree),
        transaction.query(&family, &by_tree),
    );
    allowed?;
    locked?;
    if members?.len() > 1 {
        delete(transaction.client(), tree, thread).await?;
        return Ok(());
    }
    let wipe = transaction.prepare_cached(WIPE).await?;
    let wipe_threads = transaction.prepare_cached(WIPE_THREADS).await?;
    let (wiped, threads) = tokio::join!(
        biased;
        transaction.query(&wipe, &by_tree),
        transaction.query(&wipe_threads, &by_tree),
    );
    wiped?;
    threads?;
    Ok(())
}
