//! Forks of a tree, and the paths of many branches at once.

use const_format::formatcp;

use std::sync::Arc;

use super::{
    NODE_COLUMNS, THREAD_COLUMNS, WITHOUT_METADATA, index::node_of, lookup::thread_of,
    paths::bounded,
};
use crate::{
    id::{BranchId, NodeId, ThreadId, TreeId},
    storage::postgres::{
        columns::{Params, Time, all, column, id_if},
        connection::{Object, Result},
    },
    tree::store::rows::{BranchEnd, ForkCursor, MessageNode, PathNode, Relative, ThreadRow},
};

const RELATIVES: &str = formatcp!(
    "SELECT {THREAD_COLUMNS}, (SELECT p.thread_id FROM threads p WHERE p.thread_id = t.parent_thread_id AND p.deleted_at IS NULL LIMIT 1) IS NULL AS parent_deleted
  FROM threads t WHERE t.tree_id = $1 AND t.parent_thread_id IS NOT NULL AND t.deleted_at IS NULL AND (t.created_at, t.thread_id) > ($2, $3)
 ORDER BY t.created_at, t.thread_id LIMIT $4"
);

pub(super) async fn relatives(
    db: &Object,
    tree: TreeId,
    after: ForkCursor,
    limit: usize,
) -> Result<Vec<Relative>> {
    all(
        db,
        RELATIVES,
        &[
            &tree.0,
            &Time(after.created_at),
            &after.thread.0,
            &i64::from(bounded(limit)),
        ],
        |row| {
            Ok(Relative {
                row: thread_of(row)?,
                parent_deleted: column(row, "parent_deleted")?,
            })
        },
    )
    .await
}

const RELATIVE_SIZES: &str = "
SELECT (octet_length(t.metadata::text) + COALESCE(octet_length(t.fork_anchor), 0))::bigint AS size
  FROM threads t WHERE t.tree_id = $1 AND t.parent_thread_id IS NOT NULL AND t.deleted_at IS NULL AND (t.created_at, t.thread_id) > ($2, $3)
 ORDER BY t.created_at, t.thread_id LIMIT $4";

pub(super) async fn relative_sizes(
    db: &Object,
    tree: TreeId,
    after: ForkCursor,
    limit: usize,
) -> Result<Vec<u64>> {
    let limit = i64::from(bounded(limit));
    let params: Params<'_, 4> = [&tree.0, &Time(after.created_at), &after.thread.0, &limit];
    all(db, RELATIVE_SIZES, &params, |row| {
        Ok(column::<i64>(row, "size")?.unsigned_abs())
    })
    .await
}

const FORKS: &str = formatcp!(
    "SELECT {WITHOUT_METADATA} FROM threads t \
     WHERE t.tree_id = $1 AND t.parent_thread_id = $2 AND t.deleted_at IS NULL \
     ORDER BY t.created_at, t.thread_id LIMIT $3"
);

pub(super) async fn forks(
    db: &Object,
    tree: TreeId,
    thread: ThreadId,
    limit: usize,
) -> Result<Vec<ThreadRow>> {
    all(
        db,
        FORKS,
        &[&tree.0, &thread.0, &i64::from(bounded(limit))],
        thread_of,
    )
    .await
}

const ENDS: &str = "
SELECT b.thread_id, b.branch_id, b.name, c.last_node_id FROM branches b LEFT JOIN LATERAL (
    SELECT c.last_node_id FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = b.head_checkpoint_id LIMIT 1) c ON true
 WHERE b.tree_id = $1 AND b.thread_id = ANY($2) ORDER BY b.created_at, b.branch_id";

pub(super) async fn ends(
    db: &Object,
    tree: TreeId,
    threads: &[ThreadId],
) -> Result<Vec<BranchEnd>> {
    let threads: Vec<_> = threads.iter().map(|id| id.0).collect();
    all(db, ENDS, &[&tree.0, &threads], |row| {
        Ok(BranchEnd {
            thread: ThreadId(column(row, "thread_id")?),
            branch: BranchId(column(row, "branch_id")?),
            name: Arc::from(column::<&str>(row, "name")?),
            last: id_if(row, "last_node_id")?,
        })
    })
    .await
}

const NODES: &str = formatcp!(
    "SELECT {NODE_COLUMNS} FROM message_nodes m WHERE m.tree_id = $1 AND m.node_id = ANY($2)"
);

pub(super) async fn nodes(db: &Object, tree: TreeId, ids: &[NodeId]) -> Result<Vec<MessageNode>> {
    let ids: Vec<_> = ids.iter().map(|id| id.0).collect();
    all(db, NODES, &[&tree.0, &ids], node_of).await
}

/// What several paths share is walked once: `UNION` drops the rows that are there already.
const PATHS_TO: &str = "
WITH RECURSIVE up AS (
  SELECT m.node_id, m.parent_node_id, m.ordinal, m.thread_id FROM message_nodes m WHERE m.tree_id = $1 AND m.node_id = ANY($2)
  UNION
  SELECT m.node_id, m.parent_node_id, m.ordinal, m.thread_id FROM up u CROSS JOIN LATERAL (
    SELECT m.node_id, m.parent_node_id, m.ordinal, m.thread_id FROM message_nodes m
     WHERE m.tree_id = $1 AND m.node_id = u.parent_node_id LIMIT 1) m)
SELECT * FROM up LIMIT $3";

pub(super) async fn paths_to(
    db: &Object,
    tree: TreeId,
    ends: &[NodeId],
    limit: usize,
) -> Result<Vec<PathNode>> {
    let ends: Vec<_> = ends.iter().map(|id| id.0).collect();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    all(db, PATHS_TO, &[&tree.0, &ends, &limit], |row| {
        Ok(PathNode {
            id: NodeId(column(row, "node_id")?),
            parent: id_if(row, "parent_node_id")?,
            ordinal: column(row, "ordinal")?,
            thread: ThreadId(column(row, "thread_id")?),
        })
    })
    .await
}

statements!(RELATIVES, RELATIVE_SIZES, FORKS, ENDS, NODES, PATHS_TO);
