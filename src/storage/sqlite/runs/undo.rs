//! Runs that are deleted: an open one is undone, one that has ended leaves what others build on.

use rusqlite::{Connection, OptionalExtension, params};

use super::{
    super::{
        row::{id, id_if},
        threads,
    },
    open::{Open, interrupt, open_runs, undo},
};
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
    runs::{Status, Undo},
    time::Timestamp,
    value::Value,
};

/// Notes on a branch, or else on the active one, why its last run ended.
pub(super) fn note(db: &Connection, open: &Open, error: &Value) -> Result<(), Error> {
    let error = error.to_json();
    let tree = open.tree.0.as_bytes();
    let changed = db
        .prepare_cached("UPDATE branches SET error = ?3 WHERE tree_id = ?1 AND branch_id = ?2")?
        .execute(params![tree, open.branch.0.as_bytes(), error])?;
    if changed == 0 {
        // The run's own branch went with it.
        db.prepare_cached(
            "UPDATE branches SET error = ?3 WHERE tree_id = ?1 AND branch_id = \
             (SELECT active_branch_id FROM threads WHERE thread_id = ?2)",
        )?
        .execute(params![tree, open.thread.0.as_bytes(), error])?;
    }
    Ok(())
}

/// Undoes and deletes a run; false when there is no such run.
pub(super) fn remove(db: &Connection, what: &Undo, now: Timestamp) -> Result<bool, Error> {
    let others = open_runs(db, what.thread, None)?;
    if let Some(open) = others.iter().find(|open| open.run == what.run) {
        interrupt(db, open, false, now)?;
        if open.running {
            undo(db, open, now)?;
            if let Some(error) = &what.error {
                note(db, open, error)?;
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
            undo(db, &open, now)?;
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

pub(super) const EVERYWHERE: &str = "SELECT thread_id, run_id FROM runs INDEXED BY runs_open \
    WHERE status IN ('pending', 'running') AND (?1 IS NULL OR status = ?1) ORDER BY seq";

/// Open runs of all threads, oldest first.
pub(super) fn everywhere(
    db: &Connection,
    status: Option<Status>,
) -> Result<Vec<(ThreadId, RunId)>, Error> {
    let mut statement = db.prepare_cached(EVERYWHERE)?;
    let rows = statement.query_map([status.map(Status::as_str)], |row| {
        Ok((id(row, 0)?, id(row, 1)?))
    })?;
    rows.map(|row| row.map_err(Error::from)).collect()
}
