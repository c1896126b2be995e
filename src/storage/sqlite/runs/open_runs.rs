//! Runs that are pending or running.

use rusqlite::{Connection, params};

use super::super::columns::{id, id_if, parsed};
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
    runs::{OpenRunState, Status},
    time::Timestamp,
};

/// A run that is pending or running, and the branch that it waits for or works on.
pub(super) struct OpenRunRow {
    pub(super) id: RunId,
    pub(super) status: Status,
    pub(super) tree: TreeId,
    pub(super) thread: ThreadId,
    pub(super) branch: BranchId,
    /// The head of the branch when it began.
    pub(super) base: Option<CheckpointId>,
    /// Its thread goes with it.
    pub(super) temporary: bool,
}

impl OpenRunRow {
    /// Whether a worker executes it.
    pub(super) fn is_running(&self) -> bool {
        self.status == Status::Running
    }
}

pub(super) const OPEN: &str = "SELECT r.run_id, r.status, r.tree_id, \
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
) -> Result<Vec<OpenRunRow>, Error> {
    let mut statement = db.prepare_cached(OPEN)?;
    let rows = statement.query_map(
        params![
            thread.0.as_bytes(),
            branch.as_ref().map(|id| id.0.as_bytes())
        ],
        |row| {
            Ok(OpenRunRow {
                id: id(row, 0)?,
                status: parsed(row, 1)?,
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
pub(in super::super) fn open(
    db: &Connection,
    status: Option<Status>,
) -> Result<Vec<(ThreadId, RunId)>, Error> {
    let mut statement = db.prepare_cached(EVERYWHERE)?;
    let rows = statement.query_map([status.map(Status::as_str)], |row| {
        Ok((id(row, 0)?, id(row, 1)?))
    })?;
    rows.map(|row| row.map_err(Error::from)).collect()
}

pub(super) const STATES: &str = "SELECT CASE WHEN status = 'pending' THEN run_at END \
    FROM runs INDEXED BY runs_open WHERE status IN ('pending', 'running') LIMIT ?1";

/// See [`runs::Store::open_states`](crate::runs::Store::open_states).
pub(in super::super) fn open_states(
    db: &Connection,
    limit: usize,
) -> Result<Vec<OpenRunState>, Error> {
    let now = Timestamp::now().0;
    let mut statement = db.prepare_cached(STATES)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let states = statement.query_map([limit], |row| {
        let run_at: Option<i64> = row.get(0)?;
        let waits = run_at.map(|at| OpenRunState::Waits((now - at) as f64 / 1e6));
        Ok(waits.unwrap_or(OpenRunState::Executed))
    })?;
    states.map(|state| state.map_err(Error::from)).collect()
}
