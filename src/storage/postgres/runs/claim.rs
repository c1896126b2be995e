//! Claiming runs: takes pending runs from the queue.

use tokio_postgres::Row;

use super::{
    super::{
        Store,
        connection::{self, prepare},
        events::{append_rows, started},
        threads::rows::slot_of,
    },
    rows::run_of,
};
use crate::{checkpoint::Error, id::WorkerId, runs::Claimed};

/// The oldest run of each free slot.
const CLAIM: &str = concat!(
    "
WITH c AS (
  SELECT r.tree_id, r.run_id, b.branch_id FROM runs r JOIN threads t ON t.thread_id = r.thread_id AND t.deleted_at IS NULL
    JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = COALESCE(r.branch_id, t.active_branch_id)
   WHERE r.status = 'pending' AND r.run_at <= now()
     AND NOT EXISTS (SELECT 1 FROM runs o WHERE o.tree_id = r.tree_id AND o.thread_id = r.thread_id AND o.status IN ('pending', 'running')
            AND COALESCE(o.branch_id, t.active_branch_id) = b.branch_id AND (o.status = 'running' OR o.seq < r.seq))
   ORDER BY r.run_at, r.seq LIMIT $2 FOR UPDATE OF b, r SKIP LOCKED),
f AS (
  UPDATE branches b SET writer_epoch = b.writer_epoch + 1 FROM c WHERE b.tree_id = c.tree_id AND b.branch_id = c.branch_id
  RETURNING b.tree_id, b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth),
u AS (
  UPDATE runs r SET status = 'running', branch_id = f.branch_id, epoch = f.writer_epoch, worker_id = $1, attempt = r.attempt + 1,
         base_checkpoint_id = COALESCE(r.base_checkpoint_id, f.head_checkpoint_id), updated_at = now()
    FROM c JOIN f USING (tree_id, branch_id) WHERE r.tree_id = c.tree_id AND r.run_id = c.run_id
  RETURNING f.writer_epoch, f.head_checkpoint_id, f.head_depth, r.seq,",
    run_columns!(),
    "),",
    started!(),
    append_rows!(),
    "
SELECT * FROM u"
);

/// See [`runs::Store::claim`](crate::runs::Store::claim).
pub(super) async fn claim(
    store: &Store,
    worker: WorkerId,
    limit: usize,
) -> Result<Vec<Claimed>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = connection::retry(&store.pools.critical, |client| async move {
        let client = &client;
        let statement = prepare(client, CLAIM).await?;
        Ok(client.query(&statement, &[&worker.0, &limit]).await?)
    })
    .await?;
    claimed(&mut rows)
}

/// Runs that were claimed, oldest first.
pub(super) fn claimed(rows: &mut [Row]) -> Result<Vec<Claimed>, Error> {
    rows.sort_by_key(|row| row.try_get::<_, i64>("seq").unwrap_or(i64::MAX));
    rows.iter()
        .map(|row| {
            Ok(Claimed {
                run: run_of(row)?,
                slot: slot_of(row)?,
            })
        })
        .collect()
}
