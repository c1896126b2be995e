//! Deleting runs, and rolling back or hiding what they wrote.

mod pending;

use rusqlite::{Connection, OptionalExtension, named_params, params};

use super::{
    super::{
        columns::{id, id_if, parsed},
        events,
        threads::{blobs, delete, event_facts, made_values::MadeValues, slots},
    },
    cancel::{interrupt, set_error},
    open_runs::OpenRunRow,
};
use crate::{
    checkpoint::Result,
    id::{BranchId, CheckpointId, TreeId},
    runs::{
        Status, Undo,
        transitions::removal::{DeletedRun, Removal},
    },
    time::Timestamp,
    tree::rollback::{self, Opened},
};

/// See [`runs::Tx::remove_run`](crate::runs::Tx::remove_run).
pub(in super::super) fn remove(db: &Connection, what: &Undo) -> Result<Option<Status>> {
    let now = Timestamp::now();
    let found = db
        .prepare_cached(RUN)?
        .query_row(params![what.run, what.thread], |row| {
            let run = OpenRunRow {
                id: what.run,
                status: parsed(row, 0)?,
                tree: id(row, 1)?,
                thread: what.thread,
                branch: id(row, 2)?,
                base: id_if(row, 3)?,
                temporary: row.get(4)?,
            };
            let deleted = DeletedRun {
                status: run.status,
                base: run.base,
                last: id_if(row, 5)?,
                head: id_if(row, 6)?,
                base_is_stored: row.get(7)?,
                branch_is_busy: row.get(8)?,
            };
            Ok((run, deleted))
        })
        .optional()?;
    let Some((run, deleted)) = found else {
        return Ok(None);
    };
    let has_ended = run.status.is_final();
    if has_ended && !what.ended {
        return Ok(None);
    }
    if !has_ended {
        interrupt(db, &run, false, now)?;
    }
    match deleted.removal() {
        Removal::Nothing => {}
        Removal::RollBack if has_ended => {
            slots::raise_epoch(db, run.tree, run.branch)?;
            roll_back(db, &run, now)?;
            recompute_outcome(db, run.tree, run.branch, now)?;
        }
        Removal::RollBack => {
            let shown_on = roll_back(db, &run, now)?;
            if let (Some(branch), Some(error)) = (shown_on, &what.error) {
                set_error(db, run.tree, branch, error)?;
            }
        }
        Removal::Hide => {
            db.prepare_cached(
                "INSERT INTO deleted_runs (tree_id, run_id) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            )?
            .execute(params![run.tree, run.id])?;
        }
    }
    db.prepare_cached("DELETE FROM runs WHERE run_id = ?1")?
        .execute([run.id])?;
    Ok(Some(run.status))
}

pub(super) const RUN: &str = "SELECT r.status, r.tree_id, coalesce(r.branch_id, t.active_branch_id), \
      r.base_checkpoint_id, r.temporary, r.last_checkpoint_id, b.head_checkpoint_id, \
      r.base_checkpoint_id IS NULL OR EXISTS (SELECT 1 FROM checkpoints c \
        WHERE c.tree_id = r.tree_id AND c.checkpoint_ns = '' \
          AND c.checkpoint_id = r.base_checkpoint_id), \
      EXISTS (SELECT 1 FROM runs o WHERE o.tree_id = r.tree_id AND o.thread_id = r.thread_id \
         AND o.branch_id = r.branch_id AND o.status = 'running') \
     FROM runs r JOIN threads t ON t.thread_id = r.thread_id \
     LEFT JOIN branches b ON b.tree_id = r.tree_id \
      AND b.branch_id = coalesce(r.branch_id, t.active_branch_id) \
    WHERE r.run_id = ?1 AND r.thread_id = ?2";

/// Marks a branch whose head went back as it is without its last run: interrupted when interrupts
/// are open at its head.
fn recompute_outcome(
    db: &Connection,
    tree: TreeId,
    branch: BranchId,
    now: Timestamp,
) -> Result<()> {
    db.prepare_cached(
        "UPDATE branches SET error = NULL, updated_at = ?3, outcome = CASE WHEN EXISTS ( \
           SELECT 1 FROM checkpoint_writes w WHERE w.tree_id = ?1 AND w.branch_id = ?2 \
              AND w.checkpoint_ns = '' AND w.checkpoint_id = head_checkpoint_id \
              AND w.idx = -3) THEN 'interrupted' ELSE 'idle' END \
         WHERE tree_id = ?1 AND branch_id = ?2",
    )?
    .execute(params![tree, branch, now.0])?;
    Ok(())
}

/// Rolls back what a run wrote, after its epoch was raised: its branch goes back to where the run
/// began, or is deleted if the run opened it. Returns the branch that is to show why the run ended.
pub(super) fn roll_back(
    db: &Connection,
    run: &OpenRunRow,
    now: Timestamp,
) -> Result<Option<BranchId>> {
    let opened = db
        .prepare_cached(
            "SELECT b.name, s.branch_id, s.name, \
               EXISTS (SELECT 1 FROM threads t WHERE t.thread_id = r.thread_id \
                  AND t.active_branch_id = b.branch_id) FROM runs r \
               JOIN branches b ON b.tree_id = r.tree_id AND b.branch_id = r.branch_id \
               JOIN branches s ON s.tree_id = b.tree_id AND s.branch_id = b.source_branch_id \
             WHERE r.run_id = ?1 AND r.opened_branch",
        )?
        .query_row([run.id], |row| {
            Ok(Opened {
                name: row.get(0)?,
                source: id(row, 1)?,
                source_name: row.get(2)?,
                is_active: row.get(3)?,
            })
        })
        .optional()?;
    let head = db
        .prepare_cached(
            "SELECT head_checkpoint_id FROM branches WHERE tree_id = ?1 AND branch_id = ?2",
        )?
        .query_row(params![run.tree, run.branch], |row| id_if(row, 0))?;
    let plan = rollback::plan(run.branch, run.base, opened);
    events::append(db, run.tree, run.thread, &plan.events, now)?;
    match plan.closes_for {
        Some(source) => close_branch(db, run, source, now)?,
        None => reset_head(db, run, now)?,
    }
    if head != run.base {
        remove_unpinned(db, run, head)?;
    }
    // Only now: what its graphs inside have stored there names values that stay.
    if let (None, Some(base)) = (plan.closes_for, run.base) {
        pending::restore(db, run, base)?;
    }
    Ok(plan.shown_on)
}

/// Deletes the branch that a run opened with what it decided where it began, and makes its source active in its place. Runs that
/// waited on it wait for the active branch again.
fn close_branch(db: &Connection, run: &OpenRunRow, source: BranchId, now: Timestamp) -> Result<()> {
    let (tree, branch) = (run.tree, run.branch);
    let thread = run.thread;
    db.prepare_cached(
        "UPDATE threads SET active_branch_id = ?1, updated_at = ?4 \
         WHERE thread_id = ?2 AND active_branch_id = ?3",
    )?
    .execute(params![source, thread, branch, now.0])?;
    db.prepare_cached(
        "UPDATE runs SET branch_id = NULL WHERE tree_id = ?1 AND branch_id = ?2 \
         AND status = 'pending' AND thread_id = ?3",
    )?
    .execute(params![tree, branch, thread])?;
    db.prepare_cached("DELETE FROM branches WHERE tree_id = ?1 AND branch_id = ?2")?
        .execute(params![tree, branch])?;
    db.prepare_cached(
        "DELETE FROM checkpoint_writes WHERE tree_id = ?1 AND branch_id = ?2 \
         AND checkpoint_ns = '' AND checkpoint_id = ?3",
    )?
    .execute(params![tree, branch, run.base])?;
    Ok(())
}

/// Puts a branch back to where a run began.
fn reset_head(db: &Connection, run: &OpenRunRow, now: Timestamp) -> Result<()> {
    let (tree, branch) = (run.tree, run.branch);
    let base = run.base;
    db.prepare_cached(
        "UPDATE branches SET head_checkpoint_id = ?3, version = version + 1, updated_at = ?4, \
         head_depth = coalesce((SELECT depth FROM checkpoints WHERE tree_id = ?1 \
           AND checkpoint_ns = '' AND checkpoint_id = ?3), -1) \
         WHERE tree_id = ?1 AND branch_id = ?2",
    )?
    .execute(params![tree, branch, base, now.0])?;
    Ok(())
}

/// What descends from a checkpoint of the run has a greater id, and was written by its thread or by a fork of that: paths
/// are walked no further.
pub(super) const UNPINNED: &str = "WITH RECURSIVE run_rows AS ( \
      SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints \
       WHERE tree_id = :tree AND checkpoint_ns = '' AND checkpoint_id = :head \
      UNION ALL \
      SELECT c.checkpoint_id, c.parent_checkpoint_id FROM run_rows r \
        CROSS JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
         AND c.checkpoint_id = r.parent_checkpoint_id \
       WHERE r.parent_checkpoint_id IS NOT :base), \
    first (id) AS (SELECT min(checkpoint_id) FROM run_rows), \
    heirs (id) AS ( \
      SELECT thread_id FROM checkpoints \
       WHERE tree_id = :tree AND checkpoint_ns = '' AND checkpoint_id = :head \
      UNION ALL \
      SELECT t.thread_id FROM heirs h JOIN threads t ON t.parent_thread_id = h.id), \
    keep AS ( \
      SELECT c.checkpoint_id, c.parent_checkpoint_id FROM pins p \
        CROSS JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
         AND c.checkpoint_id = p.checkpoint_id \
       WHERE p.tree_id = :tree AND +p.checkpoint_id >= (SELECT id FROM first) \
         AND +c.thread_id IN (SELECT id FROM heirs) \
      UNION \
      SELECT c.checkpoint_id, c.parent_checkpoint_id FROM keep k \
        CROSS JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
         AND c.checkpoint_id = k.parent_checkpoint_id \
       WHERE +c.checkpoint_id >= (SELECT id FROM first) \
         AND +c.thread_id IN (SELECT id FROM heirs)) \
    SELECT checkpoint_id FROM run_rows \
     WHERE checkpoint_id NOT IN (SELECT checkpoint_id FROM keep)";

/// Removes the checkpoints from `head` down to where a run began that are on no pin's path, and
/// the results at the base that name values of theirs: those tasks are to be executed once more.
fn remove_unpinned(db: &Connection, run: &OpenRunRow, head: Option<CheckpointId>) -> Result<()> {
    let unpinned = delete::ids(
        db,
        UNPINNED,
        named_params! {
            ":tree": run.tree,
            ":head": head,
            ":base": run.base,
        },
    )?;
    let (tree, base) = (run.tree, run.base);
    if !unpinned.is_empty() {
        let made = MadeValues::by(db, tree, &unpinned, (run.branch, base))?;
        event_facts::store(db, tree, &unpinned, true)?;
        delete::remove(db, tree, &unpinned, true)?;
        made.drop(db, tree, run.thread, base)?;
    }
    match base {
        Some(base) => blobs::forget_results(db, tree, run.branch, ("", base)),
        None => Ok(()),
    }
}
