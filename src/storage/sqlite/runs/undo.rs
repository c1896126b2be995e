//! Runs that are deleted: an open one is rolled back, one that has ended leaves what others build on.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, named_params, params};

use super::{
    super::{
        events,
        row::{id, id_if},
        threads::{self, blobs, delete, event_facts},
    },
    cancel::{interrupt, set_error},
    open_runs::{Open, open_runs},
};
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
    runs::Undo,
    time::Timestamp,
    tree::{event, store::rows::NewEvent},
};

/// Undoes and deletes a run; false when there is no such run.
pub(super) fn remove(db: &Connection, what: &Undo, now: Timestamp) -> Result<bool, Error> {
    let others = open_runs(db, what.thread, None)?;
    if let Some(open) = others.iter().find(|open| open.run == what.run) {
        interrupt(db, open, false, now)?;
        if open.running {
            roll_back(db, open, now)?;
            if let Some(error) = &what.error {
                set_error(db, open, error)?;
            }
        }
        delete(db, what.run)?;
        return Ok(true);
    }
    if !what.ended {
        return Ok(false);
    }
    let Some(ended) = ended(db, what.thread, what.run)? else {
        return Ok(false);
    };
    match ended {
        // Nothing came after it: the branch goes back to where the run began, if that is still
        // there.
        Ended {
            open,
            last: Some(last),
            head: Some(head),
            rooted: true,
        } if last == head
            && open.base != Some(head)
            && !others
                .iter()
                .any(|other| other.running && other.branch == open.branch) =>
        {
            threads::raise_epoch(db, open.tree, open.branch)?;
            roll_back(db, &open, now)?;
            db.prepare_cached(
                "UPDATE branches SET error = NULL, updated_at = ?3, outcome = CASE WHEN EXISTS ( \
                   SELECT 1 FROM checkpoint_writes w WHERE w.tree_id = ?1 AND w.branch_id = ?2 \
                      AND w.checkpoint_ns = '' AND w.checkpoint_id = head_checkpoint_id \
                      AND w.idx = -3) THEN 'interrupted' ELSE 'idle' END \
                 WHERE tree_id = ?1 AND branch_id = ?2",
            )?
            .execute(params![
                open.tree.0.as_bytes(),
                open.branch.0.as_bytes(),
                now.0
            ])?;
        }
        // Later states need what it wrote; lists leave it out.
        Ended { open, .. } => {
            db.prepare_cached(
                "INSERT INTO deleted_runs (tree_id, run_id) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            )?
            .execute(params![open.tree.0.as_bytes(), open.run.0.as_bytes()])?;
        }
    }
    delete(db, what.run)?;
    Ok(true)
}

struct Ended {
    open: Open,
    last: Option<CheckpointId>,
    head: Option<CheckpointId>,
    /// The checkpoint it began at was not pruned.
    rooted: bool,
}

fn ended(db: &Connection, thread: ThreadId, run: RunId) -> Result<Option<Ended>, Error> {
    Ok(db
        .prepare_cached(
            "SELECT r.tree_id, coalesce(r.branch_id, zeroblob(16)), r.base_checkpoint_id, \
                    r.last_checkpoint_id, b.head_checkpoint_id, \
                    r.base_checkpoint_id IS NULL OR EXISTS (SELECT 1 FROM checkpoints c \
                      WHERE c.tree_id = r.tree_id AND c.checkpoint_ns = '' \
                        AND c.checkpoint_id = r.base_checkpoint_id) \
               FROM runs r LEFT JOIN branches b \
                 ON b.tree_id = r.tree_id AND b.branch_id = r.branch_id \
              WHERE r.run_id = ?1 AND r.thread_id = ?2",
        )?
        .query_row(params![run.0.as_bytes(), thread.0.as_bytes()], |row| {
            Ok(Ended {
                open: Open {
                    run,
                    running: false,
                    tree: id::<TreeId>(row, 0)?,
                    thread,
                    branch: id::<BranchId>(row, 1)?,
                    base: id_if(row, 2)?,
                    temporary: false,
                },
                last: id_if(row, 3)?,
                head: id_if(row, 4)?,
                rooted: row.get(5)?,
            })
        })
        .optional()?)
}

fn delete(db: &Connection, run: RunId) -> Result<(), Error> {
    db.prepare_cached("DELETE FROM runs WHERE run_id = ?1")?
        .execute([run.0.as_bytes()])?;
    Ok(())
}

/// Undoes what an interrupted run wrote. A branch it created goes, and the branch it came from
/// is active again.
pub(super) fn roll_back(db: &Connection, open: &Open, now: Timestamp) -> Result<(), Error> {
    let tree = open.tree.0.as_bytes();
    let branch = open.branch.0.as_bytes();
    let created = db
        .prepare_cached(
            "SELECT s.branch_id, b.head_checkpoint_id, b.name, s.name FROM branches b JOIN branches s \
               ON s.tree_id = b.tree_id AND s.branch_id = b.source_branch_id \
             WHERE b.tree_id = ?1 AND b.branch_id = ?2 AND b.run_id = ?3",
        )?
        .query_row(params![tree, branch, open.run.0.as_bytes()], |row| {
            let source: BranchId = id(row, 0)?;
            let head: Option<[u8; 16]> = row.get(1)?;
            let names: (Arc<str>, Arc<str>) = (row.get(2)?, row.get(3)?);
            Ok((source, head, names))
        })
        .optional()?;
    let about = |kind, branch| NewEvent {
        kind,
        branch: Some(branch),
        checkpoint: open.base,
        ..NewEvent::default()
    };
    let Some((source, head, (name, source_name))) = created else {
        let told = about(event::BRANCH_HEAD_RESET, open.branch);
        events::append(db, open.tree, open.thread, &[told], now)?;
        return reset_head(db, open.tree, open.branch, open.base);
    };
    let told = [
        NewEvent {
            payload: event::about_branch(&name),
            ..about(event::BRANCH_DELETED, open.branch)
        },
        event::branch_activated(source, &source_name),
    ];
    events::append(db, open.tree, open.thread, &told, now)?;
    db.prepare_cached(
        "UPDATE threads SET active_branch_id = ?1 WHERE thread_id = ?2 AND active_branch_id = ?3",
    )?
    .execute(params![
        source.0.as_bytes(),
        open.thread.0.as_bytes(),
        branch
    ])?;
    // Runs that waited behind it on the new branch float again.
    db.prepare_cached(
        "UPDATE runs SET branch_id = NULL WHERE tree_id = ?1 AND branch_id = ?2 \
         AND status = 'pending' AND thread_id = ?3",
    )?
    .execute(params![tree, branch, open.thread.0.as_bytes()])?;
    db.prepare_cached("DELETE FROM branches WHERE tree_id = ?1 AND branch_id = ?2")?
        .execute(params![tree, branch])?;
    let base = open.base.as_ref().map(|id| id.0.as_bytes());
    if head.as_ref() == base {
        return Ok(());
    }
    remove_unpinned(db, open.tree, head, base)
}

/// Puts a branch back to `base` after its run's epoch was raised, and deletes what the run wrote
/// as far as no branch, tag, fork or other run needs it.
fn reset_head(
    db: &Connection,
    tree: TreeId,
    branch: BranchId,
    base: Option<CheckpointId>,
) -> Result<(), Error> {
    let id = tree.0.as_bytes();
    let base_id = base.as_ref().map(|id| id.0.as_bytes());
    let head: Option<[u8; 16]> = db
        .prepare_cached(
            "SELECT head_checkpoint_id FROM branches WHERE tree_id = ?1 AND branch_id = ?2",
        )?
        .query_row(params![id, branch.0.as_bytes()], |row| row.get(0))?;
    db.prepare_cached(
        "UPDATE branches SET head_checkpoint_id = ?3, version = version + 1, updated_at = ?4, \
         head_depth = coalesce((SELECT depth FROM checkpoints WHERE tree_id = ?1 \
           AND checkpoint_ns = '' AND checkpoint_id = ?3), -1) \
         WHERE tree_id = ?1 AND branch_id = ?2",
    )?
    .execute(params![
        id,
        branch.0.as_bytes(),
        base_id,
        Timestamp::now().0
    ])?;
    if let Some(base) = base_id {
        // What the run decided at its base: results of tasks that had asked, and its own answers.
        db.prepare_cached(
            "DELETE FROM checkpoint_writes WHERE tree_id = ?1 AND branch_id = ?2 \
             AND checkpoint_ns = '' AND checkpoint_id = ?3 \
             AND (task_id = zeroblob(16) OR (idx = 0 AND task_id IN ( \
               SELECT task_id FROM checkpoint_writes WHERE tree_id = ?1 AND branch_id = ?2 \
               AND checkpoint_ns = '' AND checkpoint_id = ?3 AND channel = '__interrupt__')))",
        )?
        .execute(params![id, branch.0.as_bytes(), base])?;
    }
    if head.as_ref() != base_id {
        remove_unpinned(db, tree, head, base_id)?;
        if let Some(base) = base {
            blobs::forget_results(db, tree, branch, base)?;
        }
    }
    Ok(())
}

pub(super) const UNPINNED: &str = "WITH RECURSIVE bound (depth) AS ( \
      SELECT coalesce((SELECT depth FROM checkpoints WHERE tree_id = :tree \
        AND checkpoint_ns = '' AND checkpoint_id = :base), -1)), \
    run_rows AS ( \
      SELECT checkpoint_id, parent_checkpoint_id FROM checkpoints \
       WHERE tree_id = :tree AND checkpoint_ns = '' AND checkpoint_id = :head \
      UNION ALL \
      SELECT c.checkpoint_id, c.parent_checkpoint_id FROM run_rows r \
        JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
         AND c.checkpoint_id = r.parent_checkpoint_id \
       WHERE r.parent_checkpoint_id IS NOT :base), \
    keep AS ( \
      SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth FROM pins p \
        JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
         AND c.checkpoint_id = p.checkpoint_id \
       WHERE p.tree_id = :tree AND p.depth > (SELECT depth FROM bound) \
      UNION \
      SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth FROM keep k \
        CROSS JOIN checkpoints c ON c.tree_id = :tree AND c.checkpoint_ns = '' \
         AND c.checkpoint_id = k.parent_checkpoint_id \
       WHERE c.depth > (SELECT depth FROM bound)) \
    SELECT checkpoint_id FROM run_rows \
     WHERE checkpoint_id NOT IN (SELECT checkpoint_id FROM keep)";

/// Removes the rows from `head` down to `base` that no pin's path holds.
fn remove_unpinned(
    db: &Connection,
    tree: TreeId,
    head: Option<[u8; 16]>,
    base: Option<&[u8; 16]>,
) -> Result<(), Error> {
    let doomed = delete::ids(
        db,
        UNPINNED,
        named_params! { ":tree": tree.0.as_bytes(), ":head": head, ":base": base },
    )?;
    if doomed.is_empty() {
        return Ok(());
    }
    event_facts::keep(db, tree, &doomed, true)?;
    delete::remove(db, tree, &doomed, true)?;
    blobs::collect(db, tree)
}
