//! A part of a conversation that does not end where the path does.

use rusqlite::{Connection, params};

use super::{
    index::{children, read_node},
    paths::bounded,
};
use crate::{
    checkpoint::Error,
    id::{NodeId, TreeId},
    tree::rows::Node,
};

pub(super) const SEGMENT: &str = "WITH RECURSIVE up AS (\
      SELECT node_id, parent_node_id, ordinal, 1 AS n FROM message_nodes \
       WHERE tree_id = ?1 AND node_id = ?2 \
      UNION ALL \
      SELECT m.node_id, m.parent_node_id, m.ordinal, u.n + 1 FROM up u \
        JOIN message_nodes m ON m.tree_id = ?1 AND m.node_id = u.parent_node_id \
       WHERE u.ordinal > ?3 + 1 AND u.n < ?5) \
    SELECT m.node_id, m.parent_node_id, m.ordinal, m.kind, m.message_id, m.edit_of, \
           m.checkpoint_id, m.depth, m.seq, m.settled_checkpoint_id, m.thread_id, \
           m.branch_id, m.run_id, m.role, m.event_number, m.created_at \
      FROM up u CROSS JOIN message_nodes m \
        ON m.tree_id = ?1 AND m.node_id = u.node_id \
     WHERE u.ordinal > ?3 AND u.ordinal <= ?4 ORDER BY u.ordinal";

pub(super) fn segment(
    db: &Connection,
    tree: TreeId,
    end: NodeId,
    after: i32,
    limit: usize,
) -> Result<Vec<Node>, Error> {
    let upto = after.saturating_add(i32::try_from(limit).unwrap_or(i32::MAX));
    let rows = db
        .prepare_cached(SEGMENT)?
        .query_map(
            params![
                tree.0.as_bytes(),
                end.0.as_bytes(),
                after,
                upto,
                bounded(usize::MAX)
            ],
            read_node,
        )?
        .collect::<Result<_, _>>()?;
    Ok(rows)
}

pub(super) fn followers(
    db: &Connection,
    tree: TreeId,
    parents: &[NodeId],
) -> Result<Vec<Node>, Error> {
    let mut nodes = vec![];
    for parent in parents {
        nodes.extend(children(db, tree, Some(*parent))?);
    }
    nodes.sort_by_key(|node| (node.checkpoint, node.seq));
    Ok(nodes)
}
