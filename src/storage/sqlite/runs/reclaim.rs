//! Claiming a running run of this worker anew, after its attempt lost the storage.

use rusqlite::{Connection, OptionalExtension, params};

use super::recover::{read_lost, take_over};
use crate::{
    checkpoint::Result,
    id::{RunId, WorkerId},
    runs::ClaimedRun,
    time::Timestamp,
};

const OWN: &str = select!(
    ", b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth, r.losses, r.lost_at, 0 \
     FROM runs r JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = r.branch_id \
     WHERE r.run_id = ?1 AND r.status = 'running' AND r.worker_id = ?2"
);

/// See [`runs::Store::reclaim`](crate::runs::Store::reclaim).
pub(in super::super) fn reclaim(
    db: &Connection,
    worker: WorkerId,
    run: RunId,
) -> Result<Option<ClaimedRun>> {
    let found = db
        .prepare_cached(OWN)?
        .query_row(params![run, worker], read_lost)
        .optional()?;
    let Some((ClaimedRun { run, slot, .. }, lost)) = found else {
        return Ok(None);
    };
    let losses = (lost.losses, lost.lost_at);
    take_over(db, worker, run, slot, losses, Timestamp::now()).map(Some)
}
