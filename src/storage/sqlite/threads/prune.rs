//! Pruning a thread: removes its checkpoints that no branch, tag, fork or run needs.

use rusqlite::{Connection, params};

use super::{
    super::columns::{id, id_if},
    blobs::collect,
    delete::remove,
    event_facts,
    rows::tree_of,
};
use crate::{
    checkpoint::Result,
    id::{CheckpointId, ThreadId, TreeId},
    tree::prune::{PruneCandidate, SubgraphState, plan},
};

/// See [`tree::Store::prune_thread`](crate::tree::Store::prune_thread).
pub(in super::super) fn prune_thread(db: &Connection, thread: ThreadId) -> Result<Option<usize>> {
    match tree_of(db, thread)? {
        Some(tree) => within(db, tree, thread).map(Some),
        None => Ok(None),
    }
}

/// Prunes a thread of a tree.
pub(in super::super) fn within(db: &Connection, tree: TreeId, thread: ThreadId) -> Result<usize> {
    let plan = plan(&rows(db, tree, thread)?, &inner(db, tree, thread)?);
    let moved = plan.reparented.iter().map(|(child, _)| child);
    let changing: Vec<_> = plan.removed.iter().chain(moved).copied().collect();
    event_facts::store(db, tree, &changing, false)?;
    let mut follow = db.prepare_cached(
        "UPDATE checkpoints SET parent_checkpoint_id = ?3 WHERE tree_id = ?1 \
         AND checkpoint_ns = '' AND checkpoint_id = ?2",
    )?;
    let mut mark = db.prepare_cached(MARK)?;
    for (child, parent) in &plan.reparented {
        follow.execute(params![tree, child, parent])?;
        mark.execute(params![tree, child])?;
    }
    let removed = plan.removed;
    if !removed.is_empty() {
        remove(db, tree, &removed, false)?;
        collect(db, tree)?;
        db.prepare_cached(DROP_LOGS)?
            .execute(params![tree, thread])?;
    }
    Ok(removed.len())
}

/// Says of a head that its parent is another one: a process that has the head in memory reads its row from here on.
/// What is not a head now is never one again without a new epoch of its branch.
const MARK: &str = "UPDATE branches SET reparented_checkpoint_id = ?2 \
     WHERE tree_id = ?1 AND head_checkpoint_id = ?2 AND branch_id = ( \
       SELECT branch_id FROM checkpoints \
        WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2)";

/// The streams of runs that have ended and of which no checkpoint is left.
const DROP_LOGS: &str = "DELETE FROM run_events WHERE run_id IN ( \
      SELECT r.run_id FROM runs r WHERE r.tree_id = ?1 AND r.thread_id = ?2 \
       AND r.status NOT IN ('pending', 'running') \
       AND r.run_id NOT IN ( \
         SELECT run_id FROM checkpoints INDEXED BY checkpoints_thread \
          WHERE tree_id = ?1 AND thread_id = ?2 AND checkpoint_ns = '' AND run_id IS NOT NULL))";

/// Pins, bases of open runs, checkpoints that another thread goes on from, and those with an open interrupt. A checkpoint
/// of a fork that follows one of another thread lies at most one deeper than what the fork inherits: pruning the fork leaves
/// the first one that does.
pub(super) const ROWS: &str = "WITH kept (id) AS ( \
      SELECT checkpoint_id FROM pins WHERE tree_id = ?1 \
      UNION \
      SELECT base_checkpoint_id FROM runs WHERE tree_id = ?1 \
       AND status IN ('pending', 'running') AND base_checkpoint_id IS NOT NULL \
      UNION \
      SELECT c.parent_checkpoint_id FROM threads t CROSS JOIN checkpoints c INDEXED BY checkpoints_depth \
         ON c.thread_id = t.thread_id AND c.checkpoint_ns = '' AND c.depth <= t.fork_checkpoint_depth + 1 \
       WHERE t.tree_id = ?1 AND t.thread_id <> ?2 AND t.fork_checkpoint_id IS NOT NULL \
         AND c.tree_id = ?1 AND c.parent_checkpoint_id IS NOT NULL \
      UNION \
      SELECT coalesce(c.root_checkpoint_id, c.checkpoint_id) FROM checkpoint_writes w \
        JOIN checkpoints c ON c.tree_id = ?1 AND c.checkpoint_ns = w.checkpoint_ns \
         AND c.checkpoint_id = w.checkpoint_id \
       WHERE w.tree_id = ?1 AND w.idx = -3 \
         AND NOT EXISTS (SELECT 1 FROM checkpoint_writes o WHERE o.tree_id = ?1 \
           AND o.checkpoint_ns = w.checkpoint_ns AND o.checkpoint_id = w.checkpoint_id \
           AND o.branch_id = w.branch_id AND o.task_id = w.task_id AND o.idx = 0)) \
    SELECT checkpoint_id, parent_checkpoint_id, branch_id, \
      checkpoint_id IN (SELECT id FROM kept), source = 'input', \
      coalesce(parent_checkpoint_id < \
        (SELECT t.fork_checkpoint_id FROM threads t WHERE t.thread_id = ?2), 0) \
      FROM checkpoints INDEXED BY checkpoints_thread \
     WHERE tree_id = ?1 AND thread_id = ?2 AND checkpoint_ns = ''";

fn rows(db: &Connection, tree: TreeId, thread: ThreadId) -> Result<Vec<PruneCandidate>> {
    let rows = db
        .prepare_cached(ROWS)?
        .query_map(params![tree, thread], |row| {
            Ok(PruneCandidate {
                id: id(row, 0)?,
                parent: id_if(row, 1)?,
                branch: id(row, 2)?,
                retained: row.get(3)?,
                input: row.get(4)?,
                inherits: row.get(5)?,
            })
        })?
        .collect::<Result<_, _>>()?;
    Ok(rows)
}

pub(super) const INNER: &str = "SELECT DISTINCT root_checkpoint_id, checkpoint_ns, branch_id \
     FROM checkpoints INDEXED BY checkpoints_thread \
    WHERE tree_id = ?1 AND thread_id = ?2 AND checkpoint_ns <> '' \
      AND root_checkpoint_id IS NOT NULL AND instr(checkpoint_ns, ':') = 0";

fn inner(db: &Connection, tree: TreeId, thread: ThreadId) -> Result<Vec<SubgraphState>> {
    let rows = db
        .prepare_cached(INNER)?
        .query_map(params![tree, thread], |row| {
            Ok(SubgraphState {
                root: id::<CheckpointId>(row, 0)?,
                ns: row.get(1)?,
                branch: id(row, 2)?,
            })
        })?
        .collect::<Result<_, _>>()?;
    Ok(rows)
}
