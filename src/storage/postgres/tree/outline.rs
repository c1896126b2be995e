//! Everything a thread wrote itself, for its outline.

use deadpool_postgres::Object;

use super::{
    index::node_of,
    paths::{bounded, point_of},
};
use crate::{
    id::{ThreadId, TreeId},
    storage::postgres::{
        columns::all,
        connection::{Failure, prepare},
    },
    tree::store::rows::{MessageNode, Point},
};

const OWN_POINTS: &str = "
SELECT checkpoint_id, parent_checkpoint_id, depth, thread_id, branch_id, last_node_id, event_number, run_id, source, step, created_at
  FROM checkpoints WHERE tree_id = $1 AND thread_id = $2 AND checkpoint_ns = '' AND depth > $3
 ORDER BY depth, checkpoint_id LIMIT $4";

const OWN_NODES: &str = "
SELECT node_id, parent_node_id, ordinal, kind, message_id, edit_of, checkpoint_id, depth, seq, settled_checkpoint_id, thread_id,
       branch_id, run_id, role, event_number, created_at
  FROM message_nodes WHERE tree_id = $1 AND thread_id = $2 AND kind = 'add' AND ordinal > $3
 ORDER BY ordinal, checkpoint_id, seq LIMIT $4";

pub(super) async fn own_points(
    db: &Object,
    tree: TreeId,
    thread: ThreadId,
    below: i32,
    limit: usize,
) -> Result<Vec<Point>, Failure> {
    let statement = prepare(db, OWN_POINTS).await?;
    let rows = db
        .query(
            &statement,
            &[&tree.0, &thread.0, &below, &i64::from(bounded(limit))],
        )
        .await?;
    all(&rows, point_of)
}

pub(super) async fn own_nodes(
    db: &Object,
    tree: TreeId,
    thread: ThreadId,
    after: i32,
    limit: usize,
) -> Result<Vec<MessageNode>, Failure> {
    let statement = prepare(db, OWN_NODES).await?;
    let rows = db
        .query(
            &statement,
            &[&tree.0, &thread.0, &after, &i64::from(bounded(limit))],
        )
        .await?;
    all(&rows, node_of)
}
