//! Runs that are pending or running, and how others end them.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use super::{
    super::{
        events, purge,
        row::{id, id_if},
    },
    log,
};
use crate::{
    checkpoint::{Error, Slot},
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
    runs::Status,
    time::Timestamp,
    tree::{event, rows::NewEvent},
};

/// A run that is pending or running, and the slot it contends for.
pub(super) struct Open {
    pub(super) run: RunId,
    pub(super) running: bool,
    pub(super) tree: TreeId,
    pub(super) thread: ThreadId,
    pub(super) branch: BranchId,
    pub(super) base: Option<CheckpointId>,
    /// Its thread goes with it.
    pub(super) temporary: bool,
}

impl Open {
    fn ended(&self, head: Option<CheckpointId>, status: Status) -> log::Ended {
        log::Ended {
            tree: self.tree,
            thread: self.thread,
            run: self.run,
            branch: self.branch,
            base: self.base,
            head,
            status,
        }
    }
}

pub(super) const OPEN: &str = "SELECT r.run_id, r.status = 'running', r.tree_id, \
          coalesce(r.branch_id, t.active_branch_id), r.base_checkpoint_id, \
          r.temporary \
     FROM threads t JOIN runs r ON r.tree_id = t.tree_id AND r.thread_id = t.thread_id \
      AND r.status IN ('pending', 'running') \
    WHERE t.thread_id = ?1 \
      AND (?2 IS NULL OR coalesce(r.branch_id, t.active_branch_id) = ?2) \
    ORDER BY r.seq";

/// Pending and running runs of a thread, or of one slot of it, in order of creation.
pub(super) fn open_runs(
    db: &Connection,
    thread: ThreadId,
    branch: Option<BranchId>,
) -> Result<Vec<Open>, Error> {
    let mut statement = db.prepare_cached(OPEN)?;
    let rows = statement.query_map(
        params![
            thread.0.as_bytes(),
            branch.as_ref().map(|id| id.0.as_bytes())
        ],
        |row| {
            Ok(Open {
                run: id(row, 0)?,
                running: row.get(1)?,
                tree: id(row, 2)?,
                thread,
                branch: id(row, 3)?,
                base: id_if(row, 4)?,
                temporary: row.get(5)?,
            })
        },
    )?;
    rows.map(|row| row.map_err(Error::from)).collect()
}

/// Ends a run from outside. Its worker, if it has one, is fenced off. The branch is marked
/// interrupted when the run moved it and its work is kept.
pub(super) fn interrupt(
    db: &Connection,
    open: &Open,
    keep: bool,
    now: Timestamp,
) -> Result<(), Error> {
    let head: Option<CheckpointId> = if open.running {
        db.prepare_cached(
            "UPDATE branches SET writer_epoch = writer_epoch + 1, updated_at = ?3, \
             error = CASE WHEN NOT ?5 OR head_checkpoint_id IS ?4 THEN error END, \
             outcome = CASE WHEN NOT ?5 OR head_checkpoint_id IS ?4 THEN outcome \
               ELSE 'interrupted' END \
             WHERE tree_id = ?1 AND branch_id = ?2 RETURNING head_checkpoint_id",
        )?
        .query_row(
            params![
                open.tree.0.as_bytes(),
                open.branch.0.as_bytes(),
                now.0,
                open.base.as_ref().map(|id| id.0.as_bytes()),
                keep,
            ],
            |row| id_if(row, 0),
        )?
    } else {
        None
    };
    db.prepare_cached(
        "UPDATE runs SET status = 'interrupted', last_checkpoint_id = ?2, updated_at = ?3 \
         WHERE run_id = ?1 AND status IN ('pending', 'running')",
    )?
    .execute(params![
        open.run.0.as_bytes(),
        head.as_ref().map(|id| id.0.as_bytes()),
        now.0,
    ])?;
    if open.temporary {
        return Ok(());
    }
    let end = open.ended(head.filter(|_| keep), Status::Interrupted);
    log::ended(db, &end, now)
}

/// Ends the run that holds a slot, if one does.
pub(in super::super) fn end_running(
    db: &Connection,
    slot: &Slot,
    now: Timestamp,
) -> Result<(), Error> {
    for open in open_runs(db, slot.thread, Some(slot.branch))? {
        if open.running {
            interrupt(db, &open, true, now)?;
        }
    }
    Ok(())
}

/// Undoes what an interrupted run wrote. A branch it created goes, and the branch it came from
/// is active again.
pub(super) fn undo(db: &Connection, open: &Open, now: Timestamp) -> Result<(), Error> {
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
        return purge::roll_back(db, open.tree, open.branch, open.base);
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
    purge::unpinned(db, open.tree, head, base)
}
