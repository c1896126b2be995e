//! Pruning a thread: removes its checkpoints that no branch, tag, fork or run needs.

use futures::FutureExt;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::{
    super::{
        Store,
        columns::{column, unname},
        connection::Failure,
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

/// Pins, bases of open runs, and checkpoints with an open interrupt, also in a subgraph.
const ROWS: &str = "
WITH kept AS MATERIALIZED (
  SELECT checkpoint_id AS id FROM pins WHERE tree_id = $1
  UNION SELECT base_checkpoint_id FROM runs WHERE tree_id = $1 AND thread_id = $2 AND status IN ('pending', 'running') AND base_checkpoint_id IS NOT NULL
  UNION SELECT COALESCE(c.root_checkpoint_id, c.checkpoint_id) FROM checkpoint_writes w
    JOIN checkpoints c ON c.tree_id = $1 AND c.checkpoint_ns = w.checkpoint_ns AND c.checkpoint_id = w.checkpoint_id
   WHERE w.tree_id = $1 AND w.idx = -3
     AND NOT EXISTS (SELECT 1 FROM checkpoint_writes o WHERE o.tree_id = $1 AND o.checkpoint_ns = w.checkpoint_ns AND o.checkpoint_id = w.checkpoint_id
                        AND o.branch_id = w.branch_id AND o.task_id = w.task_id AND o.idx = 0))
SELECT c.checkpoint_id, c.parent_checkpoint_id, c.branch_id, c.checkpoint_id IN (SELECT id FROM kept) AS kept, c.source = 'input' AS input
  FROM checkpoints c WHERE c.tree_id = $1 AND c.thread_id = $2 AND c.checkpoint_ns = ''";

const INNER: &str = "
SELECT DISTINCT root_checkpoint_id, checkpoint_ns, branch_id FROM checkpoints
 WHERE tree_id = $1 AND thread_id = $2 AND checkpoint_ns <> '' AND root_checkpoint_id IS NOT NULL AND strpos(checkpoint_ns, ':') = 0";

const FOLLOW: &str = "
UPDATE checkpoints c SET parent_checkpoint_id = x.above FROM unnest($2::uuid[], $3::uuid[]) x(id, above)
 WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = x.id";

/// See [`tree::Store::prune_thread`](crate::tree::Store::prune_thread).
pub(super) async fn prune(store: &Store, thread: ThreadId) -> Result<Option<usize>, Error> {
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

async fn prune_rows(client: &Client, tree: TreeId, thread: ThreadId) -> Result<usize, Failure> {
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
    let doomed: Vec<Uuid> = plan.removed.iter().map(|id| id.0).collect();
    event_facts::store(client, tree.0, &[&*doomed, &*children].concat(), false).await?;
    client
        .execute(FOLLOW, &[&tree.0, &children, &parents])
        .await?;
    if !doomed.is_empty() {
        client
            .execute(DROP_CHECKPOINTS, &[&tree.0, &doomed, &false])
            .await?;
        drop_blobs(client, tree.0).await?;
    }
    Ok(doomed.len())
}

fn row_of(row: &Row) -> Result<Checkpoint, Error> {
    Ok(Checkpoint {
        id: CheckpointId(column(row, "checkpoint_id")?),
        parent: column::<Option<Uuid>>(row, "parent_checkpoint_id")?.map(CheckpointId),
        branch: BranchId(column(row, "branch_id")?),
        retained: column(row, "kept")?,
        input: column(row, "input")?,
    })
}

fn inner_of(row: &Row) -> Result<SubgraphState, Error> {
    Ok(SubgraphState {
        root: CheckpointId(column(row, "root_checkpoint_id")?),
        ns: unname(column(row, "checkpoint_ns")?),
        branch: BranchId(column(row, "branch_id")?),
    })
}
