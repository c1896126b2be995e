//! Recovering runs of dead processes: they are taken over, or ended when that has happened too often.

use deadpool_postgres::Transaction;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    super::{
        columns::{Json, JsonText, column, id_if},
        connection::{Failure, Object, prepare},
        events::{append_rows, ended, started},
        log::supersede,
        threads::delete,
    },
    claim::claimed,
    rows::ids,
};
use crate::{
    checkpoint::Error,
    id::{RunId, ThreadId, WorkerId},
    runs::{
        Recover, Recovered, Undo,
        transitions::recovery::{LostRun, Recovery},
    },
    value::Value,
};

/// Runs of workers whose lease has lapsed or was returned; and those of this worker that it does
/// not know of, since the response to its claim was lost. Only of the first ones the process
/// `died`. While the database was down nobody could renew, so nothing lapses within one lease of
/// its start. A run that another worker takes meanwhile has another epoch when its row is read
/// again under the lock, and is left alone. No more of a request is read than how much there is of it.
const LOST: &str = "
WITH l AS MATERIALIZED (
  SELECT r.tree_id, r.run_id, r.epoch, r.seq, w.worker_id IS NOT NULL AND r.worker_id <> $1 AS died
    FROM runs r LEFT JOIN workers w ON w.worker_id = r.worker_id
   WHERE r.status = 'running' AND r.run_id <> ALL ($2::uuid[])
     AND CASE WHEN r.worker_id = $1 THEN r.updated_at + w.lease < now()
              ELSE w.worker_id IS NULL OR (w.lease_until < now() AND pg_postmaster_start_time() + w.lease < now()) END)
SELECT r.run_id, b.head_checkpoint_id, r.losses, r.lost_at, l.died, r.type, octet_length(r.kwargs) AS bytes
  FROM l JOIN runs r ON r.tree_id = l.tree_id AND r.run_id = l.run_id AND CASE WHEN r.status = 'running' THEN r.epoch = l.epoch END
    JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = r.branch_id
 ORDER BY l.seq LIMIT $3 FOR UPDATE OF b, r SKIP LOCKED";

pub(super) const TAKE_OVER: &str = concat!(
    "
WITH o AS (
  SELECT r.tree_id, r.run_id, r.branch_id, x.losses, x.lost_at FROM unnest($2::uuid[], $3::int[], $4::uuid[]) x(run_id, losses, lost_at) JOIN runs r USING (run_id)),
f AS (
  UPDATE branches b SET writer_epoch = b.writer_epoch + 1 FROM o WHERE b.tree_id = o.tree_id AND b.branch_id = o.branch_id
  RETURNING b.tree_id, b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth),
s AS (",
    supersede!(),
    "),
u AS (
  UPDATE runs r SET epoch = f.writer_epoch, worker_id = $1, attempt = r.attempt + 1, losses = o.losses, lost_at = o.lost_at, updated_at = now()
    FROM o JOIN f USING (tree_id, branch_id) WHERE r.tree_id = o.tree_id AND r.run_id = o.run_id
  RETURNING f.writer_epoch, f.head_checkpoint_id, f.head_depth, r.seq, (",
    permitted!(),
    ") AS is_permitted,",
    run_columns!(),
    "),",
    started!(),
    append_rows!(),
    "
SELECT * FROM u"
);

const END: &str = concat!(
    "
WITH o AS (SELECT tree_id, run_id, branch_id FROM runs WHERE run_id = ANY ($1)),
f AS (
  UPDATE branches b SET writer_epoch = b.writer_epoch + 1, outcome = 'error', error = $2, updated_at = now() FROM o
   WHERE b.tree_id = o.tree_id AND b.branch_id = o.branch_id RETURNING b.tree_id, b.branch_id, b.head_checkpoint_id),
d AS (
  UPDATE runs r SET status = 'error', error = $2, last_checkpoint_id = f.head_checkpoint_id, updated_at = now()
    FROM o JOIN f USING (tree_id, branch_id) WHERE r.tree_id = o.tree_id AND r.run_id = o.run_id
  RETURNING r.tree_id, r.thread_id, r.seq, r.run_id, r.branch_id, r.base_checkpoint_id AS base, r.last_checkpoint_id AS head, r.status, r.temporary),",
    ended!(),
    append_rows!(),
    "
SELECT tree_id, run_id, thread_id, temporary FROM d"
);

/// Workers whose lease lapsed long ago and that execute no run.
const FORGET: &str = "
DELETE FROM workers w WHERE w.lease_until < now() - interval '1 day'
   AND (SELECT 1 FROM runs r WHERE r.worker_id = w.worker_id AND r.status = 'running' LIMIT 1) IS NULL";

/// The `running` runs of a worker, and why they are to be cancelled.
const OF_WORKER: &str =
    "SELECT run_id, cancel FROM runs WHERE status = 'running' AND worker_id = $1";

/// See [`runs::Store::recover`](crate::runs::Store::recover).
pub(in super::super) async fn recover(db: &mut Object, by: &Recover) -> Result<Recovered, Failure> {
    let left: Vec<_> = by.busy.iter().chain(&by.failed).map(|run| run.0).collect();
    let limit = i64::try_from(by.limit).unwrap_or(i64::MAX);
    let lost = prepare(db, LOST).await?;
    let mut transaction = db.transaction().await?;
    let rows = transaction
        .query(&lost, &[&by.worker.0, &left, &limit])
        .await?;
    let lost = Lost::of(&rows, by)?;
    let together = transaction.savepoint("lost").await?;
    let recovered = match change(&together, by.worker, &lost).await {
        Ok(recovered) => {
            together.commit().await?;
            recovered
        }
        Err(failure) if failure.concerns_all() => return Err(failure),
        Err(_) => {
            together.rollback().await?;
            one_by_one(&mut transaction, by.worker, &lost).await?
        }
    };
    transaction.execute(FORGET, &[]).await?;
    transaction.commit().await?;
    Ok(recovered)
}

/// Recovers those that can be: one whose row cannot be written must not keep the others from going on.
async fn one_by_one(
    transaction: &mut Transaction<'_>,
    worker: WorkerId,
    lost: &Lost,
) -> Result<Recovered, Failure> {
    let mut recovered = Recovered::default();
    for (run, one) in lost.each() {
        let alone = transaction.savepoint("lost").await?;
        match change(&alone, worker, &one).await {
            Ok(done) => {
                alone.commit().await?;
                recovered.taken.extend(done.taken);
                recovered.ended.extend(done.ended);
                recovered.freed.extend(done.freed);
            }
            Err(failure) if failure.concerns_all() => return Err(failure),
            Err(failure) => {
                alone.rollback().await?;
                recovered.failed.push((RunId(run), failure.into_error()));
            }
        }
    }
    Ok(recovered)
}

/// Takes runs over and ends others, inside a transaction that has locked them.
async fn change(
    transaction: &Transaction<'_>,
    worker: WorkerId,
    lost: &Lost,
) -> Result<Recovered, Failure> {
    let (mut taken, mut ended) = (vec![], vec![]);
    if !lost.taken.is_empty() {
        let statement = transaction.prepare_cached(TAKE_OVER).await?;
        taken = transaction
            .query(
                &statement,
                &[&worker.0, &lost.taken, &lost.losses, &lost.lost_at],
            )
            .await?;
    }
    if !lost.ended.is_empty() {
        let statement = transaction.prepare_cached(END).await?;
        let error = Json::of_value(&Undo::lost());
        ended = transaction
            .query(&statement, &[&lost.ended, &error])
            .await?;
    }
    for row in &ended {
        if row.try_get("temporary")? {
            let (tree, thread) = (row.try_get("tree_id")?, row.try_get("thread_id")?);
            // Others lock the tree before branch and run. It is found again later.
            if !delete::lock_tree_at_once(transaction, tree).await? {
                let busy = "something else changes the thread of a run that is to be ended";
                return Err(Error::Unavailable(busy.to_owned()).into());
            }
            delete::purge(transaction, tree, thread).await?;
        }
    }
    let freed = ended
        .iter()
        .map(|row| Ok(ThreadId(column(row, "thread_id")?)));
    Ok(Recovered {
        taken: claimed(&mut taken)?,
        ended: ids(&ended)?,
        freed: freed.collect::<Result<_, Error>>()?,
        failed: vec![],
    })
}

/// Lost runs by what becomes of them.
#[derive(Default)]
struct Lost {
    taken: Vec<Uuid>,
    /// Of those that are taken over: how often their processes have died, and where.
    losses: Vec<i32>,
    lost_at: Vec<Option<Uuid>>,
    ended: Vec<Uuid>,
}

impl Lost {
    /// Of these rows as many as take all slots that there are; what is behind them waits.
    fn of(rows: &[Row], by: &Recover) -> Result<Self, Error> {
        let mut lost = Self::default();
        let mut slots = 0;
        for row in rows {
            if slots >= by.limit {
                break;
            }
            let run = column(row, "run_id")?;
            let found = LostRun {
                died: column(row, "died")?,
                losses: column(row, "losses")?,
                lost_at: id_if(row, "lost_at")?,
                head: id_if(row, "head_checkpoint_id")?,
            };
            match found.recovery() {
                Recovery::End => lost.ended.push(run),
                Recovery::TakeOver { losses, lost_at } => {
                    let bytes = column::<Option<i32>>(row, "bytes")?.unwrap_or(0);
                    let bytes = usize::try_from(bytes).unwrap_or(0);
                    slots += by.slots.of_stored(column(row, "type")?, bytes);
                    lost.taken.push(run);
                    lost.losses.push(losses);
                    lost.lost_at.push(lost_at.map(|id| id.0));
                }
            }
        }
        Ok(lost)
    }

    /// The runs, each alone.
    fn each(&self) -> impl Iterator<Item = (Uuid, Self)> + '_ {
        let taken = self.taken.iter().zip(&self.losses).zip(&self.lost_at);
        let taken = taken.map(|((run, losses), lost_at)| {
            let alone = Self {
                taken: vec![*run],
                losses: vec![*losses],
                lost_at: vec![*lost_at],
                ended: vec![],
            };
            (*run, alone)
        });
        let ended = self.ended.iter().map(|run| {
            let alone = Self {
                ended: vec![*run],
                ..Self::default()
            };
            (*run, alone)
        });
        taken.chain(ended)
    }
}

/// See [`runs::Store::running`](crate::runs::Store::running).
pub(in super::super) async fn running(
    db: &Object,
    worker: WorkerId,
) -> Result<Vec<(RunId, Option<Value>)>, Failure> {
    let statement = prepare(db, OF_WORKER).await?;
    let rows = db.query(&statement, &[&worker.0]).await?;
    let runs = rows.iter().map(|row| {
        let reason: Option<JsonText> = column(row, "cancel")?;
        let reason = reason.map(|text| text.value()).transpose()?;
        Ok((RunId(column(row, "run_id")?), reason))
    });
    Ok(runs.collect::<Result<_, Error>>()?)
}

statements!(LOST, TAKE_OVER, END, FORGET, OF_WORKER);
