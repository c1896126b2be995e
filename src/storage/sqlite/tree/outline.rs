//! Everything a thread wrote itself, for its outline.

use rusqlite::{Connection, params};

use super::{
    index::read_node,
    paths::{bounded, read_point},
};
use crate::{
    checkpoint::Error,
    id::{ThreadId, TreeId},
    storage::sqlite::columns::all,
    tree::store::rows::{MessageNode, Point},
};

pub(in super::super) const OWN_POINTS: &str = concat!(
    "SELECT ",
    point_columns!(),
    "FROM checkpoints c INDEXED BY checkpoints_depth \
     WHERE c.tree_id = ?1 AND c.thread_id = ?2 AND c.checkpoint_ns = '' AND c.depth > ?3 \
     ORDER BY c.depth, c.checkpoint_id LIMIT ?4"
);

pub(super) fn own_points(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    below: i32,
    limit: usize,
) -> Result<Vec<Point>, Error> {
    all(
        db,
        OWN_POINTS,
        params![
            tree.0.as_bytes(),
            thread.0.as_bytes(),
            below,
            bounded(limit)
        ],
        read_point,
    )
}

pub(super) const OWN_NODES: &str = concat!(
    "SELECT ",
    node_columns!(),
    "FROM message_nodes m INDEXED BY message_nodes_thread \
     WHERE m.tree_id = ?1 AND m.thread_id = ?2 AND m.kind = 'add' AND m.ordinal > ?3 \
     ORDER BY m.ordinal, m.checkpoint_id, m.seq LIMIT ?4"
);

pub(super) fn own_nodes(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    after: i32,
    limit: usize,
) -> Result<Vec<MessageNode>, Error> {
    all(
        db,
        OWN_NODES,
        params![
            tree.0.as_bytes(),
            thread.0.as_bytes(),
            after,
            bounded(limit)
        ],
        read_node,
    )
}
