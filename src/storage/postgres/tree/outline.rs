//! Everything a thread wrote itself, for its outline.

use const_format::formatcp;

use super::{
    NODE_COLUMNS, POINT_COLUMNS,
    index::node_of,
    paths::{bounded, point_of},
};
use crate::{
    id::{CheckpointId, ThreadId, TreeId},
    storage::postgres::{
        columns::all,
        connection::{Object, Result},
    },
    tree::store::rows::{MessageNode, Point},
};

const OWN_POINTS: &str = formatcp!(
    "SELECT {POINT_COLUMNS} FROM checkpoints c WHERE c.tree_id = $1 AND c.thread_id = $2 AND c.checkpoint_ns = '' AND c.depth > $3
 ORDER BY c.depth, c.checkpoint_id LIMIT $4"
);

/// The walk stops at the depth, and reads ids alone.
const INHERITED_POINTS: &str = formatcp!(
    "
WITH RECURSIVE up AS (
  SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth, 1 AS n FROM checkpoints c
   WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = $2
  UNION ALL
  SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth, u.n + 1 FROM up u CROSS JOIN LATERAL (
    SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = u.parent_checkpoint_id LIMIT 1) c
   WHERE u.depth > $3 + 1 AND u.n < $5)
SELECT {POINT_COLUMNS} FROM (SELECT checkpoint_id FROM up WHERE depth > $3 ORDER BY depth LIMIT $4) u
 CROSS JOIN LATERAL (SELECT c.* FROM checkpoints c WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = u.checkpoint_id LIMIT 1) c
 ORDER BY c.depth"
);

const OWN_NODES: &str = formatcp!(
    "SELECT {NODE_COLUMNS} FROM message_nodes m WHERE m.tree_id = $1 AND m.thread_id = $2 AND m.ordinal > $3 AND CASE WHEN m.kind = 'add' THEN true END
 ORDER BY m.ordinal, m.checkpoint_id, m.seq LIMIT $4"
);

pub(super) async fn own_points(
    db: &Object,
    tree: TreeId,
    thread: ThreadId,
    below: i32,
    limit: usize,
) -> Result<Vec<Point>> {
    all(
        db,
        OWN_POINTS,
        &[&tree.0, &thread.0, &below, &i64::from(bounded(limit))],
        point_of,
    )
    .await
}

pub(super) async fn inherited_points(
    db: &Object,
    tree: TreeId,
    base: CheckpointId,
    below: i32,
    limit: usize,
) -> Result<Vec<Point>> {
    all(
        db,
        INHERITED_POINTS,
        &[
            &tree.0,
            &base.0,
            &below,
            &i64::from(bounded(limit)),
            &bounded(usize::MAX),
        ],
        point_of,
    )
    .await
}

pub(super) async fn own_nodes(
    db: &Object,
    tree: TreeId,
    thread: ThreadId,
    after: i32,
    limit: usize,
) -> Result<Vec<MessageNode>> {
    all(
        db,
        OWN_NODES,
        &[&tree.0, &thread.0, &after, &i64::from(bounded(limit))],
        node_of,
    )
    .await
}

statements!(OWN_POINTS, INHERITED_POINTS, OWN_NODES);
