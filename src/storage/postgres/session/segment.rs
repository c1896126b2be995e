//! A part of a conversation that does not end where the path does.

use std::sync::Arc;

use deadpool_postgres::Object;

use super::{
    super::{commit::prepare, pool::Failure},
    index::node_of,
    lookup::all,
    paths::bounded,
};
use crate::{
    id::{NodeId, TreeId},
    tree::rows::Node,
};

const SEGMENT: &str = "
WITH RECURSIVE up AS (
  SELECT node_id, parent_node_id, ordinal, 1 AS n FROM message_nodes WHERE tree_id = $1 AND node_id = $2
  UNION ALL
  SELECT m.node_id, m.parent_node_id, m.ordinal, u.n + 1
    FROM up u JOIN message_nodes m ON m.tree_id = $1 AND m.node_id = u.parent_node_id WHERE u.ordinal > $3 + 1 AND u.n < $5)
SELECT m.node_id, m.parent_node_id, m.ordinal, m.kind, m.message_id, m.edit_of, m.checkpoint_id, m.depth, m.seq,
       m.settled_checkpoint_id, m.thread_id, m.branch_id, m.run_id, m.role, m.event_number, m.created_at
  FROM up u JOIN message_nodes m ON m.tree_id = $1 AND m.node_id = u.node_id
 WHERE u.ordinal > $3 AND u.ordinal <= $4 ORDER BY u.ordinal";

pub(super) async fn segment(
    db: &Object,
    tree: TreeId,
    end: NodeId,
    after: i32,
    limit: usize,
) -> Result<Vec<Node>, Failure> {
    let upto = after.saturating_add(i32::try_from(limit).unwrap_or(i32::MAX));
    let statement = prepare(db, SEGMENT).await?;
    let rows = db
        .query(
            &statement,
            &[&tree.0, &end.0, &after, &upto, &bounded(usize::MAX)],
        )
        .await?;
    all(&rows, node_of)
}

const FOLLOWERS: &str = "
SELECT m.node_id, m.parent_node_id, m.ordinal, m.kind, m.message_id, m.edit_of, m.checkpoint_id, m.depth, m.seq,
       m.settled_checkpoint_id, m.thread_id, m.branch_id, m.run_id, m.role, m.event_number, m.created_at
  FROM message_nodes m WHERE m.tree_id = $1 AND m.parent_node_id = ANY($2) AND m.kind = 'add' ORDER BY m.checkpoint_id, m.seq";

pub(super) async fn followers(
    db: &Object,
    tree: TreeId,
    parents: Arc<Vec<NodeId>>,
) -> Result<Vec<Node>, Failure> {
    let parents: Vec<_> = parents.iter().map(|id| id.0).collect();
    let statement = prepare(db, FOLLOWERS).await?;
    all(&db.query(&statement, &[&tree.0, &parents]).await?, node_of)
}
