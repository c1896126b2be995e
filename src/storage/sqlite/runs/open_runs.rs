//! Runs that are pending or running.

use rusqlite::{Connection, params};

use super::{
    super::row::{id, id_if},
    log,
};
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
    runs::Status,
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
    pub(super) fn ended(&self, head: Option<CheckpointId>, status: Status) -> log::Ended {
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

pub(super) const EVERYWHERE: &str = "SELECT thread_id, run_id FROM runs INDEXED BY runs_open \
    WHERE status IN ('pending', 'running') AND (?1 IS NULL OR status = ?1) ORDER BY seq";

/// Pending and running runs of all threads, oldest first.
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
