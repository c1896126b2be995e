//! Independent copies of threads.

use std::sync::Arc;

use futures::FutureExt;
use tokio_postgres::Client;
use uuid::Uuid;

use super::{
    super::{
        Store,
        columns::column,
        connection::{self, Result},
        events,
        tree::level_on_thread,
    },
    blobs::Named,
    create::MAKE_ROOM,
    rows::{SELECT, line_of, thread_of},
};
use crate::{
    checkpoint::Error,
    id::{ThreadId, TreeId},
    tree::{Copied, NewCopy},
};

/// A copy pins what it reads until it is done, and keeps changes of rights out.
const SOURCE: &str = "
SELECT t.tree_id FROM threads t JOIN trees x ON x.tree_id = t.tree_id WHERE t.thread_id = $1 AND t.deleted_at IS NULL
   FOR SHARE OF x";

const IS_TAKEN: &str = "SELECT 1 FROM threads WHERE thread_id = $1";

/// Own root checkpoints and the path of the fork base.
const VISIBLE: &str = "
WITH RECURSIVE up AS (
  SELECT c.checkpoint_id, c.parent_checkpoint_id FROM checkpoints c
   WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = (SELECT t.fork_checkpoint_id FROM threads t WHERE t.thread_id = $2)
  UNION ALL SELECT c.checkpoint_id, c.parent_checkpoint_id FROM up u CROSS JOIN LATERAL (
    SELECT c.checkpoint_id, c.parent_checkpoint_id FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = u.parent_checkpoint_id LIMIT 1) c),
x AS (SELECT checkpoint_id FROM up UNION SELECT checkpoint_id FROM checkpoints WHERE tree_id = $1 AND thread_id = $2 AND checkpoint_ns = '')
SELECT COALESCE(array_agg(checkpoint_id), '{}') AS ids FROM x";

/// The branches whose writes and graphs inside belong to what is visible.
const OWNERS: &str = "
SELECT COALESCE(array_agg(branch_id), '{}') AS ids FROM (
  SELECT branch_id FROM branches WHERE tree_id = $1 AND thread_id = $2
  UNION SELECT branch_id FROM checkpoints WHERE tree_id = $1 AND checkpoint_ns = '' AND checkpoint_id = ANY($3)) x";

const THREAD: &str = "
WITH x AS (INSERT INTO trees (tree_id, owner) VALUES ($1, $2))
INSERT INTO threads (thread_id, tree_id, active_branch_id, metadata, config, owner)
SELECT $1, $1, active_branch_id, metadata, config, $2 FROM threads WHERE thread_id = $3";

/// States inside that a fork shares at the checkpoint where it begins may be those of a branch further up. In the copy they
/// belong to the source of the fork's own branch: rows of branches are copied of this thread alone, so that nothing would
/// lead further up.
const CHECKPOINTS: &str = "
WITH RECURSIVE shared AS (
  SELECT b.source_branch_id AS source, b.source_branch_id AS id, b.creation_id AS creation, 1 AS n FROM branches b
   WHERE b.tree_id = $1 AND b.thread_id = $5 AND b.creation_id IS NOT NULL
  UNION ALL
  SELECT a.source, s.source_branch_id, LEAST(a.creation, s.creation_id), a.n + 1 FROM shared a CROSS JOIN LATERAL (
    SELECT s.source_branch_id, s.creation_id FROM branches s WHERE s.tree_id = $1 AND s.branch_id = a.id
       AND s.creation_id IS NOT NULL LIMIT 1) s),
others AS (
  SELECT h.* FROM shared h WHERE h.id <> ALL (ARRAY(SELECT b.branch_id FROM branches b WHERE b.tree_id = $1 AND b.thread_id = $5)))
INSERT INTO checkpoints (tree_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, depth, thread_id, branch_id, root_checkpoint_id,
       last_node_id, run_id, source, step, checkpoint, blob_versions, metadata, created_at, run_supersteps, graph_id, assistant_id,
       result_task, result_header, result)
SELECT $2, c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.depth, $2, COALESCE(h.source, c.branch_id), c.root_checkpoint_id,
       c.last_node_id, c.run_id, c.source, c.step, c.checkpoint, c.blob_versions, c.metadata, c.created_at, c.run_supersteps,
       c.graph_id, c.assistant_id, c.result_task, c.result_header, c.result FROM (
    SELECT c.* FROM checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = ANY($3)
    UNION ALL
    SELECT c.* FROM checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns <> '' AND c.root_checkpoint_id = ANY($3)) c
  LEFT JOIN LATERAL (SELECT h.source FROM others h WHERE h.id = c.branch_id AND c.checkpoint_id < h.creation
       AND c.checkpoint_ns <> '' AND c.root_checkpoint_id = (SELECT t.fork_checkpoint_id FROM threads t WHERE t.thread_id = $5)
     ORDER BY h.n LIMIT 1) h ON true
 WHERE CASE WHEN c.checkpoint_ns = '' THEN true WHEN c.branch_id IN (SELECT unnest($4::uuid[])) THEN true WHEN h.source IS NOT NULL THEN true
         ELSE (SELECT 1 FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.checkpoint_ns = c.checkpoint_ns
             AND w.checkpoint_id = c.checkpoint_id AND w.branch_id = ANY ($4) AND w.idx = -3 LIMIT 1) IS NOT NULL END";

/// The copy is a tree of one thread, whose id is that of the tree.
const WRITES: &str = "
INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, task_id, idx, task_path, channel, type, writes)
SELECT $2, w.checkpoint_ns, w.checkpoint_id, w.branch_id, w.task_id, w.idx, w.task_path, w.channel, w.type, w.writes
  FROM checkpoints c CROSS JOIN LATERAL (SELECT w.* FROM checkpoint_writes w
    WHERE w.tree_id = $1 AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id OFFSET 0) w
 WHERE c.tree_id = $2 AND c.thread_id = $2 AND CASE WHEN w.branch_id IN (SELECT unnest($3::uuid[])) THEN true END";

const BRANCHES: &str = "
INSERT INTO branches (tree_id, branch_id, thread_id, name, head_checkpoint_id, head_depth, version, outcome, error, origin,
       source_branch_id, creation_id, created_at)
SELECT $3, branch_id, $3, name, head_checkpoint_id, head_depth, version, outcome, error,
       CASE origin WHEN 'fork' THEN 'root' ELSE origin END, source_branch_id, creation_id, created_at
  FROM branches WHERE tree_id = $1 AND thread_id = $2";

const TAGS: &str = "
INSERT INTO tags (tree_id, thread_id, name, checkpoint_id, depth, message_id, created_at, updated_at)
SELECT $3, $3, name, checkpoint_id, depth, message_id, created_at, updated_at FROM tags WHERE tree_id = $1 AND thread_id = $2";

/// Messages whose checkpoint was pruned stay in the chain.
const NODES: &str = "
WITH RECURSIVE chain AS (
  SELECT c.last_node_id AS id FROM checkpoints c
   WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = (SELECT t.fork_checkpoint_id FROM threads t WHERE t.thread_id = $2)
  UNION ALL SELECT m.parent_node_id FROM chain k CROSS JOIN LATERAL (
    SELECT m.parent_node_id FROM message_nodes m WHERE m.tree_id = $1 AND m.node_id = k.id LIMIT 1) m),
nodes AS (
  SELECT id FROM chain
  UNION SELECT m.node_id FROM message_nodes m WHERE m.tree_id = $1 AND m.thread_id = $2
  UNION SELECT m.node_id FROM message_nodes m WHERE m.tree_id = $1 AND m.checkpoint_id = ANY($4))
INSERT INTO message_nodes (tree_id, node_id, parent_node_id, ordinal, kind, message_id, edit_of, checkpoint_id, depth, seq,
       settled_checkpoint_id, thread_id, branch_id, run_id, role, created_at)
SELECT $3, m.node_id, m.parent_node_id, m.ordinal, m.kind, m.message_id, m.edit_of, m.checkpoint_id, m.depth, m.seq,
       m.settled_checkpoint_id, $3, m.branch_id, m.run_id, m.role, m.created_at
  FROM nodes n CROSS JOIN LATERAL (SELECT m.* FROM message_nodes m WHERE m.tree_id = $1 AND m.node_id = n.id LIMIT 1) m";

const RESULTS: &str = "
SELECT w.checkpoint_ns, w.type, w.writes FROM checkpoints c CROSS JOIN LATERAL (SELECT w.* FROM all_checkpoint_writes w
    WHERE w.tree_id = $1 AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id AND w.idx = 0 OFFSET 0) w
 WHERE c.tree_id = $1 AND c.thread_id = $1";

/// What the copied checkpoints and results name, with the chains of deltas.
const BLOBS: &str = "
WITH RECURSIVE named AS (
  SELECT c.checkpoint_ns, v.key COLLATE \"C\" AS channel, v.value COLLATE \"C\" AS version
    FROM checkpoints c, jsonb_each_text(c.blob_versions) v WHERE c.tree_id = $2 AND c.thread_id = $2
  UNION
  SELECT x.ns COLLATE \"C\", x.channel COLLATE \"C\", x.version COLLATE \"C\" FROM unnest($3::text[], $4::text[], $5::text[]) x(ns, channel, version)
  UNION
  SELECT b.checkpoint_ns, b.channel, b.base_version FROM named n CROSS JOIN LATERAL (
    SELECT b.checkpoint_ns, b.channel, b.base_version FROM checkpoint_blobs b WHERE b.tree_id = $1
       AND b.checkpoint_ns = n.checkpoint_ns AND b.channel = n.channel AND b.version = n.version LIMIT 1) b WHERE b.base_version IS NOT NULL)
INSERT INTO checkpoint_blobs (tree_id, checkpoint_ns, channel, version, base_version, chain_bytes, type, blob)
SELECT $2, b.checkpoint_ns, b.channel, b.version, b.base_version, b.chain_bytes, b.type, b.blob
  FROM named n CROSS JOIN LATERAL (SELECT b.* FROM checkpoint_blobs b WHERE b.tree_id = $1
    AND b.checkpoint_ns = n.checkpoint_ns AND b.channel = n.channel AND b.version = n.version LIMIT 1) b";

/// See [`tree::Store::copy_thread`](crate::tree::Store::copy_thread).
pub(in super::super) async fn copy_thread(
    store: &Store,
    from: ThreadId,
    new: &NewCopy,
) -> Result<Copied, Error> {
    let new = &Arc::new(new.clone());
    let line = line_of(store, &store.pools.reads, from).await?;
    let mut transaction = store.turns.snapshot(line).await?;
    let source = transaction
        .run(move |client| async move { lock_source(client, from).await }.boxed())
        .await?;
    let Some(tree) = source else {
        return Ok(Copied::Missing);
    };
    if let Some(reader) = &new.reader
        && !may_read(store, from, reader).await?
    {
        return Ok(Copied::Missing);
    }
    transaction.share_tree();
    let copied = transaction
        .run(move |client| {
            let new = Arc::clone(new);
            async move { copy_rows(client, tree, from, &new).await }.boxed()
        })
        .await?;
    if matches!(copied, Copied::Done(_)) {
        transaction.commit().await?;
    }
    Ok(copied)
}

/// The tree of the source, locked.
async fn lock_source(client: &Client, from: ThreadId) -> Result<Option<Uuid>> {
    let row = client.query_opt(SOURCE, &[&from.0]).await?;
    let tree = row.map(|row| column::<Uuid>(&row, "tree_id"));
    Ok(tree.transpose()?)
}

/// Whether somebody may read the source, now that its tree is locked. The transaction of the copy reads a snapshot
/// from before it waited for the lock, in which a level that was withdrawn meanwhile is still there: another connection
/// sees what was committed until now, and no level changes before the copy is done.
async fn may_read(store: &Store, from: ThreadId, reader: &str) -> Result<bool, Error> {
    let level = connection::retry(&store.pools.reads, |db| async move {
        level_on_thread(&db, from, reader).await
    });
    Ok(level.await?.is_some())
}

async fn copy_rows(client: &Client, tree: Uuid, from: ThreadId, new: &NewCopy) -> Result<Copied> {
    let to = TreeId::of_root(new.id);
    client.execute(MAKE_ROOM, &[&new.id.0]).await?;
    if client.query_opt(IS_TAKEN, &[&new.id.0]).await?.is_some() {
        return Ok(Copied::Taken);
    }
    let row = client.query_one(VISIBLE, &[&tree, &from.0]).await?;
    let visible: Vec<Uuid> = column(&row, "ids")?;
    if visible.len() > new.limit {
        return Ok(Copied::TooLarge);
    }
    let row = client
        .query_one(OWNERS, &[&tree, &from.0, &visible])
        .await?;
    let owners: Vec<Uuid> = column(&row, "ids")?;
    client
        .execute(THREAD, &[&to.0, &new.owner, &from.0])
        .await?;
    client
        .execute(CHECKPOINTS, &[&tree, &to.0, &visible, &owners, &from.0])
        .await?;
    client.execute(WRITES, &[&tree, &to.0, &owners]).await?;
    for text in [BRANCHES, TAGS] {
        client.execute(text, &[&tree, &from.0, &to.0]).await?;
    }
    client
        .execute(NODES, &[&tree, &from.0, &to.0, &visible])
        .await?;
    let results = client.query(RESULTS, &[&to.0]).await?;
    let named = Named::by(&results)?;
    client
        .execute(
            BLOBS,
            &[&tree, &to.0, &named.nss, &named.channels, &named.versions],
        )
        .await?;
    events::append(client, to, new.id, &new.events).await?;
    let row = client.query_one(SELECT, &[&new.id.0]).await?;
    Ok(Copied::Done(Box::new(thread_of(&row)?)))
}

statements!(
    SOURCE,
    IS_TAKEN,
    VISIBLE,
    OWNERS,
    THREAD,
    CHECKPOINTS,
    WRITES,
    BRANCHES,
    TAGS,
    NODES,
    RESULTS,
    BLOBS
);
