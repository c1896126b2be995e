//! Branches that are created with the first durable write of a run.

use rusqlite::{Connection, OptionalExtension, params};

use super::{columns::id_if, events};
use crate::{
    checkpoint::{Error, NewBranch, Result},
    id::{BranchId, CheckpointId, ThreadId, TreeId},
    time::Timestamp,
    tree::opening::{self, Opening},
};

/// Creates a branch, unless it is there already: a retry after a lost reply. `Pruned`
/// when its base is gone.
pub(super) fn open(db: &Connection, new: &NewBranch, now: Timestamp) -> Result<()> {
    let source = &new.source;
    let tree = source.tree;
    let there = db
        .prepare_cached("SELECT 1 FROM branches WHERE tree_id = ?1 AND branch_id = ?2")?
        .exists(params![tree, new.id])?;
    if there {
        return Ok(());
    }
    let source_name: String = db
        .prepare_cached(
            "SELECT name FROM branches WHERE tree_id = ?1 AND branch_id = ?2 \
             AND writer_epoch = ?3",
        )?
        .query_row(params![tree, source.branch, source.epoch], |row| row.get(0))
        .optional()?
        .ok_or(Error::Fenced)?;
    if let Some(base) = new.base
        && !has_checkpoint(db, source.tree, base)?
    {
        return Err(Error::Pruned(base));
    }
    let opening = Opening::of(new, &source_name, &names(db, source.tree, source.thread)?);
    let from = new.copied_from();
    let copied = match new.base {
        Some(base) if new.copy_writes => Some(creation_id(db, source.tree, base, from, false)?),
        _ => None,
    };
    db.prepare_cached(
        "INSERT INTO branches (tree_id, branch_id, thread_id, name, head_checkpoint_id, \
         head_depth, writer_epoch, origin, source_branch_id, creation_id, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11)",
    )?
    .execute(params![
        tree,
        new.id,
        source.thread,
        opening.name,
        new.base,
        new.base_depth,
        source.epoch,
        new.origin,
        from,
        copied,
        now.0,
    ])?;
    if let Some(base) = new.base
        && new.copy_writes
    {
        copy_writes(db, source.tree, base, from, new.id)?;
    }
    if new.activate {
        db.prepare_cached(
            "UPDATE threads SET active_branch_id = ?1, updated_at = ?2 WHERE thread_id = ?3",
        )?
        .execute(params![new.id, now.0, source.thread])?;
    }
    if let Some(run) = new.run {
        db.prepare_cached(
            "UPDATE runs SET branch_id = ?1, opened_branch = 1, base_checkpoint_id = ?2, \
             updated_at = ?3 \
             WHERE run_id = ?4 AND tree_id = ?5",
        )?
        .execute(params![new.id, new.base, now.0, run, tree])?;
    }
    events::append(db, source.tree, source.thread, &opening.events, now)?;
    Ok(())
}

/// Whether the tree has a checkpoint of the root namespace.
pub(super) fn has_checkpoint(db: &Connection, tree: TreeId, id: CheckpointId) -> Result<bool> {
    let there = db
        .prepare_cached(
            "SELECT 1 FROM checkpoints WHERE tree_id = ?1 AND checkpoint_ns = '' \
             AND checkpoint_id = ?2",
        )?
        .exists(params![tree, id])?;
    Ok(there)
}

/// What the branches of a thread are called.
fn names(db: &Connection, tree: TreeId, thread: ThreadId) -> Result<Vec<String>> {
    let names = db
        .prepare_cached("SELECT name FROM branches WHERE tree_id = ?1 AND thread_id = ?2")?
        .query_map(params![tree, thread], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    Ok(names)
}

pub(super) const CREATION: &str = "SELECT min(CASE WHEN s.branch_id = ?3 AND EXISTS (SELECT 1 FROM checkpoint_writes w \
      WHERE w.tree_id = ?1 AND w.checkpoint_ns = s.checkpoint_ns \
        AND w.checkpoint_id = s.parent_checkpoint_id AND w.branch_id = ?3 \
        AND w.idx = -3) AND NOT (?4 AND EXISTS (SELECT 1 FROM branches b WHERE b.tree_id = ?1 AND b.branch_id = ?3 \
        AND b.head_checkpoint_id = ?2)) THEN s.checkpoint_id END), max(s.checkpoint_id) \
    FROM checkpoints s INDEXED BY checkpoints_sub \
    WHERE s.tree_id = ?1 AND s.root_checkpoint_id = ?2 AND s.checkpoint_ns <> ''";

/// See [`opening::creation_id`]. With `rests` no run works on the branch: where its head is the base, all that it has
/// stored there is shared.
pub(super) fn creation_id(
    db: &Connection,
    tree: TreeId,
    base: CheckpointId,
    from: BranchId,
    rests: bool,
) -> Result<CheckpointId> {
    let (resumed, newest): (Option<CheckpointId>, Option<CheckpointId>) = db
        .prepare_cached(CREATION)?
        .query_row(params![tree, base, from, rests], |row| {
            Ok((id_if(row, 0)?, id_if(row, 1)?))
        })?;
    Ok(opening::creation_id(base, resumed, newest))
}

pub(super) const COPY_WRITES: &str = "INSERT INTO checkpoint_writes (tree_id, checkpoint_ns, checkpoint_id, branch_id, \
    task_id, idx, task_path, channel, type, writes) \
    SELECT ?1, checkpoint_ns, checkpoint_id, ?4, task_id, idx, task_path, channel, type, \
           writes \
      FROM (SELECT w.*, \
         EXISTS (SELECT 1 FROM checkpoint_writes o WHERE o.tree_id = ?1 \
           AND o.checkpoint_ns = w.checkpoint_ns AND o.checkpoint_id = w.checkpoint_id \
           AND o.branch_id = ?2 AND o.task_id = w.task_id AND o.idx = 0) AS finished, \
         EXISTS (SELECT 1 FROM checkpoint_writes o WHERE o.tree_id = ?1 \
           AND o.checkpoint_ns = w.checkpoint_ns AND o.checkpoint_id = w.checkpoint_id \
           AND o.branch_id = ?2 AND o.task_id = w.task_id AND o.idx = -3) AS interrupted, \
         EXISTS (SELECT 1 FROM branches b WHERE b.tree_id = ?1 AND b.branch_id = ?2 \
           AND b.head_checkpoint_id = ?3) AS present \
         FROM (SELECT '' AS ns, ?3 AS id UNION ALL \
               SELECT checkpoint_ns, checkpoint_id FROM checkpoints \
                WHERE tree_id = ?1 AND root_checkpoint_id = ?3 AND checkpoint_ns <> '' \
                  AND (branch_id = ?2 OR checkpoint_id < (SELECT b.creation_id FROM branches b \
                    WHERE b.tree_id = ?1 AND b.branch_id = ?2))) s \
         CROSS JOIN checkpoint_writes w ON w.tree_id = ?1 AND w.checkpoint_ns = s.ns \
          AND w.checkpoint_id = s.id AND w.branch_id = ?2) \
     WHERE CASE channel \
       WHEN '__interrupt__' THEN 1 \
       WHEN '__step__' THEN 1 \
       WHEN '__resume__' THEN task_id <> zeroblob(16) AND (present OR NOT (interrupted AND finished)) \
       WHEN '__earlier__' THEN task_id <> zeroblob(16) AND (present OR NOT (interrupted AND finished)) \
       ELSE finished AND (present OR NOT interrupted) END \
     UNION ALL \
     SELECT tree_id, checkpoint_ns, checkpoint_id, ?4, task_id, idx, task_path, channel, type, writes \
       FROM all_checkpoint_writes WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?3 \
        AND branch_id = ?2 AND idx = 0 AND task_id = (SELECT c.result_task FROM checkpoints c \
          WHERE c.tree_id = ?1 AND c.checkpoint_ns = '' AND c.checkpoint_id = ?3)";

/// Copies the pending writes of a branch at a checkpoint and in subgraphs that stopped below it:
/// interrupts, memoised steps, resume values and results. Of subgraphs of other branches, those at states that are older
/// than the branch's own copy: the branch goes on from these alone.
///
/// When the branch went on from there, an interrupted task loses its result and its resume values,
/// so that the interrupt is open on the copy. A result that stands in the row of the base is that of a task which was not
/// interrupted. Resume values for the whole run are not copied.
pub(super) fn copy_writes(
    db: &Connection,
    tree: TreeId,
    base: CheckpointId,
    from: BranchId,
    to: BranchId,
) -> Result<()> {
    db.prepare_cached(COPY_WRITES)?
        .execute(params![tree, from, base, to])?;
    Ok(())
}
