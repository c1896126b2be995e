//! Claiming a running run of this worker anew, after its attempt lost the storage.

use super::{
    super::{
        columns::{column, id_if},
        connection::{Failure, Object, prepare},
    },
    claim::claimed,
    recover::TAKE_OVER,
};
use crate::{
    id::{CheckpointId, RunId, WorkerId},
    runs::ClaimedRun,
};

/// The branch first, then the run, if it is still executed in the name of this worker.
const OWN: &str = "
SELECT r.losses, r.lost_at FROM runs r JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = r.branch_id
 WHERE r.run_id = $1 AND CASE WHEN r.status = 'running' THEN r.worker_id = $2 END FOR UPDATE OF b, r";

/// See [`runs::Store::reclaim`](crate::runs::Store::reclaim).
pub(in super::super) async fn reclaim(
    db: &mut Object,
    worker: WorkerId,
    run: RunId,
) -> Result<Option<ClaimedRun>, Failure> {
    let own = prepare(db, OWN).await?;
    let take_over = prepare(db, TAKE_OVER).await?;
    let transaction = db.transaction().await?;
    let Some(row) = transaction.query_opt(&own, &[&run.0, &worker.0]).await? else {
        return Ok(None);
    };
    let losses: i32 = column(&row, "losses")?;
    let lost_at: Option<CheckpointId> = id_if(&row, "lost_at")?;
    let (runs, losses, lost_at) = (vec![run.0], vec![losses], vec![lost_at.map(|id| id.0)]);
    let mut rows = transaction
        .query(&take_over, &[&worker.0, &runs, &losses, &lost_at])
        .await?;
    let claimed = claimed(&mut rows)?.pop();
    transaction.commit().await?;
    Ok(claimed)
}

statements!(OWN);
