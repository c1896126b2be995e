//! Runs of dead processes: taken over, or ended when that has happened too often.

use super::{
    super::{
        Store,
        columns::Json,
        connection::{self, prepare},
        events::{append_rows, ended, started},
        threads::delete,
    },
    claim::claimed,
    ids,
};
use crate::{
    checkpoint::Error,
    id::{RunId, WorkerId},
    runs::{DEATHS, Recover, Recovered, Undo},
};

/// Runs `o` of workers whose lease has lapsed or was given back; and those that this worker holds
/// and knows nothing of, since the answer to its claim was lost. Only of the first ones the process
/// `died`; a run that has moved since then starts anew with its `losses`. While the database was
/// down nobody could renew, so nothing lapses within one lease of its start. A run that somebody
/// else takes meanwhile has another epoch when its row is read again under the lock, and is left
/// alone.
macro_rules! lost {
    ($losses:literal) => {
        concat!(
            "
WITH l AS MATERIALIZED (
  SELECT r.tree_id, r.run_id, r.epoch, r.seq, x.died, x.died::int + CASE WHEN b.head_checkpoint_id IS NOT DISTINCT FROM r.lost_at OR r.losses = 0 THEN r.losses ELSE 0 END AS losses
    FROM runs r JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = r.branch_id
    LEFT JOIN workers w ON w.worker_id = r.worker_id CROSS JOIN LATERAL (SELECT w.worker_id IS NOT NULL AND r.worker_id <> $1 AS died) x
   WHERE r.status = 'running' AND r.run_id <> ALL ($2::uuid[])
     AND CASE WHEN r.worker_id = $1 THEN r.updated_at + w.lease < now()
              ELSE w.worker_id IS NULL OR (w.lease_until < now() AND pg_postmaster_start_time() + w.lease < now()) END),
o AS (
  SELECT r.tree_id, r.run_id, r.branch_id, l.died, l.losses FROM l JOIN runs r ON r.tree_id = l.tree_id AND r.run_id = l.run_id AND r.epoch = l.epoch AND r.status = 'running'
    JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = r.branch_id
   WHERE l.losses ",
            $losses,
            "
   ORDER BY l.seq LIMIT $3 FOR UPDATE OF b, r SKIP LOCKED),"
        )
    };
}

const TAKE_OVER: &str = concat!(
    lost!("< $4"),
    "
f AS (
  UPDATE branches b SET writer_epoch = b.writer_epoch + 1 FROM o WHERE b.tree_id = o.tree_id AND b.branch_id = o.branch_id
  RETURNING b.tree_id, b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth),
u AS (
  UPDATE runs r SET epoch = f.writer_epoch, worker_id = $1, attempt = r.attempt + 1, losses = o.losses,
         lost_at = CASE WHEN o.died THEN f.head_checkpoint_id ELSE r.lost_at END, updated_at = now()
    FROM o JOIN f USING (tree_id, branch_id) WHERE r.tree_id = o.tree_id AND r.run_id = o.run_id
  RETURNING f.writer_epoch, f.head_checkpoint_id, f.head_depth, r.seq,",
    run_columns!(),
    "),",
    started!(),
    append_rows!(),
    "
SELECT * FROM u"
);

const GIVE_UP: &str = concat!(
    lost!(">= $4"),
    "
f AS (
  UPDATE branches b SET writer_epoch = b.writer_epoch + 1, outcome = 'error', error = $5, updated_at = now() FROM o
   WHERE b.tree_id = o.tree_id AND b.branch_id = o.branch_id RETURNING b.tree_id, b.branch_id, b.head_checkpoint_id),
d AS (
  UPDATE runs r SET status = 'error', error = $5, last_checkpoint_id = f.head_checkpoint_id, updated_at = now()
    FROM o JOIN f USING (tree_id, branch_id) WHERE r.tree_id = o.tree_id AND r.run_id = o.run_id
  RETURNING r.tree_id, r.thread_id, r.seq, r.run_id, r.branch_id, r.base_checkpoint_id AS base, r.last_checkpoint_id AS head, r.status, r.temporary),",
    ended!(),
    append_rows!(),
    "
SELECT tree_id, run_id, thread_id, temporary FROM d"
);

/// Workers that are long gone and own nothing.
const FORGET: &str = "
DELETE FROM workers w WHERE w.lease_until < now() - interval '1 day'
   AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.worker_id = w.worker_id AND r.status = 'running')";

/// The runs that are `running` in the name of a worker.
const HELD: &str = "SELECT run_id FROM runs WHERE status = 'running' AND worker_id = $1";

/// See [`runs::Store::running`](crate::runs::Store::running).
pub(super) async fn running(store: &Store, worker: WorkerId) -> Result<Vec<RunId>, Error> {
    let rows = connection::retry(&store.pools.critical, |client| async move {
        let client = &client;
        let statement = prepare(client, HELD).await?;
        Ok(client.query(&statement, &[&worker.0]).await?)
    })
    .await?;
    ids(&rows)
}

/// See [`runs::Store::recover`](crate::runs::Store::recover).
pub(super) async fn recover(store: &Store, by: Recover) -> Result<Recovered, Error> {
    let busy: Vec<_> = by.busy.iter().map(|run| run.0).collect();
    let limit = i64::try_from(by.limit).unwrap_or(i64::MAX);
    let (worker, busy) = (by.worker.0, &busy);
    let ended = connection::retry(&store.pools.critical, |mut client| async move {
        let client = &mut client;
        let give_up = prepare(client, GIVE_UP).await?;
        let error = Json::of_value(&Undo::lost());
        let transaction = client.transaction().await?;
        let ended = transaction
            .query(&give_up, &[&worker, busy, &limit, &DEATHS, &error])
            .await?;
        for row in &ended {
            if row.try_get("temporary")? {
                let (tree, thread) = (row.try_get("tree_id")?, row.try_get("thread_id")?);
                delete::purge(&transaction, tree, thread).await?;
            }
        }
        transaction.commit().await?;
        Ok(ended)
    })
    .await?;
    let mut taken = connection::retry(&store.pools.critical, |client| async move {
        let client = &client;
        let take_over = prepare(client, TAKE_OVER).await?;
        let forget = prepare(client, FORGET).await?;
        let taken = client
            .query(&take_over, &[&worker, busy, &limit, &DEATHS])
            .await?;
        client.execute(&forget, &[]).await?;
        Ok(taken)
    })
    .await?;
    Ok(Recovered {
        taken: claimed(&mut taken)?,
        ended: ids(&ended)?,
    })
}
