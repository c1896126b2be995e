//! New runs: inserted, and started when their slot is free, in one transaction.

use deadpool_postgres::Object;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Store,
    commit::prepare,
    delete,
    params::{Json, Params, column},
    pool::{self, Failure},
    run::{self, run_columns},
    thread::{self, slot_of},
};
use crate::{
    checkpoint::{Error, codec},
    id::BranchId,
    runs::{Created, NewRun, Strategy},
};

/// Makes those who create runs in one slot take turns. The statements after it see what the
/// winner wrote, which a single statement would not.
pub(super) const LOCK: &str = "
SELECT b.branch_id FROM threads t JOIN branches b ON b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id
 WHERE t.thread_id = $1 AND t.deleted_at IS NULL FOR NO KEY UPDATE OF b";

/// One row when the thread exists. `created` is null when no run was inserted.
const CREATE: &str = concat!(
    "
WITH b AS (
  SELECT b.tree_id, b.thread_id, b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth,
         EXISTS (SELECT 1 FROM runs r WHERE r.tree_id = t.tree_id AND r.thread_id = t.thread_id AND r.status IN ('pending', 'running')
                    AND COALESCE(r.branch_id, t.active_branch_id) = t.active_branch_id) AS taken
    FROM threads t JOIN branches b ON b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id
   WHERE t.thread_id = $2 AND t.deleted_at IS NULL),
n AS (SELECT b.*, NOT b.taken AND $11::uuid IS NOT NULL AND $10::float8 <= 0 AS starts FROM b WHERE NOT (b.taken AND $12)),
r AS (
  INSERT INTO runs (tree_id, run_id, thread_id, branch_id, assistant_id, status, strategy, temporary, metadata, address, type, kwargs,
         run_at, base_checkpoint_id, epoch, worker_id, attempt)
  SELECT n.tree_id, $1, n.thread_id, CASE WHEN n.starts THEN n.branch_id END, $3, CASE WHEN n.starts THEN 'running' ELSE 'pending' END,
         $4, $5, $6, $7, $8, $9, now() + make_interval(secs => $10),
         CASE WHEN n.starts THEN n.head_checkpoint_id END, CASE WHEN n.starts THEN n.writer_epoch + 1 END,
         CASE WHEN n.starts THEN $11::uuid END, CASE WHEN n.starts THEN 1 ELSE 0 END
    FROM n ON CONFLICT (run_id) DO NOTHING RETURNING *),
f AS (
  UPDATE branches x SET writer_epoch = x.writer_epoch + 1 FROM r
   WHERE r.status = 'running' AND x.tree_id = r.tree_id AND x.branch_id = r.branch_id),
t AS (
  UPDATE threads x SET metadata = x.metadata || $13, config = x.config || $14, updated_at = now() FROM r
   WHERE x.thread_id = r.thread_id AND NOT (x.metadata @> $13 AND x.config @> $14))
SELECT b.branch_id AS active_branch_id, b.taken, b.head_checkpoint_id, b.head_depth, r.epoch AS writer_epoch,",
    run_columns!(),
    "FROM b LEFT JOIN r ON true"
);

/// The run with this id, wherever it is: after a lost reply it is our own.
const EXISTING: &str = concat!(
    "SELECT b.branch_id AS active_branch_id, false AS taken, b.head_checkpoint_id, b.head_depth, r.epoch AS writer_epoch,
       b.writer_epoch AS present_epoch, r.worker_id,",
    run_columns!(),
    "FROM runs r LEFT JOIN threads t ON t.thread_id = r.thread_id
       LEFT JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = COALESCE(r.branch_id, t.active_branch_id)
      WHERE r.run_id = $1"
);

/// Ends what is in the slot of the active branch; answers the run that was running.
const END_OTHERS: &str = "
WITH t AS (SELECT t.tree_id, t.thread_id, t.active_branch_id FROM threads t WHERE t.thread_id = $1 AND t.deleted_at IS NULL),
o AS (
  SELECT r.tree_id, r.run_id, r.status, r.branch_id, r.base_checkpoint_id, r.opened_branch FROM runs r, t
   WHERE r.tree_id = t.tree_id AND r.thread_id = t.thread_id AND r.status IN ('pending', 'running')
     AND COALESCE(r.branch_id, t.active_branch_id) = t.active_branch_id FOR UPDATE OF r),
h AS (SELECT b.head_checkpoint_id FROM branches b, t WHERE b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id),
f AS (
  UPDATE branches b SET writer_epoch = b.writer_epoch + 1, outcome = CASE WHEN b.head_checkpoint_id IS NOT DISTINCT FROM o.base_checkpoint_id THEN b.outcome ELSE 'interrupted' END,
         error = CASE WHEN b.head_checkpoint_id IS NOT DISTINCT FROM o.base_checkpoint_id THEN b.error END, updated_at = now() FROM o
   WHERE o.status = 'running' AND b.tree_id = o.tree_id AND b.branch_id = o.branch_id),
u AS (
  UPDATE runs r SET status = 'interrupted', updated_at = now(),
         last_checkpoint_id = CASE WHEN o.status = 'running' THEN (SELECT head_checkpoint_id FROM h) END
    FROM o WHERE r.tree_id = o.tree_id AND r.run_id = o.run_id)
SELECT o.tree_id, o.run_id, o.status, o.branch_id, o.base_checkpoint_id, o.opened_branch, (SELECT head_checkpoint_id FROM h) AS head_checkpoint_id
  FROM o";

const DELETE_RUN: &str = "DELETE FROM runs WHERE tree_id = $1 AND run_id = $2";

impl Store {
    /// See [`runs::Store::create_run`](crate::runs::Store::create_run).
    pub(super) async fn create(&self, new: NewRun) -> Result<Created, Error> {
        let branch = BranchId::mint();
        let kwargs = codec::encode(&new.kwargs);
        let attempts = std::sync::atomic::AtomicU32::new(0);
        let (new, kwargs, attempts) = (&new, &kwargs, &attempts);
        pool::retry(&self.pools.critical, |mut client| async move {
            let client = &mut client;
            let again = attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0;
            if again && let Some(created) = ours(client, new).await? {
                return Ok(created);
            }
            let row = match new.strategy {
                Strategy::Reject | Strategy::Enqueue => {
                    pipeline(client, new, kwargs, branch).await?
                }
                Strategy::Interrupt | Strategy::Rollback => {
                    after_others(client, new, kwargs, branch).await?
                }
            };
            let Some(row) = row else {
                return Ok(Created::NoThread);
            };
            if column::<Option<Uuid>>(&row, "run_id")?.is_some() {
                return Ok(created(&row)?);
            }
            let statement = prepare(client, EXISTING).await?;
            let exists = client.query_opt(&statement, &[&new.id.0]).await?;
            Ok(match exists {
                Some(_) => Created::Exists,
                None => Created::Busy,
            })
        })
        .await
    }
}

fn created(row: &Row) -> Result<Created, Error> {
    let run = Box::new(run::run_of(row)?);
    Ok(if column::<&str>(row, "status")? == "running" {
        Created::Started(run, slot_of(row)?)
    } else {
        Created::Queued(run)
    })
}

/// What an attempt without an answer has written, if anything.
async fn ours(client: &Object, new: &NewRun) -> Result<Option<Created>, Failure> {
    let statement = prepare(client, EXISTING).await?;
    let Some(row) = client.query_opt(&statement, &[&new.id.0]).await? else {
        return Ok(None);
    };
    let run = run::run_of(&row)?;
    let same = run.thread == new.thread && run.kwargs == new.kwargs;
    let worker: Option<Uuid> = column(&row, "worker_id")?;
    Ok(Some(match worker {
        _ if !same => Created::Exists,
        None => Created::Queued(Box::new(run)),
        // Still the holder: its epoch stands.
        Some(worker)
            if new.claim.is_some_and(|own| own.0 == worker)
                && column::<Option<i64>>(&row, "present_epoch")?
                    == column::<Option<i64>>(&row, "writer_epoch")? =>
        {
            Created::Started(Box::new(run), slot_of(&row)?)
        }
        Some(_) => Created::Exists,
    }))
}

/// Lock, insert and commit in one round trip.
async fn pipeline(
    client: &Object,
    new: &NewRun,
    kwargs: &[u8],
    branch: BranchId,
) -> Result<Option<Row>, Failure> {
    let lock = prepare(client, LOCK).await?;
    let create = prepare(client, CREATE).await?;
    let thread = match &new.create_thread {
        Some(thread) => Some((thread, prepare(client, thread::CREATE).await?)),
        None => None,
    };
    let create_thread = async {
        match &thread {
            Some((thread, statement)) => {
                thread::send_create(client, statement, thread, branch, Some(new.id.0)).await
            }
            None => Ok(false),
        }
    };
    let id: Params<'_, 1> = [&new.thread.0];
    let (begin, thread, lock, row, end) = tokio::join!(
        biased;
        client.batch_execute("BEGIN"),
        create_thread,
        client.query_opt(&lock, &id),
        insert(client, &create, new, kwargs),
        client.batch_execute("COMMIT"),
    );
    begin?;
    thread?;
    lock?;
    let row = row?;
    end?;
    Ok(row)
}

/// The same after the slot was cleared.
async fn after_others(
    client: &mut Object,
    new: &NewRun,
    kwargs: &[u8],
    branch: BranchId,
) -> Result<Option<Row>, Failure> {
    let lock = prepare(client, LOCK).await?;
    let create = prepare(client, CREATE).await?;
    let end_others = prepare(client, END_OTHERS).await?;
    let create_thread = prepare(client, thread::CREATE).await?;
    let transaction = client.transaction().await?;
    let connection = transaction.client();
    if let Some(thread) = &new.create_thread {
        thread::send_create(connection, &create_thread, thread, branch, Some(new.id.0)).await?;
    }
    // The rows of a rollback pin nothing new while they go, and none of theirs may be pinned.
    if new.strategy == Strategy::Rollback {
        connection
            .query(
                "SELECT 1 FROM trees WHERE tree_id = (SELECT tree_id FROM threads WHERE thread_id = $1) FOR UPDATE",
                &[&new.thread.0],
            )
            .await?;
    }
    // Undoing a run may make another branch active, and so mean another slot.
    loop {
        connection.query_opt(&lock, &[&new.thread.0]).await?;
        let ended = connection.query(&end_others, &[&new.thread.0]).await?;
        if new.strategy != Strategy::Rollback || ended.is_empty() {
            break;
        }
        for row in &ended {
            if column::<&str>(row, "status")? == "running" {
                delete::roll_back(connection, row, new.thread.0).await?;
            }
            let (tree, run): (Uuid, Uuid) = (column(row, "tree_id")?, column(row, "run_id")?);
            connection.execute(DELETE_RUN, &[&tree, &run]).await?;
        }
    }
    let row = insert(connection, &create, new, kwargs).await?;
    // A run that exists already must not have ended others.
    let inserted = match &row {
        Some(row) => column::<Option<Uuid>>(row, "run_id")?.is_some(),
        None => false,
    };
    if inserted {
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    Ok(row)
}

async fn insert(
    client: &tokio_postgres::Client,
    statement: &tokio_postgres::Statement,
    new: &NewRun,
    kwargs: &[u8],
) -> Result<Option<Row>, tokio_postgres::Error> {
    let address = new
        .address
        .map(|id| Json::new(format!(r#"{{"checkpoint_id":"{id}"}}"#)));
    let worker = new.claim.map(|worker| worker.0);
    let reject = new.strategy == Strategy::Reject;
    let metadata = Json::of_map(&new.metadata);
    let thread_metadata = Json::of_map(&new.thread_metadata);
    let thread_config = Json::of_map(&new.thread_config);
    client
        .query_opt(
            statement,
            &[
                &new.id.0,
                &new.thread.0,
                &new.assistant.0,
                &new.strategy.as_str(),
                &new.temporary,
                &metadata,
                &address,
                &codec::BINCODE,
                &kwargs,
                &new.after.as_secs_f64(),
                &worker,
                &reject,
                &thread_metadata,
                &thread_config,
            ],
        )
        .await
}
