//! Nodes of the message index, and the chains of them.

use std::{borrow::Cow, sync::Arc};

use const_format::formatcp;
use tokio_postgres::Row;

use super::{NODE_COLUMNS, paths::bounded};
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, NodeId, ThreadId, TreeId},
    storage::postgres::{
        columns::{Time, all, column, id_if, name, one, text_if, unname, word},
        connection::{Object, Result},
    },
    tree::store::rows::MessageNode,
};

const NODE: &str =
    formatcp!("SELECT {NODE_COLUMNS} FROM message_nodes m WHERE m.tree_id = $1 AND m.node_id = $2");

const NODES_OF: &str = formatcp!(
    "SELECT {NODE_COLUMNS} FROM message_nodes m \
     WHERE m.tree_id = $1 AND m.message_id = ANY($2) ORDER BY m.checkpoint_id DESC, m.seq DESC"
);

/// Messages of several trees.
const NODES_OF_TREES: &str = formatcp!(
    "SELECT i.tree AS tree_id, {NODE_COLUMNS} FROM unnest($1::uuid[], $2::text[]) i(tree, message) \
     CROSS JOIN LATERAL (SELECT * FROM message_nodes m WHERE m.tree_id = i.tree AND m.message_id = i.message OFFSET 0) m \
     ORDER BY m.checkpoint_id DESC, m.seq DESC"
);

const CHAIN: &str = formatcp!(
    "WITH RECURSIVE chain AS (
  SELECT {NODE_COLUMNS}, 1 AS n FROM message_nodes m WHERE m.tree_id = $1 AND m.node_id = $2 AND $3 > 0
  UNION ALL
  SELECT {NODE_COLUMNS}, k.n + 1 FROM chain k CROSS JOIN LATERAL (SELECT m.* FROM message_nodes m
     WHERE m.tree_id = $1 AND m.node_id = k.parent_node_id LIMIT 1) m WHERE k.n < $3)
SELECT * FROM chain ORDER BY n"
);

const CHILDREN: &str = formatcp!(
    "SELECT {NODE_COLUMNS} FROM message_nodes m \
     WHERE m.tree_id = $1 AND m.parent_node_id = $2 AND m.kind = 'add' ORDER BY m.checkpoint_id, m.seq"
);

const FIRST: &str = formatcp!(
    "SELECT {NODE_COLUMNS} FROM message_nodes m \
     WHERE m.tree_id = $1 AND m.parent_node_id IS NULL AND m.kind = 'add' ORDER BY m.checkpoint_id, m.seq"
);

pub(super) fn node_of(row: &Row) -> Result<MessageNode, Error> {
    Ok(MessageNode {
        id: NodeId(column(row, "node_id")?),
        parent: id_if(row, "parent_node_id")?,
        ordinal: column(row, "ordinal")?,
        change: word(column(row, "kind")?)?,
        message_id: unname(column(row, "message_id")?),
        edit_of: text_if(row, "edit_of")?,
        checkpoint: CheckpointId(column(row, "checkpoint_id")?),
        depth: column(row, "depth")?,
        seq: column(row, "seq")?,
        turn_end: id_if(row, "settled_checkpoint_id")?,
        thread: ThreadId(column(row, "thread_id")?),
        branch: BranchId(column(row, "branch_id")?),
        run: id_if(row, "run_id")?,
        role: text_if(row, "role")?,
        event_number: column(row, "event_number")?,
        created_at: column::<Time>(row, "created_at")?.0,
    })
}

pub(super) async fn node(db: &Object, tree: TreeId, id: NodeId) -> Result<Option<MessageNode>> {
    one(db, NODE, &[&tree.0, &id.0], node_of).await
}

pub(super) async fn nodes_of(
    db: &Object,
    tree: TreeId,
    ids: &[Arc<str>],
) -> Result<Vec<MessageNode>> {
    let ids: Vec<Cow<'_, str>> = ids.iter().map(|id| name(id)).collect();
    all(db, NODES_OF, &[&tree.0, &ids], node_of).await
}

pub(super) async fn nodes_of_trees(
    db: &Object,
    messages: &[(TreeId, Arc<str>)],
) -> Result<Vec<(TreeId, MessageNode)>> {
    let (trees, ids): (Vec<_>, Vec<Cow<'_, str>>) = messages
        .iter()
        .map(|(tree, message)| (tree.0, name(message)))
        .unzip();
    let with_tree = |row: &Row| Ok((TreeId(column(row, "tree_id")?), node_of(row)?));
    all(db, NODES_OF_TREES, &[&trees, &ids], with_tree).await
}

pub(super) async fn chain(
    db: &Object,
    tree: TreeId,
    start: NodeId,
    limit: usize,
) -> Result<Vec<MessageNode>> {
    all(db, CHAIN, &[&tree.0, &start.0, &bounded(limit)], node_of).await
}

pub(super) async fn children(
    db: &Object,
    tree: TreeId,
    parent: Option<NodeId>,
) -> Result<Vec<MessageNode>> {
    match parent {
        Some(parent) => all(db, CHILDREN, &[&tree.0, &parent.0], node_of).await,
        None => all(db, FIRST, &[&tree.0], node_of).await,
    }
}

const SEGMENT: &str = formatcp!(
    "
WITH RECURSIVE up AS (
  SELECT node_id, parent_node_id, ordinal, 1 AS n FROM message_nodes WHERE tree_id = $1 AND node_id = $2
  UNION ALL
  SELECT m.node_id, m.parent_node_id, m.ordinal, u.n + 1 FROM up u CROSS JOIN LATERAL (
    SELECT m.node_id, m.parent_node_id, m.ordinal FROM message_nodes m WHERE m.tree_id = $1 AND m.node_id = u.parent_node_id LIMIT 1) m
   WHERE u.ordinal > $3 + 1 AND u.n < $5)
SELECT {NODE_COLUMNS} FROM up u CROSS JOIN LATERAL (SELECT m.* FROM message_nodes m WHERE m.tree_id = $1 AND m.node_id = u.node_id LIMIT 1) m
 WHERE u.ordinal > $3 AND u.ordinal <= $4 ORDER BY u.ordinal"
);

pub(super) async fn segment(
    db: &Object,
    tree: TreeId,
    end: NodeId,
    after: i32,
    limit: usize,
) -> Result<Vec<MessageNode>> {
    let upto = after.saturating_add(i32::try_from(limit).unwrap_or(i32::MAX));
    all(
        db,
        SEGMENT,
        &[&tree.0, &end.0, &after, &upto, &bounded(usize::MAX)],
        node_of,
    )
    .await
}

const FOLLOWERS: &str = formatcp!(
    "SELECT {NODE_COLUMNS} FROM message_nodes m \
     WHERE m.tree_id = $1 AND m.parent_node_id = ANY($2) AND m.kind = 'add' ORDER BY m.checkpoint_id, m.seq"
);

pub(super) async fn followers(
    db: &Object,
    tree: TreeId,
    parents: &[NodeId],
) -> Result<Vec<MessageNode>> {
    let parents: Vec<_> = parents.iter().map(|id| id.0).collect();
    all(db, FOLLOWERS, &[&tree.0, &parents], node_of).await
}

statements!(
    NODE,
    NODES_OF,
    NODES_OF_TREES,
    CHAIN,
    CHILDREN,
    FIRST,
    SEGMENT,
    FOLLOWERS
);
