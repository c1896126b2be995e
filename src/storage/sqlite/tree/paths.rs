//! Root checkpoints and the paths through them.

use const_format::formatcp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::POINT_COLUMNS;
use crate::{
    checkpoint::{Result, Source},
    id::{BranchId, CheckpointId, ThreadId, TreeId},
    storage::sqlite::columns::{all, id, id_if, one, parsed},
    time::Timestamp,
    tree::store::rows::Point,
};

/// Rows that a walk takes at most.
const MAX_WALK: i64 = 100_000;

/// A limit as SQLite takes it.
pub(super) fn bounded(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(MAX_WALK).min(MAX_WALK)
}

pub(super) fn read_point(row: &Row<'_>) -> rusqlite::Result<Point> {
    Ok(Point {
        id: id(row, 0)?,
        parent: id_if(row, 1)?,
        depth: row.get(2)?,
        thread: id(row, 3)?,
        branch: id(row, 4)?,
        last_node: id_if(row, 5)?,
        event_number: row.get(6)?,
        run: id_if(row, 7)?,
        source: parsed::<Source>(row, 8)?,
        step: row.get(9)?,
        created_at: Timestamp(row.get(10)?),
    })
}

pub(super) const POINT: &str = formatcp!(
    "SELECT {POINT_COLUMNS} FROM checkpoints c \
     WHERE c.tree_id = ?1 AND c.checkpoint_ns = '' AND c.checkpoint_id = ?2"
);

pub(super) fn point(db: &Connection, tree: TreeId, at: CheckpointId) -> Result<Option<Point>> {
    one(db, POINT, params![tree, at], read_point)
}

pub(super) const PATH: &str = formatcp!(
    "WITH RECURSIVE path AS (SELECT {POINT_COLUMNS}, 1 AS n FROM checkpoints c \
     WHERE c.tree_id = ?1 AND c.checkpoint_ns = '' AND c.checkpoint_id = ?2 AND ?3 > 0 \
     UNION ALL SELECT {POINT_COLUMNS}, p.n + 1 \
     FROM path p CROSS JOIN checkpoints c ON c.tree_id = ?1 AND c.checkpoint_ns = '' \
       AND c.checkpoint_id = p.parent_checkpoint_id WHERE p.n < ?3) \
     SELECT * FROM path ORDER BY n"
);

pub(super) fn path(
    db: &Connection,
    tree: TreeId,
    start: CheckpointId,
    limit: usize,
) -> Result<Vec<Point>> {
    all(db, PATH, params![tree, start, bounded(limit)], read_point)
}

pub(super) const ON_PATH: &str = "WITH RECURSIVE x (depth) AS (SELECT depth FROM checkpoints \
      WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?3), \
    up (id, parent, depth) AS ( \
      SELECT checkpoint_id, parent_checkpoint_id, depth FROM checkpoints \
       WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2 \
      UNION ALL \
      SELECT c.checkpoint_id, c.parent_checkpoint_id, c.depth \
        FROM up u CROSS JOIN checkpoints c ON c.tree_id = ?1 AND c.checkpoint_ns = '' \
         AND c.checkpoint_id = u.parent \
       WHERE u.depth > (SELECT depth FROM x)) \
    SELECT 1 FROM up WHERE id = ?3";

pub(super) fn on_path(
    db: &Connection,
    tree: TreeId,
    start: CheckpointId,
    ancestor: CheckpointId,
) -> Result<bool> {
    Ok(db
        .prepare_cached(ON_PATH)?
        .exists(params![tree, start, ancestor])?)
}

pub(super) const FORK_BASE: &str = "SELECT fork_checkpoint_id FROM threads WHERE tree_id = ?1 AND thread_id = ?2 \
    AND fork_checkpoint_depth >= ?3";

pub(super) fn visible(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    at: CheckpointId,
) -> Result<bool> {
    let Some(point) = point(db, tree, at)? else {
        return Ok(false);
    };
    if point.thread == thread {
        return Ok(true);
    }
    let base: Option<Option<CheckpointId>> = db
        .prepare_cached(FORK_BASE)?
        .query_row(params![tree, thread, point.depth], |row| id_if(row, 0))
        .optional()?;
    match base.flatten() {
        Some(base) => on_path(db, tree, base, at),
        None => Ok(false),
    }
}

pub(super) const IS_INTERRUPTED: &str = "SELECT 1 FROM checkpoint_writes w WHERE w.tree_id = ?1 AND w.checkpoint_ns = '' \
    AND w.checkpoint_id = ?2 AND w.branch_id = ?3 AND w.idx = -3 \
    AND NOT EXISTS (SELECT 1 FROM checkpoint_writes o WHERE o.tree_id = ?1 \
      AND o.checkpoint_ns = '' AND o.checkpoint_id = ?2 AND o.branch_id = ?3 \
      AND o.task_id = w.task_id AND o.idx = 0)";

/// A task with an interrupt (`idx` -3) and no result (`idx` 0) waits to be resumed.
pub(super) fn is_interrupted(
    db: &Connection,
    tree: TreeId,
    branch: BranchId,
    at: CheckpointId,
) -> Result<bool> {
    Ok(db
        .prepare_cached(IS_INTERRUPTED)?
        .exists(params![tree, at, branch])?)
}
