//! Runs that are deleted: an open one is undone, one that has ended leaves what others build on.

use deadpool_postgres::Transaction;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Store,
    commit::prepare,
    delete, events,
    params::{Json, column},
    pool::{self, Failure},
};
use crate::{
    checkpoint::Error,
    id::{BranchId, RunId, ThreadId, TreeId},
    runs::{Status, Undo},
    tree::{event, rows::NewEvent},
};

/// Nothing of a tree may be pinned while rows of it go.
const LOCK_TREE: &str = "
SELECT 1 FROM trees WHERE tree_id = (SELECT tree_id FROM threads WHERE thread_id = $1) FOR UPDATE";

/// Branches first, then runs: the order in which everybody locks.
const LOCK_BRANCH: &str = "
SELECT 1 FROM branches b WHERE (b.tree_id, b.branch_id) IN (
  SELECT r.tree_id, COALESCE(r.branch_id, t.active_branch_id) FROM threads t JOIN runs r ON r.tree_id = t.tree_id AND r.thread_id = t.thread_id
   WHERE t.thread_id = $1 AND r.run_id = $2) FOR NO KEY UPDATE";

const RUN: &str = "
SELECT r.tree_id, r.status, r.branch_id, r.base_checkpoint_id, r.last_checkpoint_id, r.opened_branch, r.temporary, b.head_checkpoint_id,
       r.base_checkpoint_id IS NULL OR EXISTS (SELECT 1 FROM checkpoints c WHERE c.tree_id = r.tree_id AND c.checkpoint_ns = ''
                  AND c.checkpoint_id = r.base_checkpoint_id) AS rooted,
       EXISTS (SELECT 1 FROM runs o WHERE o.tree_id = r.tree_id AND o.thread_id = r.thread_id AND o.branch_id = r.branch_id
                  AND o.status = 'running') AS busy
  FROM runs r LEFT JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = r.branch_id
 WHERE r.thread_id = $1 AND r.run_id = $2 FOR UPDATE OF r";

const FENCE: &str = "
UPDATE branches SET writer_epoch = writer_epoch + 1 WHERE tree_id = $1 AND branch_id = $2";

/// Why the last run ended: noted on its branch, or on the active one when that branch went too.
const NOTE: &str = "
UPDATE branches SET error = $4 WHERE tree_id = $1 AND branch_id = COALESCE(
  (SELECT b.branch_id FROM branches b WHERE b.tree_id = $1 AND b.branch_id = $2),
  (SELECT t.active_branch_id FROM threads t WHERE t.thread_id = $3))";

const HIDE: &str = "
INSERT INTO deleted_runs (tree_id, run_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";

const DELETE: &str = "DELETE FROM runs WHERE tree_id = $1 AND run_id = $2";

const EVERYWHERE: &str = "
SELECT thread_id, run_id FROM runs WHERE status IN ('pending', 'running') AND ($1::text IS NULL OR status = $1) ORDER BY seq";

impl Store {
    /// See [`runs::Store::remove`](crate::runs::Store::remove).
    pub(super) async fn remove_run(&self, what: Undo) -> Result<bool, Error> {
        let (what, again) = (&what, &std::sync::atomic::AtomicBool::new(false));
        pool::retry(&self.pools.critical, |mut client| async move {
            // An attempt whose answer was lost may have deleted it.
            let again = again.swap(true, std::sync::atomic::Ordering::Relaxed);
            let transaction = client.transaction().await?;
            transaction.query(LOCK_TREE, &[&what.thread.0]).await?;
            transaction
                .query(LOCK_BRANCH, &[&what.thread.0, &what.run.0])
                .await?;
            let row = transaction
                .query_opt(RUN, &[&what.thread.0, &what.run.0])
                .await?;
            let Some(row) = row else {
                return Ok(again);
            };
            if !undo(&transaction, what, &row).await? {
                return Ok(false);
            }
            transaction.commit().await?;
            Ok(true)
        })
        .await
    }

    /// Open runs of all threads, oldest first.
    pub(super) async fn open_everywhere(
        &self,
        status: Option<Status>,
    ) -> Result<Vec<(ThreadId, RunId)>, Error> {
        let rows = pool::retry(&self.pools.reads, |client| async move {
            let statement = prepare(&client, EVERYWHERE).await?;
            Ok(client
                .query(&statement, &[&status.map(Status::as_str)])
                .await?)
        })
        .await?;
        rows.iter()
            .map(|row| {
                let thread = ThreadId(column(row, "thread_id")?);
                Ok((thread, RunId(column(row, "run_id")?)))
            })
            .collect()
    }
}

async fn undo(transaction: &Transaction<'_>, what: &Undo, row: &Row) -> Result<bool, Failure> {
    let tree: Uuid = column(row, "tree_id")?;
    let branch: Option<Uuid> = column(row, "branch_id")?;
    let base: Option<Uuid> = column(row, "base_checkpoint_id")?;
    let last: Option<Uuid> = column(row, "last_checkpoint_id")?;
    let head: Option<Uuid> = column(row, "head_checkpoint_id")?;
    let status: &str = column(row, "status")?;
    let open = matches!(status, "pending" | "running");
    if !open && !what.ended {
        return Ok(false);
    }
    // After an end, only while nothing came after it.
    if open && !column::<bool>(row, "temporary")? {
        let told = NewEvent {
            kind: event::RUN_FINISHED,
            payload: event::end_of_run(what.run, Status::Interrupted.as_str()),
            branch: branch.map(BranchId),
            ..NewEvent::default()
        };
        events::append(transaction.client(), TreeId(tree), what.thread, &[told]).await?;
    }
    let is_newest = !open && head.is_some() && last == head && base != head;
    // Where it began may have been pruned: then the branch cannot go back there.
    let goes_back = is_newest && column(row, "rooted")? && !column::<bool>(row, "busy")?;
    if status == "running" || goes_back {
        transaction.execute(FENCE, &[&tree, &branch]).await?;
        delete::roll_back(transaction.client(), row, what.thread.0).await?;
        if let Some(error) = &what.error {
            let error = Json::of_value(error);
            transaction
                .execute(NOTE, &[&tree, &branch, &what.thread.0, &error])
                .await?;
        }
    } else if !open {
        // Later states need what it wrote; lists leave it out.
        transaction.execute(HIDE, &[&tree, &what.run.0]).await?;
    }
    transaction.execute(DELETE, &[&tree, &what.run.0]).await?;
    Ok(true)
}
