//! Claiming runs: takes pending runs from the queue.

use rusqlite::{Connection, params};

use super::{
    super::{events, threads::slots},
    rows::{read_run, slot_of},
};
use crate::{
    checkpoint::{Error, Slot},
    id::WorkerId,
    runs::{Claimed, Run, Status, transitions::run_events},
    time::Timestamp,
};

/// Pending runs whose time has come and whose slot is free, oldest first.
pub(in super::super) const CLAIM: &str = select!(
    ", b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth FROM runs r \
     JOIN threads t ON t.thread_id = r.thread_id AND t.deleted_at IS NULL \
     JOIN branches b ON b.tree_id = r.tree_id \
      AND b.branch_id = coalesce(r.branch_id, t.active_branch_id) \
     WHERE r.status = 'pending' AND r.run_at <= ?1 AND NOT EXISTS ( \
       SELECT 1 FROM runs o WHERE o.tree_id = r.tree_id AND o.thread_id = r.thread_id \
          AND o.status IN ('pending', 'running') \
          AND coalesce(o.branch_id, t.active_branch_id) = b.branch_id \
          AND (o.status = 'running' OR o.seq < r.seq)) \
     ORDER BY r.run_at, r.seq LIMIT ?2"
);

/// See [`runs::Store::claim`](crate::runs::Store::claim).
pub(super) fn claim(
    db: &Connection,
    worker: WorkerId,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Claimed>, Error> {
    let waiting: Vec<(Run, Slot)> = db
        .prepare_cached(CLAIM)?
        .query_map(
            params![now.0, i64::try_from(limit).unwrap_or(i64::MAX)],
            |row| {
                let run = read_run(row)?;
                let slot = slot_of(&run, row)?;
                Ok((run, slot))
            },
        )?
        .collect::<Result<_, _>>()?;
    let mut claimed = Vec::with_capacity(waiting.len());
    for (mut run, mut slot) in waiting {
        slot.epoch = slots::raise_epoch(db, slot.tree, slot.branch)?;
        db.prepare_cached(
            "UPDATE runs SET status = 'running', branch_id = ?2, epoch = ?3, worker_id = ?4, \
             attempt = attempt + 1, base_checkpoint_id = coalesce(base_checkpoint_id, ?5), \
             updated_at = ?6 WHERE run_id = ?1",
        )?
        .execute(params![
            run.id.0.as_bytes(),
            slot.branch.0.as_bytes(),
            slot.epoch,
            worker.0.as_bytes(),
            slot.head.as_ref().map(|id| id.0.as_bytes()),
            now.0,
        ])?;
        run.status = Status::Running;
        run.branch = Some(slot.branch);
        run.base = run.base.or(slot.head);
        run.attempt += 1;
        run.updated_at = now;
        if !run.temporary {
            let started = run_events::started(run.id, slot.branch);
            events::append(db, run.tree, run.thread, &[started], now)?;
        }
        claimed.push(Claimed { run, slot });
    }
    Ok(claimed)
}
