//! Deleting threads and trees, and the tombstones that deleted threads leave.

use deadpool_postgres::Transaction;
use futures::FutureExt;
use tokio_postgres::Client;
use uuid::Uuid;

use super::{
    super::{Store, columns::Params, connection::Result},
    event_facts,
    made_values::MadeValues,
    rows::tree_of,
};
use crate::{checkpoint::Error, id::ThreadId, tree::event::codes::event_code};

/// Lets the rest of the transaction delete events.
const ALLOW_PURGE: &str = "SELECT set_config('backstitch.purge', 'on', true)";

/// The thread and its relatives, tombstones too.
const FAMILY: &str = "
SELECT thread_id, deleted_at IS NULL AS alive FROM threads WHERE tree_id = $1 ORDER BY created_at, thread_id FOR UPDATE";

/// Whoever commits locks its branch before its thread: in another order both would wait for each other. The order of
/// texts is that of ids, and keeps the planner from the index of all branches.
const LOCK_BRANCHES: &str = r#"
SELECT 1 FROM branches b WHERE b.tree_id = $1 AND b.thread_id = ANY (ARRAY(SELECT t.thread_id FROM threads t WHERE t.tree_id = $1))
 ORDER BY b.branch_id::text COLLATE "C" FOR UPDATE"#;

const LOCK_TREE: &str = "SELECT 1 FROM trees WHERE tree_id = $1 FOR UPDATE";

const LOCK_TREE_AT_ONCE: &str = "SELECT 1 FROM trees WHERE tree_id = $1 FOR UPDATE SKIP LOCKED";

/// Everything goes by the threads of the tree, results by its checkpoints. Rows of branches go first,
/// which fences every writer.
const WIPE: &str = "
WITH t AS MATERIALIZED (SELECT array_agg(t.thread_id) AS ids FROM threads t WHERE t.tree_id = $1),
b AS (DELETE FROM branches WHERE tree_id = $1 AND thread_id = ANY ((SELECT ids FROM t)::uuid[])),
r AS (DELETE FROM runs WHERE tree_id = $1 AND run_id = ANY (ARRAY(
  SELECT r.run_id FROM unnest((SELECT ids FROM t)::uuid[]) i(id) CROSS JOIN LATERAL (SELECT r.run_id FROM runs r WHERE r.thread_id = i.id OFFSET 0) r))),
g AS (DELETE FROM tags WHERE tree_id = $1 AND thread_id = ANY ((SELECT ids FROM t)::uuid[])),
x AS (DELETE FROM deleted_runs WHERE tree_id = $1),
w AS (DELETE FROM checkpoint_writes WHERE tree_id = $1 AND checkpoint_id = ANY (ARRAY(
  SELECT c.checkpoint_id FROM unnest((SELECT ids FROM t)::uuid[]) i(id) CROSS JOIN LATERAL (
    SELECT c.checkpoint_id FROM checkpoints c WHERE c.tree_id = $1 AND c.thread_id = i.id OFFSET 0) c))),
c AS (DELETE FROM checkpoints WHERE ctid = ANY (ARRAY(
  SELECT c.ctid FROM unnest((SELECT ids FROM t)::uuid[]) i(id) CROSS JOIN LATERAL (
    SELECT c.ctid FROM checkpoints c WHERE c.tree_id = $1 AND c.thread_id = i.id OFFSET 0) c))),
v AS (DELETE FROM checkpoint_blobs WHERE tree_id = $1),
m AS (DELETE FROM message_nodes WHERE tree_id = $1 AND thread_id = ANY ((SELECT ids FROM t)::uuid[])),
e AS (DELETE FROM events WHERE tree_id = $1 AND thread_id = ANY ((SELECT ids FROM t)::uuid[])),
f AS (DELETE FROM event_facts WHERE tree_id = $1 AND thread_id = ANY ((SELECT ids FROM t)::uuid[])),
k AS (DELETE FROM crons WHERE thread_id = ANY ((SELECT ids FROM t)::uuid[])),
o AS (DELETE FROM trees WHERE tree_id = $1)
SELECT 1";

/// What is derived from one thread of a tree, or from all of them, while their rows are there.
const FORGET_DERIVED: [&str; 2] = [
    "DELETE FROM projection_offsets WHERE thread_id = ANY (ARRAY(SELECT t.thread_id FROM threads t WHERE t.tree_id = $1 AND ($2::uuid IS NULL OR t.thread_id = $2)))",
    "DELETE FROM thread_heads WHERE tree_id = $1 AND thread_id = ANY (ARRAY(SELECT t.thread_id FROM threads t WHERE t.tree_id = $1 AND ($2::uuid IS NULL OR t.thread_id = $2)))",
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
const DELETE_OWN_ROWS: [&str; 5] = [
    "DELETE FROM crons WHERE thread_id = (SELECT t.thread_id FROM threads t WHERE t.tree_id = $1 AND t.thread_id = $2)",
    "DELETE FROM tags WHERE tree_id = $1 AND thread_id = $2",
    "DELETE FROM branches WHERE tree_id = $1 AND thread_id = $2",
    "DELETE FROM runs WHERE tree_id = $1 AND thread_id = $2",
    "UPDATE threads SET deleted_at = now(), metadata = '{}', config = '{}', active_branch_id = NULL
      WHERE tree_id = $1 AND thread_id = $2",
];

/// Rows of dead threads that are on no living thread's path. What a living thread wrote is no such row, and
/// leads on to the base of that thread, which is looked at by itself: the walk is through dead threads alone.
const UNREACHABLE: &str = "
WITH RECURSIVE keep AS (
  SELECT c.checkpoint_id, c.parent_checkpoint_id FROM threads t CROSS JOIN LATERAL (
    SELECT c.checkpoint_id, c.parent_checkpoint_id, c.thread_id FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = t.fork_checkpoint_id LIMIT 1) c
   WHERE t.tree_id = $1 AND t.deleted_at IS NULL
     AND (SELECT d.deleted_at IS NULL FROM threads d WHERE d.thread_id = c.thread_id) IS NOT TRUE
  UNION SELECT c.checkpoint_id, c.parent_checkpoint_id FROM keep k CROSS JOIN LATERAL (
    SELECT c.checkpoint_id, c.parent_checkpoint_id, c.thread_id FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = k.parent_checkpoint_id LIMIT 1) c
   WHERE (SELECT d.deleted_at IS NULL FROM threads d WHERE d.thread_id = c.thread_id) IS NOT TRUE)
SELECT array_agg(c.checkpoint_id) AS ids FROM threads t CROSS JOIN LATERAL (
    SELECT c.checkpoint_id FROM checkpoints c WHERE c.tree_id = $1 AND c.thread_id = t.thread_id AND c.checkpoint_ns = '' OFFSET 0) c
 WHERE t.tree_id = $1 AND CASE WHEN t.deleted_at IS NOT NULL THEN true END AND c.checkpoint_id NOT IN (SELECT k.checkpoint_id FROM keep k)";

/// Checkpoints of the root graph with all rows that belong to them; with `$3` messages that begin there
/// too, and those after them, whose own checkpoints may have been pruned.
pub(in super::super) const DROP_CHECKPOINTS: &str = "
WITH RECURSIVE dead AS (
  SELECT m.node_id FROM message_nodes m WHERE $3 AND m.tree_id = $1 AND m.checkpoint_id = ANY ($2)
  UNION SELECT n.node_id FROM dead d CROSS JOIN LATERAL (
    SELECT n.node_id FROM message_nodes n WHERE n.tree_id = $1 AND n.parent_node_id = d.node_id OFFSET 0) n),
w AS (DELETE FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.checkpoint_ns = '' AND w.checkpoint_id = ANY ($2)),
m AS (DELETE FROM message_nodes m WHERE m.tree_id = $1 AND m.node_id = ANY (ARRAY(SELECT d.node_id FROM dead d))),
sw AS (DELETE FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.checkpoint_ns <> '' AND w.checkpoint_id = ANY (ARRAY(
  SELECT s.checkpoint_id FROM checkpoints s WHERE s.tree_id = $1 AND s.checkpoint_ns <> '' AND s.root_checkpoint_id = ANY ($2)))),
s AS (DELETE FROM checkpoints s WHERE s.tree_id = $1 AND s.checkpoint_ns <> '' AND s.root_checkpoint_id = ANY ($2))
DELETE FROM checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = ANY ($2)";

/// Numbers up to a fork's point are coordinates of that fork, as long as it or a fork of it lives. A row of two
/// events goes when the first one is behind that point.
const DROP_EVENTS: &str = concat!(
    "
WITH RECURSIVE needed AS (
  SELECT thread_id, parent_thread_id, fork_event_number FROM threads WHERE tree_id = $1 AND deleted_at IS NULL
  UNION SELECT t.thread_id, t.parent_thread_id, t.fork_event_number FROM needed n CROSS JOIN LATERAL (
    SELECT t.* FROM threads t WHERE t.thread_id = n.parent_thread_id LIMIT 1) t),
dead AS MATERIALIZED (
  SELECT t.thread_id, COALESCE(max(n.fork_event_number), 0) AS upto FROM threads t LEFT JOIN needed n ON n.parent_thread_id = t.thread_id
   WHERE t.tree_id = $1 AND CASE WHEN t.deleted_at IS NOT NULL THEN true END GROUP BY t.thread_id)
DELETE FROM events e USING dead d WHERE e.tree_id = $1 AND e.thread_id = d.thread_id AND e.event_number > d.upto
   AND e.event_number > d.upto + CASE WHEN e.kind IN (",
    event_code!(ENQUEUED_AND_STARTED),
    ", ",
    event_code!(CREATED_AND_FINISHED),
    ") THEN 1 ELSE 0 END
   AND e.thread_id = ANY (ARRAY(SELECT thread_id FROM dead))"
);

const DROP_FACTS: &str = concat!(
    "
DELETE FROM event_facts f WHERE f.tree_id = $1
   AND f.thread_id = ANY (ARRAY(SELECT t.thread_id FROM threads t WHERE t.tree_id = $1 AND CASE WHEN t.deleted_at IS NOT NULL THEN true END))
   AND (SELECT 1 FROM events e WHERE e.tree_id = $1 AND e.thread_id = f.thread_id AND e.event_number = f.event_number) IS NULL
   AND (SELECT 1 FROM events e WHERE e.tree_id = $1 AND e.thread_id = f.thread_id AND e.event_number = f.event_number + 1 AND e.kind = ",
    event_code!(CREATED_AND_FINISHED),
    ") IS NULL"
);

/// Tombstones that are old and that nothing refers to.
const FORGET: &str = "
DELETE FROM threads WHERE thread_id IN (
  SELECT t.thread_id FROM threads t WHERE t.deleted_at < now() - interval '30 days'
     AND (SELECT 1 FROM threads k WHERE k.parent_thread_id = t.thread_id LIMIT 1) IS NULL
     AND (SELECT 1 FROM events e WHERE e.tree_id = t.tree_id AND e.thread_id = t.thread_id LIMIT 1) IS NULL
     AND (SELECT 1 FROM checkpoints c WHERE c.tree_id = t.tree_id AND c.thread_id = t.thread_id LIMIT 1) IS NULL
   LIMIT 100 FOR UPDATE SKIP LOCKED)";

/// See [`tree::Store::delete_thread`](crate::tree::Store::delete_thread).
pub(in super::super) async fn delete_thread(
    store: &Store,
    thread: ThreadId,
) -> Result<bool, Error> {
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
pub(in super::super) async fn delete_tree(
    store: &Store,
    thread: ThreadId,
) -> Result<Vec<ThreadId>, Error> {
    let Some(tree) = tree_of(store, thread).await? else {
        return Ok(Vec::new());
    };
    let mut transaction = store.turns.begin(tree).await?;
    let living = transaction
        .run(move |client| delete_all(client, tree.0).boxed())
        .await?;
    transaction.commit().await?;
    Ok(living)
}

/// Deletes a tree in a transaction that holds it; returns the threads that were not deleted before.
pub(in super::super) async fn delete_all(client: &Client, tree: Uuid) -> Result<Vec<ThreadId>> {
    client.query(ALLOW_PURGE, &[]).await?;
    client.query(LOCK_BRANCHES, &[&tree]).await?;
    let living = living(client, tree).await?;
    wipe(client, tree).await?;
    Ok(living)
}

/// The living threads of a tree, locked, oldest first.
async fn living(client: &Client, tree: Uuid) -> Result<Vec<ThreadId>> {
    let mut living = Vec::new();
    for row in client.query(FAMILY, &[&tree]).await? {
        if row.try_get("alive")? {
            living.push(ThreadId(row.try_get("thread_id")?));
        }
    }
    Ok(living)
}

/// Deletes a thread in a transaction that holds the tree. False when somebody else was first.
pub(in super::super) async fn delete(client: &Client, tree: Uuid, thread: Uuid) -> Result<bool> {
    client.query(ALLOW_PURGE, &[]).await?;
    client.query(LOCK_BRANCHES, &[&tree]).await?;
    delete_alone(client, tree, thread).await
}

/// As [`delete`], without locking branches of other threads first.
async fn delete_alone(client: &Client, tree: Uuid, thread: Uuid) -> Result<bool> {
    let living = living(client, tree).await?;
    if !living.contains(&ThreadId(thread)) {
        return Ok(false);
    }
    if living.len() == 1 {
        wipe(client, tree).await?;
    } else {
        leave_tombstone(client, tree, thread).await?;
    }
    Ok(true)
}

async fn wipe(client: &Client, tree: Uuid) -> Result<()> {
    for text in FORGET_DERIVED {
        client.execute(text, &[&tree, &None::<Uuid>]).await?;
    }
    client.query(WIPE, &[&tree]).await?;
    client.execute(WIPE_CONTENT, &[&tree]).await?;
    client.execute(FORGET, &[]).await?;
    Ok(())
}

async fn leave_tombstone(client: &Client, tree: Uuid, thread: Uuid) -> Result<()> {
    for text in FORGET_DERIVED {
        client.execute(text, &[&tree, &Some(thread)]).await?;
    }
    for text in DELETE_OWN_ROWS {
        client.execute(text, &[&tree, &thread]).await?;
    }
    client.execute(DROP_EVENTS, &[&tree]).await?;
    client.execute(DROP_FACTS, &[&tree]).await?;
    let row = client.query_one(UNREACHABLE, &[&tree]).await?;
    if let Some(unreachable) = row.try_get::<_, Option<Vec<Uuid>>>("ids")? {
        let made = MadeValues::by(client, tree, &unreachable, None).await?;
        event_facts::store(client, tree, &unreachable, true).await?;
        client
            .execute(DROP_CHECKPOINTS, &[&tree, &unreachable, &true])
            .await?;
        // What stays descends from none of them, or they would be on a living thread's path.
        let newest = Some(Uuid::max());
        made.drop(client, tree, thread, newest).await?;
    }
    client.execute(FORGET, &[]).await?;
    Ok(())
}

/// Locks a tree for [`purge`] unless somebody else has: false then. For who has locked a branch or a run of it.
pub(in super::super) async fn lock_tree_at_once(
    transaction: &Transaction<'_>,
    tree: Uuid,
) -> Result<bool> {
    let lock = transaction.prepare_cached(LOCK_TREE_AT_ONCE).await?;
    Ok(transaction.query_opt(&lock, &[&tree]).await?.is_some())
}

/// Locks a tree for [`purge`], before the transaction locks a branch or a run of it: whoever deletes, rolls back or forks
/// locks them in this order.
pub(in super::super) async fn lock_tree(transaction: &Transaction<'_>, tree: Uuid) -> Result<()> {
    let lock = transaction.prepare_cached(LOCK_TREE).await?;
    transaction.query(&lock, &[&tree]).await?;
    Ok(())
}

/// Deletes a temporary thread together with its run, in the caller's transaction, which has locked its tree. Nothing of
/// it is left, unless somebody forked it.
pub(in super::super) async fn purge(
    transaction: &Transaction<'_>,
    tree: Uuid,
    thread: Uuid,
) -> Result<()> {
    let allow = transaction.prepare_cached(ALLOW_PURGE).await?;
    let family = transaction.prepare_cached(FAMILY).await?;
    let by_tree: Params<'_, 1> = [&tree];
    let (allowed, members) = tokio::join!(
        biased;
        transaction.query(&allow, &[]),
        transaction.query(&family, &by_tree),
    );
    allowed?;
    if members?.len() > 1 {
        // The threads are locked already: branches come before them, if at all.
        delete_alone(transaction.client(), tree, thread).await?;
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

statements!(
    ALLOW_PURGE,
    FAMILY,
    LOCK_BRANCHES,
    LOCK_TREE,
    LOCK_TREE_AT_ONCE,
    WIPE,
    FORGET_DERIVED,
    WIPE_THREADS,
    WIPE_CONTENT,
    DELETE_OWN_ROWS,
    UNREACHABLE,
    DROP_CHECKPOINTS,
    DROP_EVENTS,
    DROP_FACTS,
    FORGET
);
