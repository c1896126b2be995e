//! Claiming runs: takes pending runs from the queue, in fair shares.

use std::{collections::HashMap, sync::Arc};

use rusqlite::{Connection, OptionalExtension, params};

use super::{
    super::{columns::id, events, threads::slots, tree::level},
    rows::{read_run, slot_of},
};
use crate::{
    checkpoint::{Result, Slot},
    id::{RunId, ThreadId, WorkerId},
    runs::{
        ClaimedRun, ClaimedRuns, QueueClaim, Run, Searched, Slice, Status, transitions::run_events,
    },
    time::Timestamp,
    tree::members::Level,
};

/// Whether a run `r` of a thread `t` waits for others of its branch `b`.
macro_rules! waits {
    () => {
        "(EXISTS (SELECT 1 FROM runs o WHERE o.tree_id = r.tree_id AND o.thread_id = r.thread_id \
             AND o.branch_id = b.branch_id AND o.status = 'running') \
          OR EXISTS (SELECT 1 FROM runs o INDEXED BY runs_waiting WHERE o.thread_id = r.thread_id \
             AND o.branch_id = b.branch_id AND o.status = 'pending' AND o.seq < r.seq) \
          OR b.branch_id = t.active_branch_id AND EXISTS (SELECT 1 FROM runs o \
             INDEXED BY runs_waiting WHERE o.thread_id = r.thread_id AND o.branch_id IS NULL \
             AND o.status = 'pending' AND o.seq < r.seq))"
    };
}

/// The threads of some runs that were behind others, by the index: one for each run.
pub(in super::super) const BEHIND: &str = "SELECT thread_id FROM runs INDEXED BY runs_behind \
     WHERE status = 'pending' AND behind = 1 AND thread_id >= ?1 ORDER BY thread_id LIMIT ?2";

/// Runs of a thread that were behind others and are first now.
pub(super) const ADVANCE: &str = concat!(
    "UPDATE runs SET behind = 0 WHERE run_id IN ( \
     SELECT r.run_id FROM runs r INDEXED BY runs_behind \
       JOIN threads t ON t.thread_id = r.thread_id AND t.deleted_at IS NULL \
       JOIN branches b ON b.tree_id = r.tree_id \
        AND b.branch_id = coalesce(r.branch_id, t.active_branch_id) \
      WHERE r.thread_id = ?1 AND r.status = 'pending' AND r.behind = 1 AND NOT ",
    waits!(),
    ")"
);

/// The next principal by the index that has runs whose turn has come. All texts come after the number: with an OR for
/// the first principal, the runs of those before would be walked over each time.
pub(in super::super) const PRINCIPAL: &str = "SELECT coalesce(principal, '') FROM runs \
     INDEXED BY runs_ready WHERE status = 'pending' AND behind = 0 \
      AND coalesce(principal, '') > coalesce(?1, 0) ORDER BY coalesce(principal, '') LIMIT 1";

/// The oldest runs of a principal whose turn may have come.
pub(in super::super) const READY: &str = "SELECT run_id, run_at, seq FROM runs INDEXED BY runs_ready \
     WHERE status = 'pending' AND behind = 0 AND coalesce(principal, '') = ?1 AND run_at <= ?2 \
     ORDER BY run_at, seq LIMIT ?3";

/// A run whose time has come and whose slot is free.
pub(super) const CLAIM: &str = concat!(
    select!(
        ", b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth FROM runs r \
     JOIN threads t ON t.thread_id = r.thread_id AND t.deleted_at IS NULL \
     JOIN branches b ON b.tree_id = r.tree_id \
      AND b.branch_id = coalesce(r.branch_id, t.active_branch_id) \
     WHERE r.run_id = ?1 AND r.status = 'pending' AND NOT "
    ),
    waits!()
);

const PUT_BACK: &str = "UPDATE runs SET behind = 1 WHERE run_id = ?1 AND status = 'pending'";

/// See [`runs::Store::claim`](crate::runs::Store::claim).
pub(in super::super) fn claim(db: &Connection, claim: &QueueClaim) -> Result<ClaimedRuns> {
    advance(db, &claim.freed)?;
    let searched = match &claim.search {
        Some(slice) => search(db, slice)?,
        None => Searched::default(),
    };
    let now = Timestamp::now();
    let mut taken = Taken::default();
    'passes: loop {
        let left = claim.limit.saturating_sub(taken.slots);
        let ready = ready(db, claim, left, &taken, now)?;
        if ready.is_empty() {
            break;
        }
        for run in ready {
            let found = db
                .prepare_cached(CLAIM)?
                .query_row([run], |row| {
                    let run = read_run(row)?;
                    let slot = slot_of(&run, row)?;
                    Ok((run, slot))
                })
                .optional()?;
            match found {
                Some((run, slot)) => {
                    let slots = claim.slots.of(run.kwargs.memory());
                    taken.add(take(db, run, slot, claim.worker, now)?, slots);
                    if taken.slots >= claim.limit {
                        break 'passes;
                    }
                    // Others have fewer slots than its principal now, or the principal has all it may have.
                    if slots > 1 {
                        break;
                    }
                }
                // It waits for others after all: another branch became the active one.
                None => {
                    db.prepare_cached(PUT_BACK)?.execute([run])?;
                }
            }
        }
    }
    Ok(ClaimedRuns {
        more: taken.slots >= claim.limit,
        runs: taken.runs,
        searched,
    })
}

/// Runs that were claimed, and how many slots they take.
#[derive(Default)]
struct Taken {
    runs: Vec<ClaimedRun>,
    slots: usize,
    /// By principal.
    of_each: HashMap<Arc<str>, usize>,
}

impl Taken {
    fn add(&mut self, claimed: ClaimedRun, slots: usize) {
        self.slots += slots;
        let principal = claimed.run.principal.clone().unwrap_or_default();
        *self.of_each.entry(principal).or_default() += slots;
        self.runs.push(claimed);
    }
}

/// Looks for runs of a slice that are first now.
fn search(db: &Connection, slice: &Slice) -> Result<Searched> {
    let most = i64::try_from(slice.runs).unwrap_or(i64::MAX);
    let mut statement = db.prepare_cached(BEHIND)?;
    let threads = statement.query_map(params![slice.from, most], |row| id(row, 0))?;
    let mut threads: Vec<ThreadId> = threads.collect::<rusqlite::Result<_>>()?;
    let next = slice.next(&threads);
    threads.dedup();
    let advanced = advance(db, &threads)? > 0;
    Ok(Searched { advanced, next })
}

/// Lets the runs of these threads that are first now wait for a slot alone; how many there are.
fn advance(db: &Connection, threads: &[ThreadId]) -> Result<usize> {
    let mut runs = 0;
    let mut statement = db.prepare_cached(ADVANCE)?;
    for thread in threads {
        runs += statement.execute([thread])?;
    }
    Ok(runs)
}

/// At most so many runs whose turn may have come: of every principal the oldest ones, and first those of
/// principals whose runs take fewer slots, but of none more than it may have.
fn ready(
    db: &Connection,
    claim: &QueueClaim,
    limit: usize,
    taken: &Taken,
    now: Timestamp,
) -> Result<Vec<RunId>> {
    let mut found: Vec<(usize, i64, i64, RunId)> = vec![];
    let mut last: Option<String> = None;
    while let Some(principal) = db
        .prepare_cached(PRINCIPAL)?
        .query_row([&last], |row| row.get::<_, String>(0))
        .optional()?
    {
        let mut busy = claim.busy.iter();
        let busy = busy.find(|(name, _)| **name == *principal);
        let taken = taken.of_each.get(&*principal).copied();
        let mut turn = busy.map_or(0, |(_, slots)| *slots) + taken.unwrap_or(0);
        let most = limit.min(claim.most.saturating_sub(turn));
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut statement = db.prepare_cached(READY)?;
        let mut rows = statement.query(params![principal, now.0, most])?;
        while let Some(row) = rows.next()? {
            found.push((turn, row.get(1)?, row.get(2)?, id(row, 0)?));
            turn += 1;
        }
        last = Some(principal);
    }
    found.sort_unstable_by_key(|(turn, at, seq, _)| (*turn, *at, *seq));
    let runs = found.into_iter().map(|(.., run)| run);
    Ok(runs.take(limit).collect())
}

fn take(
    db: &Connection,
    mut run: Run,
    mut slot: Slot,
    worker: WorkerId,
    now: Timestamp,
) -> Result<ClaimedRun> {
    slot.epoch = slots::raise_epoch(db, slot.tree, slot.branch)?;
    db.prepare_cached(
        "UPDATE runs SET status = 'running', branch_id = ?2, epoch = ?3, worker_id = ?4, \
         attempt = attempt + 1, base_checkpoint_id = coalesce(base_checkpoint_id, ?5), \
         started_at = coalesce(started_at, ?6), updated_at = ?6 WHERE run_id = ?1",
    )?
    .execute(params![
        run.id,
        slot.branch,
        slot.epoch,
        worker,
        slot.head,
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
    Ok(ClaimedRun {
        is_permitted: is_permitted(db, &run)?,
        run,
        slot,
    })
}

/// Whether the principal of a run may still write to its thread.
pub(super) fn is_permitted(db: &Connection, run: &Run) -> Result<bool> {
    match &run.principal {
        Some(principal) => Ok(level(db, run.tree, principal)? >= Some(Level::Writer)),
        None => Ok(true),
    }
}
