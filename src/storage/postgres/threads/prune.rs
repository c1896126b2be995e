//! Pruning a thread: removes its checkpoints that no branch, tag, fork or run needs.

use futures::FutureExt;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::{
    super::{
        Store,
        columns::{column, unname},
        connection::Result,
    },
    blobs::drop_blobs,
    delete::DROP_CHECKPOINTS,
    event_facts,
    rows::tree_of,
};
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, ThreadId, TreeId},
    tree::prune::{PruneCandidate as Checkpoint, SubgraphState, plan},
};

/// Pins, bases of open runs of the whole tree, checkpoints that another thread goes on from, and those with an open
/// interrupt, also in a subgraph. The tree is only compared: where one tree has most rows, the planner would go through
/// its whole key for a thread that has none. A checkpoint of a fork that follows one of another thread lies at most one
/// deeper than what the fork inherits: pruning the fork leaves the first one that does.
const ROWS: &str = "
WITH own AS MATERIALIZED (
  SELECT c.checkpoint_id, c.parent_checkpoint_id, c.branch_id, c.source FROM checkpoints c
   WHERE c.thread_id = $2 AND c.checkpoint_ns = '' AND CASE WHEN c.tree_id = $1 THEN true END),
kept AS MATERIALIZED (
  SELECT checkpoint_id AS id FROM pins WHERE tree_id = $1
  UNION SELECT r.base FROM threads t CROSS JOIN LATERAL (SELECT r.base_checkpoint_id AS base FROM runs r
      WHERE r.thread_id = t.thread_id AND r.tree_id = $1 AND r.status IN ('pending', 'running') AND r.base_checkpoint_id IS NOT NULL OFFSET 0) r
    WHERE t.tree_id = $1
  UNION SELECT c.above FROM threads t CROSS JOIN LATERAL (SELECT c.parent_checkpoint_id AS above FROM checkpoints c
      WHERE c.thread_id = t.thread_id AND c.checkpoint_ns = '' AND c.depth <= t.fork_checkpoint_depth + 1 AND c.tree_id = $1 OFFSET 0) c
    WHERE t.tree_id = $1 AND t.thread_id <> $2 AND t.fork_checkpoint_id IS NOT NULL AND c.above IS NOT NULL
  UNION SELECT c.root FROM (
      SELECT '' AS ns, c.checkpoint_id AS id, c.checkpoint_id AS root FROM own c
      UNION ALL SELECT s.* FROM own c CROSS JOIN LATERAL (SELECT s.checkpoint_ns, s.checkpoint_id, s.root_checkpoint_id FROM checkpoints s
        WHERE s.tree_id = $1 AND s.root_checkpoint_id = c.checkpoint_id AND s.checkpoint_ns <> '' OFFSET 0) s) c
   CROSS JOIN LATERAL (SELECT 1 FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.checkpoint_ns = c.ns COLLATE \"C\" AND w.checkpoint_id = c.id AND w.idx = -3
       AND (SELECT 1 FROM checkpoint_writes o WHERE o.tree_id = $1 AND o.checkpoint_ns = w.checkpoint_ns AND o.checkpoint_id = w.checkpoint_id
               AND o.branch_id = w.branch_id AND o.task_id = w.task_id AND o.idx = 0) IS NULL LIMIT 1) w)
SELECT c.checkpoint_id, c.parent_checkpoint_id, c.branch_id, c.checkpoint_id IN (SELECT id FROM kept) AS kept, c.source = 'input' AS input,
       COALESCE(c.parent_checkpoint_id < (SELECT t.fork_checkpoint_id FROM threads t WHERE t.thread_id = $2), false) AS inherits
  FROM own c";

const INNER: &str = "
SELECT DISTINCT root_checkpoint_id, checkpoint_ns, branch_id FROM checkpoints
 WHERE thread_id = $2 AND CASE WHEN tree_id = $1 AND checkpoint_ns <> '' AND root_checkpoint_id IS NOT NULL THEN strpos(checkpoint_ns, ':') = 0 END";

const FOLLOW: &str = "
UPDATE checkpoints c SET parent_checkpoint_id = x.above FROM unnest($2::uuid[], $3::uuid[]) x(id, above)
 WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = x.id AND c.checkpoint_id = ANY($2)";

/// Locks the branches whose heads these are, in the order of their ids, as groups of supersteps do.
const LOCK_HEADS: &str = "
SELECT b.branch_id FROM checkpoints c, branches b
 WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = ANY ($2)
   AND b.tree_id = $1 AND b.branch_id = c.branch_id AND b.head_checkpoint_id = c.checkpoint_id
 ORDER BY b.branch_id FOR NO KEY UPDATE OF b";

/// Says of heads that their parent is another one: a process that has such a head in memory reads its row from here on.
/// What is not a head now is never one again without a new epoch of its branch.
const MARK: &str = "
UPDATE branches b SET reparented_checkpoint_id = c.checkpoint_id FROM checkpoints c
 WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = ANY ($2)
   AND b.tree_id = $1 AND b.branch_id = c.branch_id AND b.head_checkpoint_id = c.checkpoint_id";

/// The streams of runs that have ended and of which no checkpoint is left.
const DROP_LOGS: &str = "
DELETE FROM run_events e WHERE e.run_id = ANY (ARRAY(
  SELECT r.run_id FROM runs r WHERE r.tree_id = $1 AND r.thread_id = $2 AND r.status NOT IN ('pending', 'running')
     AND r.run_id NOT IN (SELECT c.run_id FROM checkpoints c
         WHERE c.tree_id = $1 AND c.thread_id = $2 AND c.checkpoint_ns = '' AND c.run_id IS NOT NULL)))";

/// See [`tree::Store::prune_thread`](crate::tree::Store::prune_thread).
pub(in super::super) async fn prune_thread(
    store: &Store,
    thread: ThreadId,
) -> Result<Option<usize>, Error> {
    let Some(tree) = tree_of(store, thread).await? else {
        return Ok(None);
    };
    let mut transaction = store.turns.begin(tree).await?;
    let removed = transaction
        .run(move |client| prune_rows(client, tree, thread).boxed())
        .await?;
    transaction.commit().await?;
    Ok(Some(removed))
}

/// Prunes a thread in a transaction that holds the tree.
pub(in super::super) async fn prune_rows(
    client: &Client,
    tree: TreeId,
    thread: ThreadId,
) -> Result<usize> {
    let rows = client.query(ROWS, &[&tree.0, &thread.0]).await?;
    let rows = rows.iter().map(row_of).collect::<Result<Vec<_>, _>>()?;
    let inner = client.query(INNER, &[&tree.0, &thread.0]).await?;
    let inner = inner.iter().map(inner_of).collect::<Result<Vec<_>, _>>()?;
    let plan = plan(&rows, &inner);
    let (children, parents): (Vec<Uuid>, Vec<Option<Uuid>>) = plan
        .reparented
        .iter()
        .map(|(child, parent)| (child.0, parent.map(|id| id.0)))
        .unzip();
    let removed: Vec<Uuid> = plan.removed.iter().map(|id| id.0).collect();
    event_facts::store(client, tree.0, &[&*removed, &*children].concat(), false).await?;
    client
        .execute(FOLLOW, &[&tree.0, &children, &parents])
        .await?;
    if !removed.is_empty() {
        client
            .execute(DROP_CHECKPOINTS, &[&tree.0, &removed, &false])
            .await?;
        drop_blobs(client, tree.0).await?;
    }
    // Late, since supersteps wait for the rows of branches, and before the sums of logs are changed: the ends of runs
    // lock both in this order.
    if !children.is_empty() {
        client.query(LOCK_HEADS, &[&tree.0, &children]).await?;
        client.execute(MARK, &[&tree.0, &children]).await?;
    }
    if !removed.is_empty() {
        client.execute(DROP_LOGS, &[&tree.0, &thread.0]).await?;
    }
    Ok(removed.len())
}

fn row_of(row: &Row) -> Result<Checkpoint, Error> {
    Ok(Checkpoint {
        id: CheckpointId(column(row, "checkpoint_id")?),
        parent: column::<Option<Uuid>>(row, "parent_checkpoint_id")?.map(CheckpointId),
        branch: BranchId(column(row, "branch_id")?),
        retained: column(row, "kept")?,
        input: column(row, "input")?,
        inherits: column(row, "inherits")?,
    })
}

fn inner_of(row: &Row) -> Result<SubgraphState, Error> {
    Ok(SubgraphState {
        root: CheckpointId(column(row, "root_checkpoint_id")?),
        ns: unname(column(row, "checkpoint_ns")?),
        branch: BranchId(column(row, "branch_id")?),
    })
}

statements!(ROWS, INNER, FOLLOW, LOCK_HEADS, MARK, DROP_LOGS);
