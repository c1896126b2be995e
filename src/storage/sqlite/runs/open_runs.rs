//! Runs that are pending or running.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use super::super::columns::{all, id, id_if, one, parsed};
use crate::{
    checkpoint::{Error, Result},
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
    runs::{OpenPage, OpenRunState, OpenedRun, Status},
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
) -> Result<Vec<OpenRunRow>> {
    let mut statement = db.prepare_cached(OPEN)?;
    let rows = statement.query_map(params![thread, branch], |row| {
        Ok(OpenRunRow {
            id: id(row, 0)?,
            status: parsed(row, 1)?,
            tree: id(row, 2)?,
            thread,
            branch: id(row, 3)?,
            base: id_if(row, 4)?,
            temporary: row.get(5)?,
        })
    })?;
    rows.map(|row| row.map_err(Error::from)).collect()
}

pub(super) const EVERYWHERE: &str = "SELECT r.seq, r.thread_id, r.run_id \
    FROM runs r INDEXED BY runs_open \
    WHERE r.status IN ('pending', 'running') AND (?1 IS NULL OR r.status = ?1) \
      AND (?2 IS NULL OR r.seq > ?2) \
      AND (?3 IS NULL \
        OR EXISTS (SELECT 1 FROM trees o WHERE o.tree_id = r.tree_id AND o.owner = ?3) \
        OR EXISTS (SELECT 1 FROM tree_members m WHERE m.tree_id = r.tree_id \
          AND m.principal = ?3 AND m.level <> 'reader')) \
    ORDER BY r.seq LIMIT ?4";

/// See [`runs::Store::open`](crate::runs::Store::open).
pub(in super::super) fn open(db: &Connection, page: &OpenPage) -> Result<Vec<OpenedRun>> {
    let params = params![
        page.status.map(Status::as_str),
        page.after,
        page.writer,
        i64::try_from(page.limit).unwrap_or(i64::MAX),
    ];
    all(db, EVERYWHERE, params, |row| {
        Ok(OpenedRun {
            seq: row.get(0)?,
            thread: id(row, 1)?,
            run: id(row, 2)?,
        })
    })
}

pub(super) const AMONG: &str = "SELECT run_id, status IN ('pending', 'running') FROM runs \
    WHERE run_id = ?2 AND thread_id = ?1";

/// See [`runs::Store::is_open`](crate::runs::Store::is_open).
pub(in super::super) fn is_open(
    db: &Connection,
    thread: ThreadId,
    runs: &[RunId],
) -> Result<Vec<(RunId, bool)>> {
    let mut found = vec![];
    for run in runs.iter().collect::<BTreeSet<_>>() {
        let params = params![thread, run];
        found.extend(one(db, AMONG, params, |row| {
            Ok((id(row, 0)?, row.get(1)?))
        })?);
    }
    Ok(found)
}

pub(super) const STATES: &str = "SELECT CASE WHEN status = 'pending' THEN run_at END \
    FROM runs INDEXED BY runs_open WHERE status IN ('pending', 'running') LIMIT ?1";

/// See [`runs::Store::open_states`](crate::runs::Store::open_states).
pub(in super::super) fn open_states(db: &Connection, limit: usize) -> Result<Vec<OpenRunState>> {
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
