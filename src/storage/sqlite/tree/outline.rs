//! Everything a thread wrote itself, for its outline.

use const_format::formatcp;
use rusqlite::{Connection, params};

use super::{
    NODE_COLUMNS, POINT_COLUMNS,
    index::read_node,
    paths::{bounded, read_point},
};
use crate::{
    checkpoint::Result,
    id::{CheckpointId, ThreadId, TreeId},
    storage::sqlite::columns::all,
    tree::store::rows::{MessageNode, Point},
};

pub(in super::super) const OWN_POINTS: &str = formatcp!(
    "SELECT {POINT_COLUMNS} FROM checkpoints c INDEXED BY checkpoints_depth \
     WHERE c.tree_id = ?1 AND c.thread_id = ?2 AND c.checkpoint_ns = '' AND c.depth > ?3 \
     ORDER BY c.depth, c.checkpoint_id LIMIT ?4"
);

pub(super) fn own_points(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    below: i32,
    limit: usize,
) -> Result<Vec<Point>> {
    all(
        db,
        OWN_POINTS,
        params![tree, thread, below, bounded(limit)],
        read_point,
    )
}

/// The walk stops at the depth, and reads ids alone.
pub(super) const INHERITED_POINTS: &str = formatcp!(
    "WITH RECURSIVE up AS (\
       SELECT checkpoint_id, parent_checkpoint_id, depth, 1 AS n FROM checkpoints \
        WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2 \
       UNION ALL \
       SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth, u.n + 1 FROM up u \
         CROSS JOIN checkpoints c ON c.tree_id = ?1 AND c.checkpoint_ns = '' \
          AND c.checkpoint_id = u.parent_checkpoint_id \
        WHERE u.depth > ?3 + 1 AND u.n < ?5) \
     SELECT {POINT_COLUMNS} FROM (SELECT checkpoint_id FROM up WHERE depth > ?3 ORDER BY depth LIMIT ?4) u \
     CROSS JOIN checkpoints c ON c.tree_id = ?1 AND c.checkpoint_ns = '' \
       AND c.checkpoint_id = u.checkpoint_id \
     ORDER BY c.depth"
);

pub(super) fn inherited_points(
    db: &Connection,
    tree: TreeId,
    base: CheckpointId,
    below: i32,
    limit: usize,
) -> Result<Vec<Point>> {
    all(
        db,
        INHERITED_POINTS,
        params![tree, base, below, bounded(limit), bounded(usize::MAX)],
        read_point,
    )
}

pub(super) const OWN_NODES: &str = formatcp!(
    "SELECT {NODE_COLUMNS} FROM message_nodes m INDEXED BY message_nodes_thread \
     WHERE m.tree_id = ?1 AND m.thread_id = ?2 AND m.kind = 'add' AND m.ordinal > ?3 \
     ORDER BY m.ordinal, m.checkpoint_id, m.seq LIMIT ?4"
);

pub(super) fn own_nodes(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    after: i32,
    limit: usize,
) -> Result<Vec<MessageNode>> {
    all(
        db,
        OWN_NODES,
        params![tree, thread, after, bounded(limit)],
        read_node,
    )
}
