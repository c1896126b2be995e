//! Deleting runs, and rolling back or hiding what they wrote.

mod pending;

use tokio_postgres::{Client, Row};
use uuid::Uuid;

use super::super::{
    columns::{Json, Params, column, id_if, word},
    connection::Failure,
    events,
    threads::{
        blobs::forget_results, delete::DROP_CHECKPOINTS, event_facts, made_values::MadeValues,
    },
};
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, ThreadId, TreeId},
    runs::{
        Status, Undo,
        transitions::{
            removal::{DeletedRun, Removal},
            run_events::EndedRun,
        },
    },
    tree::rollback::{self, Opened},
};

/// Branches first, then runs: the order in which everybody locks. The branch from which the run's own came is to show why
/// the run ended.
const LOCK_BRANCH: &str = r#"
SELECT 1 FROM branches b WHERE (b.tree_id, b.branch_id) IN (
  SELECT r.tree_id, x.branch_id FROM threads t JOIN runs r ON r.tree_id = t.tree_id AND r.thread_id = t.thread_id
   CROSS JOIN LATERAL (VALUES (COALESCE(r.branch_id, t.active_branch_id)), (CASE WHEN r.opened_branch THEN
     (SELECT o.source_branch_id FROM branches o WHERE o.tree_id = r.tree_id AND o.branch_id = r.branch_id) END)) x(branch_id)
   WHERE t.thread_id = $1 AND r.run_id = $2)
 ORDER BY b.branch_id::text COLLATE "C" FOR NO KEY UPDATE"#;

const RUN: &str = "
SELECT r.tree_id, r.status, COALESCE(r.branch_id, t.active_branch_id) AS branch_id, r.base_checkpoint_id, r.last_checkpoint_id, r.temporary,
       b.head_checkpoint_id,
       r.base_checkpoint_id IS NULL OR EXISTS (SELECT 1 FROM checkpoints c WHERE c.tree_id = r.tree_id AND c.checkpoint_ns = ''
                  AND c.checkpoint_id = r.base_checkpoint_id) AS base_is_stored,
       EXISTS (SELECT 1 FROM runs o WHERE o.tree_id = r.tree_id AND o.thread_id = r.thread_id AND o.status IN ('pending', 'running')
                  AND CASE WHEN o.status = 'running' THEN o.branch_id = r.branch_id END) AS branch_is_busy
  FROM runs r JOIN threads t ON t.thread_id = r.thread_id
  LEFT JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = COALESCE(r.branch_id, t.active_branch_id)
 WHERE r.thread_id = $1 AND r.run_id = $2 FOR UPDATE OF r";

const FENCE: &str = "
UPDATE branches SET writer_epoch = writer_epoch + 1 WHERE tree_id = $1 AND branch_id = $2";

/// Stores on a branch why a run ended.
const SET_ERROR: &str = "UPDATE branches SET error = $3 WHERE tree_id = $1 AND branch_id = $2";

const HIDE: &str = "
INSERT INTO deleted_runs (tree_id, run_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";

const DELETE: &str = "DELETE FROM runs WHERE tree_id = $1 AND run_id = $2";

/// See [`runs::Tx::remove_run`](crate::runs::Tx::remove_run).
pub(in super::super) async fn remove_within(
    client: &Client,
    what: &Undo,
) -> Result<Option<Status>, Failure> {
    match lock(client, what).await? {
        Some(row) => apply(client, what, &row).await,
        None => Ok(None),
    }
}

/// Locks the branch of a run, then the run.
async fn lock(client: &Client, what: &Undo) -> Result<Option<Row>, Failure> {
    let key: Params<'_, 2> = [&what.thread.0, &what.run.0];
    client.query(LOCK_BRANCH, &key).await?;
    Ok(client.query_opt(RUN, &key).await?)
}

async fn apply(client: &Client, what: &Undo, row: &Row) -> Result<Option<Status>, Failure> {
    let run = RolledBack::of(row, what.thread)?;
    let deleted = DeletedRun {
        status: word(column(row, "status")?)?,
        base: run.base.map(CheckpointId),
        last: id_if(row, "last_checkpoint_id")?,
        head: run.head.map(CheckpointId),
        base_is_stored: column(row, "base_is_stored")?,
        branch_is_busy: column(row, "branch_is_busy")?,
    };
    let has_ended = deleted.status.is_final();
    if has_ended && !what.ended {
        return Ok(None);
    }
    if !has_ended && !column::<bool>(row, "temporary")? {
        let ended = EndedRun {
            id: what.run,
            branch: BranchId(run.branch),
            base: deleted.base,
            head: None,
            status: Status::Interrupted,
        };
        events::append(client, TreeId(run.tree), what.thread, &ended.events()).await?;
    }
    let branch: Params<'_, 2> = [&run.tree, &run.branch];
    match deleted.removal() {
        Removal::Nothing => {}
        Removal::RollBack => {
            client.execute(FENCE, &branch).await?;
            let shown_on = roll_back(client, what.run.0, &run).await?;
            if has_ended {
                client.execute(RECOMPUTE_OUTCOME, &branch).await?;
            } else if let (Some(branch), Some(error)) = (shown_on, &what.error) {
                let error = Json::of_value(error);
                client
                    .execute(SET_ERROR, &[&run.tree, &branch.0, &error])
                    .await?;
            }
        }
        Removal::Hide => {
            client.execute(HIDE, &[&run.tree, &what.run.0]).await?;
        }
    }
    client.execute(DELETE, &[&run.tree, &what.run.0]).await?;
    Ok(Some(deleted.status))
}

/// The checkpoints of a run, from its head `$2` back to its base `$3`, that are on no pin's path. What descends from
/// one of them has a greater id, and was written by its thread or by a fork of that: paths are walked no further.
const UNPINNED: &str = "
WITH RECURSIVE run_rows AS (
  SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints
   WHERE tree_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $2 AND $2::uuid IS DISTINCT FROM $3::uuid
  UNION ALL
  SELECT c.checkpoint_id, c.parent_checkpoint_id FROM run_rows r
   CROSS JOIN LATERAL (SELECT c.checkpoint_id, c.parent_checkpoint_id FROM checkpoints c
      WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = r.parent_checkpoint_id LIMIT 1) c
   WHERE r.parent_checkpoint_id IS DISTINCT FROM $3),
first AS (SELECT r.checkpoint_id FROM run_rows r ORDER BY r.checkpoint_id LIMIT 1),
heirs AS (
  SELECT thread_id FROM checkpoints WHERE tree_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $2
  UNION ALL
  SELECT t.thread_id FROM heirs h CROSS JOIN LATERAL (SELECT t.thread_id FROM threads t WHERE t.parent_thread_id = h.thread_id OFFSET 0) t),
keep AS (
  SELECT c.checkpoint_id, c.parent_checkpoint_id FROM pins p
   CROSS JOIN LATERAL (SELECT c.checkpoint_id, c.parent_checkpoint_id, c.thread_id FROM checkpoints c
      WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = p.checkpoint_id LIMIT 1) c
   WHERE p.tree_id = $1 AND p.checkpoint_id >= (SELECT checkpoint_id FROM first) AND c.thread_id IN (SELECT thread_id FROM heirs)
  UNION
  SELECT c.checkpoint_id, c.parent_checkpoint_id FROM keep k
   CROSS JOIN LATERAL (SELECT c.checkpoint_id, c.parent_checkpoint_id, c.thread_id FROM checkpoints c
      WHERE c.tree_id = $1 AND c.checkpoint_ns = '' AND c.checkpoint_id = k.parent_checkpoint_id LIMIT 1) c
   WHERE c.checkpoint_id >= (SELECT checkpoint_id FROM first) AND c.thread_id IN (SELECT thread_id FROM heirs))
SELECT array_agg(checkpoint_id) AS ids FROM run_rows r WHERE NOT EXISTS (SELECT 1 FROM keep k WHERE k.checkpoint_id = r.checkpoint_id)";

/// The head goes back to where the run began.
const RESET_HEAD: &str = "
UPDATE branches SET head_checkpoint_id = $3, version = version + 1, updated_at = now(),
       head_depth = COALESCE((SELECT depth FROM checkpoints WHERE tree_id = $1 AND checkpoint_ns = '' AND checkpoint_id = $3), -1)
 WHERE tree_id = $1 AND branch_id = $2";

/// Marks a branch whose head went back as it is without its last run: interrupted when interrupts
/// are open at its head.
const RECOMPUTE_OUTCOME: &str = "
UPDATE branches b SET error = NULL, updated_at = now(),
       outcome = CASE WHEN EXISTS (SELECT 1 FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.branch_id = $2 AND w.checkpoint_ns = ''
                                      AND w.checkpoint_id = b.head_checkpoint_id AND w.idx = -3) THEN 'interrupted' ELSE 'idle' END
 WHERE b.tree_id = $1 AND b.branch_id = $2";

/// Deletes the branch that a run opened, and makes its source `$4` active in its place. Runs that
/// waited on it wait for the active branch again.
const CLOSE_BRANCH: &str = "
WITH b AS (DELETE FROM branches WHERE tree_id = $1 AND branch_id = $2),
r AS (UPDATE runs SET branch_id = NULL WHERE tree_id = $1 AND thread_id = $3 AND status IN ('pending', 'running')
      AND CASE WHEN status = 'pending' THEN branch_id = $2 END)
UPDATE threads SET active_branch_id = $4, updated_at = now() WHERE thread_id = $3 AND active_branch_id = $2";

/// What was decided on a branch that is closed, where it began.
const CLEAN_CLOSED: &str = "
DELETE FROM checkpoint_writes w WHERE w.tree_id = $1 AND w.branch_id = $2 AND w.checkpoint_ns = '' AND w.checkpoint_id = $3";

/// The branch that a run opened, with its source, while no other becomes the active one.
const OPENED: &str = "
SELECT b.name, s.branch_id AS source_id, s.name AS source, COALESCE(t.active_branch_id = b.branch_id, false) AS is_active FROM runs r
 CROSS JOIN LATERAL (SELECT t.* FROM threads t WHERE t.thread_id = r.thread_id FOR NO KEY UPDATE) t
 CROSS JOIN LATERAL (SELECT b.* FROM branches b WHERE b.tree_id = r.tree_id AND b.branch_id = r.branch_id LIMIT 1) b
 CROSS JOIN LATERAL (SELECT s.* FROM branches s WHERE s.tree_id = b.tree_id AND s.branch_id = b.source_branch_id LIMIT 1) s
 WHERE r.tree_id = $1 AND r.run_id = $2 AND r.opened_branch";

/// Where a run that is rolled back has worked.
pub(super) struct RolledBack {
    tree: Uuid,
    thread: Uuid,
    branch: Uuid,
    /// The head of the branch when the run began.
    base: Option<Uuid>,
    /// The head of the branch now.
    head: Option<Uuid>,
}

impl RolledBack {
    pub(super) fn of(row: &Row, thread: ThreadId) -> Result<Self, Error> {
        Ok(Self {
            tree: column(row, "tree_id")?,
            thread: thread.0,
            branch: column(row, "branch_id")?,
            base: column(row, "base_checkpoint_id")?,
            head: column(row, "head_checkpoint_id")?,
        })
    }
}

/// Rolls back what a run wrote, after its epoch was raised: its branch goes back to where the run
/// began, or is deleted if the run opened it. Returns the branch that is to show why the run ended.
pub(super) async fn roll_back(
    client: &Client,
    run_id: Uuid,
    run: &RolledBack,
) -> Result<Option<BranchId>, Failure> {
    let (tree, branch, base) = (run.tree, run.branch, run.base);
    let opened = client.query_opt(OPENED, &[&tree, &run_id]).await?;
    let opened = opened.as_ref().map(opened_of).transpose()?;
    let plan = rollback::plan(BranchId(branch), base.map(CheckpointId), opened);
    events::append(client, TreeId(tree), ThreadId(run.thread), &plan.events).await?;
    if let Some(source) = plan.closes_for {
        client
            .execute(CLOSE_BRANCH, &[&tree, &branch, &run.thread, &source.0])
            .await?;
        client
            .execute(CLEAN_CLOSED, &[&tree, &branch, &base])
            .await?;
    } else {
        client.execute(RESET_HEAD, &[&tree, &branch, &base]).await?;
    }
    remove_unpinned(client, run).await?;
    // Only now: what its graphs inside have stored there names values that stay.
    if let (None, Some(base)) = (plan.closes_for, base) {
        pending::restore(client, run_id, run, base).await?;
    }
    Ok(plan.shown_on)
}

fn opened_of(row: &Row) -> Result<Opened, Error> {
    Ok(Opened {
        name: column(row, "name")?,
        source: BranchId(column(row, "source_id")?),
        source_name: column(row, "source")?,
        is_active: column(row, "is_active")?,
    })
}

/// Removes the checkpoints down to where a run began that are on no pin's path, with the values
/// that nothing else names, and the results at the base that name them: those tasks are to be
/// executed once more.
async fn remove_unpinned(client: &Client, run: &RolledBack) -> Result<(), Failure> {
    let (tree, branch, base, head) = (run.tree, run.branch, run.base, run.head);
    let began: Vec<_> = base.map(|base| ("", base)).into_iter().collect();
    let unpinned: Option<Vec<Uuid>> = client
        .query_one(UNPINNED, &[&tree, &head, &base])
        .await?
        .try_get("ids")?;
    let Some(unpinned) = unpinned else {
        if head == base {
            return Ok(());
        }
        return forget_results(client, tree, branch, &began).await;
    };
    let made = MadeValues::by(client, tree, &unpinned, Some((branch, base))).await?;
    event_facts::store(client, tree, &unpinned, true).await?;
    client
        .execute(DROP_CHECKPOINTS, &[&tree, &unpinned, &true])
        .await?;
    made.drop(client, tree, run.thread, base).await?;
    forget_results(client, tree, branch, &began).await
}

statements!(
    LOCK_BRANCH,
    RUN,
    FENCE,
    SET_ERROR,
    HIDE,
    DELETE,
    UNPINNED,
    RESET_HEAD,
    RECOMPUTE_OUTCOME,
    CLEAN_CLOSED,
    CLOSE_BRANCH,
    OPENED;
    pending
);
