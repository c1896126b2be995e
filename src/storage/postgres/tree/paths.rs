//! Root checkpoints and the paths through them.

use const_format::formatcp;
use tokio_postgres::{Row, types::ToSql};

use super::POINT_COLUMNS;
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, ThreadId, TreeId},
    storage::postgres::{
        columns::{Time, all, column, id_if, one, word},
        connection::{Object, Result},
    },
    tree::store::rows::Point,
};

/// Rows that a walk takes at most.
const MAX_WALK: i32 = 100_000;

/// A limit as a walk takes it.
pub(super) fn bounded(limit: usize) -> i32 {
    i32::try_from(limit).unwrap_or(MAX_WALK).min(MAX_WALK)
}

const POINT: &str = formatcp!(
    "SELECT {POINT_COLUMNS} FROM checkpoints c \
     WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = $2"
);

const PATH: &str = formatcp!(
    "WITH RECURSIVE path AS (
  SELECT {POINT_COLUMNS}, 1 AS n FROM checkpoints c
   WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = $2 AND $3 > 0
  UNION ALL
  SELECT {POINT_COLUMNS}, p.n + 1 FROM path p CROSS JOIN LATERAL (SELECT {POINT_COLUMNS} FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = p.parent_checkpoint_id LIMIT 1) c WHERE p.n < $3)
SELECT * FROM path ORDER BY n"
);

/// The walk stops at the depth of the ancestor.
const ON_PATH: &str = "
WITH RECURSIVE x AS (SELECT depth FROM checkpoints WHERE tree_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $3),
up AS (
  SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth FROM checkpoints c
   WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = $2
  UNION ALL
  SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth FROM up u CROSS JOIN LATERAL (
    SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = u.parent_checkpoint_id LIMIT 1) c
   WHERE u.depth > (SELECT depth FROM x))
SELECT EXISTS (SELECT 1 FROM up WHERE checkpoint_id = $3) AS found";

const VISIBLE: &str = "
WITH RECURSIVE x AS (SELECT checkpoint_id, thread_id, depth FROM checkpoints WHERE tree_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $3),
up AS (
  SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth FROM x CROSS JOIN LATERAL (
    SELECT t.fork_checkpoint_id FROM threads t WHERE t.thread_id = $2 AND t.tree_id = $1 AND x.thread_id <> t.thread_id
       AND x.depth <= t.fork_checkpoint_depth LIMIT 1) t
   CROSS JOIN LATERAL (SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = t.fork_checkpoint_id LIMIT 1) c
  UNION ALL
  SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth FROM up u CROSS JOIN LATERAL (
    SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth FROM checkpoints c
     WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = u.parent_checkpoint_id LIMIT 1) c
   WHERE u.depth > (SELECT depth FROM x))
SELECT EXISTS (SELECT 1 FROM x WHERE thread_id = $2) OR EXISTS (SELECT 1 FROM up JOIN x USING (checkpoint_id)) AS found";

/// A task with an interrupt (`idx` -3) and no result (`idx` 0) waits to be resumed.
const IS_INTERRUPTED: &str = "
SELECT EXISTS (SELECT 1 FROM checkpoint_writes w
   WHERE w.tree_id = $1 AND w.checkpoint_ns = '' AND w.checkpoint_id = $3 AND w.branch_id = $2 AND w.idx = -3
     AND NOT EXISTS (SELECT 1 FROM checkpoint_writes o WHERE o.tree_id = $1 AND o.checkpoint_ns = '' AND o.checkpoint_id = $3
                        AND o.branch_id = $2 AND o.task_id = w.task_id AND o.idx = 0)) AS found";

pub(super) fn point_of(row: &Row) -> Result<Point, Error> {
    Ok(Point {
        id: CheckpointId(column(row, "checkpoint_id")?),
        parent: id_if(row, "parent_checkpoint_id")?,
        depth: column(row, "depth")?,
        thread: ThreadId(column(row, "thread_id")?),
        branch: BranchId(column(row, "branch_id")?),
        last_node: id_if(row, "last_node_id")?,
        event_number: column(row, "event_number")?,
        run: id_if(row, "run_id")?,
        source: word(column(row, "source")?)?,
        step: column(row, "step")?,
        created_at: column::<Time>(row, "created_at")?.0,
    })
}

pub(super) async fn point(db: &Object, tree: TreeId, id: CheckpointId) -> Result<Option<Point>> {
    one(db, POINT, &[&tree.0, &id.0], point_of).await
}

pub(super) async fn path(
    db: &Object,
    tree: TreeId,
    start: CheckpointId,
    limit: usize,
) -> Result<Vec<Point>> {
    all(db, PATH, &[&tree.0, &start.0, &bounded(limit)], point_of).await
}

/// Whether the one row of a statement says so.
async fn found(db: &Object, text: &'static str, params: &[&(dyn ToSql + Sync)]) -> Result<bool> {
    let found = one(db, text, params, |row| column(row, "found")).await?;
    Ok(found.unwrap_or(false))
}

pub(super) async fn on_path(
    db: &Object,
    tree: TreeId,
    start: CheckpointId,
    ancestor: CheckpointId,
) -> Result<bool> {
    found(db, ON_PATH, &[&tree.0, &start.0, &ancestor.0]).await
}

pub(super) async fn visible(
    db: &Object,
    tree: TreeId,
    thread: ThreadId,
    id: CheckpointId,
) -> Result<bool> {
    found(db, VISIBLE, &[&tree.0, &thread.0, &id.0]).await
}

pub(super) async fn is_interrupted(
    db: &Object,
    tree: TreeId,
    branch: BranchId,
    at: CheckpointId,
) -> Result<bool> {
    found(db, IS_INTERRUPTED, &[&tree.0, &branch.0, &at.0]).await
}

statements!(POINT, PATH, ON_PATH, VISIBLE, IS_INTERRUPTED);
