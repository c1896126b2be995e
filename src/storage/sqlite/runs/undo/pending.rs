//! What was pending where a run began is restored when the run is rolled back: the interrupts that were open are open
//! again, and nothing that the run has answered or done there counts.

use std::sync::Arc;

use rusqlite::{Connection, params};

use super::super::{
    super::{
        checkpoints::insert_writes,
        columns::{id, id_if},
        threads::blobs::forget_results,
    },
    open_runs::OpenRunRow,
};
use crate::{
    checkpoint::{Result, WriteRow, earlier, frame, paths},
    id::CheckpointId,
};

/// Where nothing of a task says what the run has found: what it decided there.
const DECIDED: &str = "DELETE FROM checkpoint_writes WHERE tree_id = ?1 AND branch_id = ?2 \
     AND checkpoint_ns = '' AND checkpoint_id = ?3 \
     AND task_id NOT IN (SELECT task_id FROM checkpoint_writes WHERE tree_id = ?1 AND branch_id = ?2 \
       AND checkpoint_ns = '' AND checkpoint_id = ?3 AND idx = ?4) \
     AND (task_id = zeroblob(16) OR (idx IN (0, -4) AND task_id IN ( \
       SELECT task_id FROM checkpoint_writes WHERE tree_id = ?1 AND branch_id = ?2 \
       AND checkpoint_ns = '' AND checkpoint_id = ?3 AND idx = 0) AND task_id IN ( \
       SELECT task_id FROM checkpoint_writes WHERE tree_id = ?1 AND branch_id = ?2 \
       AND checkpoint_ns = '' AND checkpoint_id = ?3 AND idx = -3)))";

/// Whether others than a branch go on from a checkpoint, or from one behind it: what descends from it has a greater id. A
/// tag there shows what was there when it was set.
const IS_SHARED: &str = "WITH RECURSIVE others (id) AS ( \
      SELECT b.head_checkpoint_id FROM threads t \
        CROSS JOIN branches b INDEXED BY sqlite_autoindex_branches_2 \
         ON b.tree_id = ?1 AND b.thread_id = t.thread_id AND b.branch_id <> ?2 \
       WHERE t.tree_id = ?1 AND t.deleted_at IS NULL AND b.head_checkpoint_id >= ?3 \
      UNION \
      SELECT t.fork_checkpoint_id FROM threads t \
       WHERE t.tree_id = ?1 AND t.deleted_at IS NULL AND t.fork_checkpoint_id >= ?3 \
      UNION \
      SELECT g.checkpoint_id FROM threads t \
        CROSS JOIN tags g ON g.tree_id = ?1 AND g.thread_id = t.thread_id \
       WHERE t.tree_id = ?1 AND t.deleted_at IS NULL AND g.checkpoint_id > ?3), \
    path (checkpoint_id, parent_checkpoint_id) AS ( \
      SELECT c.checkpoint_id, c.parent_checkpoint_id FROM others o \
        CROSS JOIN checkpoints c ON c.tree_id = ?1 AND c.checkpoint_ns = '' AND c.checkpoint_id = o.id \
      UNION \
      SELECT c.checkpoint_id, c.parent_checkpoint_id FROM path p \
        CROSS JOIN checkpoints c ON c.tree_id = ?1 AND c.checkpoint_ns = '' \
         AND c.checkpoint_id = p.parent_checkpoint_id \
       WHERE p.parent_checkpoint_id >= ?3) \
    SELECT 1 FROM path WHERE checkpoint_id = ?3";

/// Checkpoints of graphs inside that a run has stored where it began.
const INSIDE: &str = "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id FROM checkpoints INDEXED BY checkpoints_sub \
     WHERE tree_id = ?1 AND root_checkpoint_id = ?2 AND checkpoint_ns <> '' AND run_id = ?3";

const DROP_WRITES: &str = "DELETE FROM checkpoint_writes \
     WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3";

const DROP: &str =
    "DELETE FROM checkpoints WHERE tree_id = ?1 AND checkpoint_ns = ?2 AND checkpoint_id = ?3";

/// What runs have found of tasks there, in the graph and in those inside.
const FOUND: &str = "SELECT checkpoint_ns, checkpoint_id, task_id, task_path, type, writes FROM checkpoint_writes \
      WHERE tree_id = ?1 AND checkpoint_ns = ?5 AND checkpoint_id = ?2 AND branch_id = ?3 AND idx = ?4 \
    UNION ALL \
    SELECT w.checkpoint_ns, w.checkpoint_id, w.task_id, w.task_path, w.type, w.writes \
      FROM checkpoints c INDEXED BY checkpoints_sub CROSS JOIN checkpoint_writes w \
        ON w.tree_id = ?1 AND w.checkpoint_ns = c.checkpoint_ns AND w.checkpoint_id = c.checkpoint_id \
       AND w.branch_id = ?3 AND w.idx = ?4 \
     WHERE c.tree_id = ?1 AND c.root_checkpoint_id = ?2 AND c.checkpoint_ns <> ''";

/// The same at one checkpoint inside.
const FOUND_AT: &str = "SELECT checkpoint_ns, checkpoint_id, task_id, task_path, type, writes FROM checkpoint_writes \
     WHERE tree_id = ?1 AND checkpoint_ns = ?5 AND checkpoint_id = ?2 AND branch_id = ?3 AND idx = ?4";

const DROP_TASK: &str = "DELETE FROM checkpoint_writes WHERE tree_id = ?1 AND checkpoint_ns = ?2 \
     AND checkpoint_id = ?3 AND branch_id = ?4 AND task_id = ?5";

/// Restores what was pending at the base of a run.
pub(super) fn restore(db: &Connection, run: &OpenRunRow, base: CheckpointId) -> Result<()> {
    let (tree, branch) = (run.tree, run.branch);
    db.prepare_cached(DECIDED)?
        .execute(params![tree, branch, base, earlier::IDX])?;
    // The record of the run's command.
    db.prepare_cached(DROP_TASK)?
        .execute(params![tree, "", base, branch, run.id])?;
    let inside: Vec<(String, CheckpointId, Option<CheckpointId>)> = db
        .prepare_cached(INSIDE)?
        .query_map(params![tree, base, run.id], |row| {
            Ok((row.get(0)?, id(row, 1)?, id_if(row, 2)?))
        })?
        .collect::<Result<_, _>>()?;
    // Others may need what the graphs inside have stored there.
    let goes = !inside.is_empty()
        && !db
            .prepare_cached(IS_SHARED)?
            .exists(params![tree, branch, base])?;
    let inside = if goes { inside } else { vec![] };
    for (ns, checkpoint, _) in &inside {
        for sql in [DROP_WRITES, DROP] {
            db.prepare_cached(sql)?
                .execute(params![tree, ns, checkpoint])?;
        }
    }
    let mut rows = vec![];
    for (ns, _, parent) in &inside {
        if let Some(parent) = parent {
            forget_results(db, tree, branch, (ns, *parent))?;
            // A graph that keeps its state may have stopped at a checkpoint before the base.
            rows.append(&mut found(db, run, FOUND_AT, (ns, *parent))?);
        }
    }
    rows.append(&mut found(db, run, FOUND, ("", base))?);
    for row in rows {
        if let Some(rows) = frame::rows_found_by(run.id, &row) {
            db.prepare_cached(DROP_TASK)?.execute(params![
                tree,
                row.ns,
                row.checkpoint,
                branch,
                row.task
            ])?;
            insert_writes(db, tree, branch, &rows)?;
        }
    }
    Ok(())
}

fn found(
    db: &Connection,
    run: &OpenRunRow,
    sql: &str,
    (ns, at): (&str, CheckpointId),
) -> Result<Vec<WriteRow>> {
    let mut statement = db.prepare_cached(sql)?;
    let of = params![run.tree, at, run.branch, earlier::IDX, ns];
    let rows = statement.query_map(of, |row| {
        Ok(WriteRow {
            ns: row.get(0)?,
            checkpoint: id(row, 1)?,
            branch: run.branch,
            task: id(row, 2)?,
            idx: earlier::IDX,
            path: Arc::from(paths::whole(row.get_ref(3)?.as_str()?)),
            channel: Some(earlier::CHANNEL.into()),
            tag: row.get(4)?,
            bytes: row.get(5)?,
            upsert: true,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
