//! Everything a thread wrote itself, for its outline.

use rusqlite::{Connection, params};

use super::{
    index::read_node,
    paths::{bounded, read_point},
};
use crate::{
    checkpoint::Error,
    id::{ThreadId, TreeId},
    tree::store::rows::{MessageNode, Point},
};

pub(super) const OWN_POINTS: &str = "SELECT checkpoint_id, parent_checkpoint_id, depth, thread_id, branch_id, \
    last_node_id, event_number, run_id, source, step, created_at FROM checkpoints \
    INDEXED BY checkpoints_thread \
    WHERE tree_id = ?1 AND thread_id = ?2 AND checkpoint_ns = '' AND depth > ?3 \
    ORDER BY depth, checkpoint_id LIMIT ?4";

pub(super) fn own_points(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    below: i32,
    limit: usize,
) -> Result<Vec<Point>, Error> {
    let rows = db
        .prepare_cached(OWN_POINTS)?
        .query_map(
            params![
                tree.0.as_bytes(),
                thread.0.as_bytes(),
                below,
                bounded(limit)
            ],
            read_point,
        )?
        .collect::<Result<_, _>>()?;
    Ok(rows)
}

pub(super) const OWN_NODES: &str = "SELECT node_id, parent_node_id, ordinal, kind, message_id, edit_of, checkpoint_id, \
    depth, seq, settled_checkpoint_id, thread_id, branch_id, run_id, role, event_number, \
    created_at FROM message_nodes \
    WHERE tree_id = ?1 AND thread_id = ?2 AND kind = 'add' AND ordinal > ?3 \
    ORDER BY ordinal, checkpoint_id, seq LIMIT ?4";

pub(super) fn own_nodes(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    after: i32,
    limit: usize,
) -> Result<Vec<MessageNode>, Error> {
    let rows = db
        .prepare_cached(OWN_NODES)?
        .query_map(
            params![
                tree.0.as_bytes(),
                thread.0.as_bytes(),
                after,
                bounded(limit)
            ],
            read_node,
        )?
        .collect::<Result<_, _>>()?;
    Ok(rows)
}
