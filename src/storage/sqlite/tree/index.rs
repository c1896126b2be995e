//! Nodes of the message index, and the chains of them.

use std::sync::Arc;

use const_format::formatcp;
use rusqlite::{Connection, Row, params};

use super::{NODE_COLUMNS, paths::bounded};
use crate::{
    checkpoint::Result,
    id::{NodeId, TreeId},
    storage::sqlite::columns::{all, id, id_if, one, parsed},
    time::Timestamp,
    tree::store::rows::MessageNode,
};

pub(super) fn read_node(row: &Row<'_>) -> rusqlite::Result<MessageNode> {
    Ok(MessageNode {
        id: id(row, 0)?,
        parent: id_if(row, 1)?,
        ordinal: row.get(2)?,
        change: parsed(row, 3)?,
        message_id: row.get(4)?,
        edit_of: row.get(5)?,
        checkpoint: id(row, 6)?,
        depth: row.get(7)?,
        seq: row.get(8)?,
        turn_end: id_if(row, 9)?,
        thread: id(row, 10)?,
        branch: id(row, 11)?,
        run: id_if(row, 12)?,
        role: row.get(13)?,
        event_number: row.get(14)?,
        created_at: Timestamp(row.get(15)?),
    })
}

pub(super) const NODE: &str =
    formatcp!("SELECT {NODE_COLUMNS} FROM message_nodes m WHERE m.tree_id = ?1 AND m.node_id = ?2");

pub(super) fn node(db: &Connection, tree: TreeId, node: NodeId) -> Result<Option<MessageNode>> {
    one(db, NODE, params![tree, node], read_node)
}

pub(super) const OF_MESSAGE: &str = formatcp!(
    "SELECT {NODE_COLUMNS} FROM message_nodes m INDEXED BY message_nodes_message \
     WHERE m.tree_id = ?1 AND m.message_id = ?2"
);

pub(super) fn nodes_of(
    db: &Connection,
    tree: TreeId,
    ids: &[Arc<str>],
) -> Result<Vec<MessageNode>> {
    let mut ids: Vec<&str> = ids.iter().map(|id| &**id).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut statement = db.prepare_cached(OF_MESSAGE)?;
    let mut nodes: Vec<MessageNode> = Vec::new();
    for message in ids {
        for node in statement.query_map(params![tree, message], read_node)? {
            nodes.push(node?);
        }
    }
    nodes.sort_by_key(|node| std::cmp::Reverse((node.checkpoint, node.seq)));
    Ok(nodes)
}

pub(super) fn nodes_of_trees(
    db: &Connection,
    messages: &[(TreeId, Arc<str>)],
) -> Result<Vec<(TreeId, MessageNode)>> {
    let mut statement = db.prepare_cached(OF_MESSAGE)?;
    let mut nodes: Vec<(TreeId, MessageNode)> = Vec::new();
    for (tree, message) in messages {
        for node in statement.query_map(params![tree, message], read_node)? {
            nodes.push((*tree, node?));
        }
    }
    nodes.sort_by_key(|(_, node)| std::cmp::Reverse((node.checkpoint, node.seq)));
    Ok(nodes)
}

pub(super) const CHAIN: &str = formatcp!(
    "WITH RECURSIVE chain AS (SELECT {NODE_COLUMNS}, 1 AS n \
     FROM message_nodes m WHERE m.tree_id = ?1 AND m.node_id = ?2 AND ?3 > 0 \
     UNION ALL SELECT {NODE_COLUMNS}, k.n + 1 FROM chain k CROSS JOIN message_nodes m ON m.tree_id = ?1 \
       AND m.node_id = k.parent_node_id WHERE k.n < ?3) \
     SELECT * FROM chain ORDER BY n"
);

pub(super) fn chain(
    db: &Connection,
    tree: TreeId,
    start: NodeId,
    limit: usize,
) -> Result<Vec<MessageNode>> {
    all(db, CHAIN, params![tree, start, bounded(limit)], read_node)
}

pub(super) const CHILDREN: &str = formatcp!(
    "SELECT {NODE_COLUMNS} FROM message_nodes m INDEXED BY message_nodes_parent \
     WHERE m.tree_id = ?1 AND m.parent_node_id IS ?2 AND m.kind = 'add' \
     ORDER BY m.checkpoint_id, m.seq"
);

pub(super) fn children(
    db: &Connection,
    tree: TreeId,
    parent: Option<NodeId>,
) -> Result<Vec<MessageNode>> {
    all(db, CHILDREN, params![tree, parent], read_node)
}

pub(super) const SEGMENT: &str = formatcp!(
    "WITH RECURSIVE up AS (\
       SELECT node_id, parent_node_id, ordinal, 1 AS n FROM message_nodes \
        WHERE tree_id = ?1 AND node_id = ?2 \
       UNION ALL \
       SELECT m.node_id, m.parent_node_id, m.ordinal, u.n + 1 FROM up u \
         CROSS JOIN message_nodes m ON m.tree_id = ?1 AND m.node_id = u.parent_node_id \
        WHERE u.ordinal > ?3 + 1 AND u.n < ?5) \
     SELECT {NODE_COLUMNS} FROM up u CROSS JOIN message_nodes m ON m.tree_id = ?1 AND m.node_id = u.node_id \
     WHERE u.ordinal > ?3 AND u.ordinal <= ?4 ORDER BY u.ordinal"
);

pub(super) fn segment(
    db: &Connection,
    tree: TreeId,
    end: NodeId,
    after: i32,
    limit: usize,
) -> Result<Vec<MessageNode>> {
    let upto = after.saturating_add(i32::try_from(limit).unwrap_or(i32::MAX));
    all(
        db,
        SEGMENT,
        params![tree, end, after, upto, bounded(usize::MAX)],
        read_node,
    )
}

pub(super) fn followers(
    db: &Connection,
    tree: TreeId,
    parents: &[NodeId],
) -> Result<Vec<MessageNode>> {
    let mut nodes = vec![];
    for parent in parents {
        nodes.extend(children(db, tree, Some(*parent))?);
    }
    nodes.sort_by_key(|node| (node.checkpoint, node.seq));
    Ok(nodes)
}
