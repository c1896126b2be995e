//! Claiming runs: takes pending runs from the queue, in fair shares.

use std::collections::HashMap;

use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    super::{
        columns::column,
        connection::{Failure, Object, prepare},
        events::{append_rows, started},
        threads::rows::slot_of,
    },
    rows::run_of,
};
use crate::{
    checkpoint::Error,
    id::ThreadId,
    runs::{ClaimedRun, ClaimedRuns, QueueClaim, Searched, Slice},
};

/// Whether a run `r` of a thread `t` waits for others of its branch `b`. `OFFSET 0` keeps the planner
/// from reading all runs that are executed into a hash table for the first of these.
macro_rules! waits {
    () => {
        "(EXISTS (SELECT 1 FROM runs o WHERE o.branch_id = b.branch_id AND o.thread_id = r.thread_id AND o.tree_id = r.tree_id AND o.status = 'running' OFFSET 0)
       OR EXISTS (SELECT 1 FROM runs o WHERE o.thread_id = r.thread_id AND o.branch_id = b.branch_id AND o.tree_id = r.tree_id AND o.status = 'pending' AND o.seq < r.seq)
       OR b.branch_id = t.active_branch_id AND EXISTS (SELECT 1 FROM runs o WHERE o.thread_id = r.thread_id AND o.branch_id IS NULL AND o.tree_id = r.tree_id
            AND o.status = 'pending' AND o.seq < r.seq))"
    };
}

/// The living thread of a run `r`, looked up: LIMIT keeps the planner from beginning with all threads where those are few.
macro_rules! thread {
    () => {
        "SELECT t.active_branch_id FROM threads t WHERE t.thread_id = r.thread_id AND t.deleted_at IS NULL LIMIT 1"
    };
}

/// The threads of some runs that were behind others, by the index: one for each run.
const BEHIND: &str = "
SELECT r.thread_id FROM runs r WHERE r.status = 'pending' AND r.behind AND r.thread_id >= $1 ORDER BY r.thread_id LIMIT $2";

/// Runs of these threads that were behind others and are first now.
const ADVANCE: &str = concat!(
    "
UPDATE runs r SET behind = false FROM (
  SELECT r.run_id, r.tree_id FROM runs r CROSS JOIN LATERAL (",
    thread!(),
    ") t
    JOIN branches b ON b.branch_id = COALESCE(r.branch_id, t.active_branch_id) AND CASE WHEN b.tree_id = r.tree_id THEN true END
   WHERE r.thread_id = ANY ($1::uuid[]) AND r.status = 'pending' AND r.behind AND NOT ",
    waits!(),
    " FOR UPDATE OF r SKIP LOCKED) d
 WHERE r.run_id = d.run_id AND r.tree_id = d.tree_id"
);

/// Runs whose turn may have come, with the slots that they take ($5 bytes each, none more than $6): of every principal the
/// oldest ones, and first those of principals ($1) whose runs take fewer here ($2); of none more once those take $4.
const READY: &str = concat!(
    "
WITH RECURSIVE p AS (
  (SELECT COALESCE(r.principal, '') AS name FROM runs r WHERE r.status = 'pending' AND NOT r.behind ORDER BY COALESCE(r.principal, '') LIMIT 1)
  UNION ALL
  SELECT (SELECT COALESCE(r.principal, '') FROM runs r WHERE r.status = 'pending' AND NOT r.behind AND COALESCE(r.principal, '') > p.name
           ORDER BY COALESCE(r.principal, '') LIMIT 1)
    FROM p WHERE p.name IS NOT NULL)
SELECT x.run_id, x.slots FROM p CROSS JOIN LATERAL (
  SELECT o.run_id, o.run_at, o.seq, o.slots, sum(o.slots) OVER (ORDER BY o.run_at, o.seq) - o.slots
         + COALESCE((SELECT s.busy FROM unnest($1::text[], $2::int[]) s(name, busy) WHERE s.name = p.name), 0) AS turn
    FROM (
      SELECT r.run_id, r.run_at, r.seq, LEAST((COALESCE(",
    memory!("r.type", "r.kwargs"),
    ", 1) - 1) / $5::bigint + 1, $6::bigint)::int AS slots
        FROM runs r WHERE r.status = 'pending' AND NOT r.behind AND COALESCE(r.principal, '') = p.name AND r.run_at <= now()
       ORDER BY r.run_at, r.seq LIMIT $3) o) x
 WHERE p.name IS NOT NULL AND x.turn < $4 ORDER BY x.turn, x.run_at, x.seq LIMIT $3"
);

/// Takes runs whose turn has come ($2), in their order, whose slots are free, until they take $3 ($4 has how many each
/// takes). Whether one is `behind` is read once it is locked: a change of rights that this statement cannot see has
/// set it.
const CLAIM: &str = concat!(
    "
WITH l AS (
  SELECT r.tree_id, r.run_id, b.branch_id, array_position($2, r.run_id) AS nth FROM runs r CROSS JOIN LATERAL (",
    thread!(),
    ") t
    JOIN branches b ON b.branch_id = COALESCE(r.branch_id, t.active_branch_id) AND CASE WHEN b.tree_id = r.tree_id THEN true END
   WHERE r.run_id = ANY ($2::uuid[]) AND CASE WHEN r.status = 'pending' THEN r.run_at <= now() END AND NOT r.behind AND NOT ",
    waits!(),
    " ORDER BY array_position($2, r.run_id) LIMIT $3 FOR UPDATE OF b, r SKIP LOCKED),
c AS (
  SELECT o.tree_id, o.run_id, o.branch_id FROM (
    SELECT l.*, sum(($4::int[])[l.nth]) OVER (ORDER BY l.nth) - ($4::int[])[l.nth] AS taken FROM l) o WHERE o.taken < $3),
f AS (
  UPDATE branches b SET writer_epoch = b.writer_epoch + 1 FROM c WHERE b.tree_id = c.tree_id AND b.branch_id = c.branch_id
  RETURNING b.tree_id, b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth),
u AS (
  UPDATE runs r SET status = 'running', branch_id = f.branch_id, epoch = f.writer_epoch, worker_id = $1, attempt = r.attempt + 1,
         base_checkpoint_id = COALESCE(r.base_checkpoint_id, f.head_checkpoint_id), started_at = COALESCE(r.started_at, now()),
         updated_at = now()
    FROM c JOIN f USING (tree_id, branch_id) WHERE r.tree_id = c.tree_id AND r.run_id = c.run_id
  RETURNING f.writer_epoch, f.head_checkpoint_id, f.head_depth, r.seq, (",
    permitted!(),
    ") AS is_permitted,",
    run_columns!(),
    "),",
    started!(),
    append_rows!(),
    "
SELECT * FROM u"
);

/// Runs that wait for others after all: another branch became the active one.
const PUT_BACK: &str = concat!(
    "
UPDATE runs r SET behind = true FROM (
  SELECT r.run_id, r.tree_id FROM runs r LEFT JOIN threads t ON t.thread_id = r.thread_id AND t.deleted_at IS NULL
    LEFT JOIN branches b ON b.branch_id = COALESCE(r.branch_id, t.active_branch_id) AND CASE WHEN b.tree_id = r.tree_id THEN true END
   WHERE r.run_id = ANY ($1::uuid[]) AND CASE WHEN r.status = 'pending' THEN NOT r.behind END AND (b.branch_id IS NULL OR ",
    waits!(),
    ") FOR UPDATE OF r SKIP LOCKED) d
 WHERE r.run_id = d.run_id AND r.tree_id = d.tree_id"
);

/// As many runs are considered for each one that is claimed: others may be claiming them.
const SPARE: usize = 4;
/// How often runs that wait for others are passed over before the claim ends.
const ROUNDS: usize = 8;

/// See [`runs::Store::claim`](crate::runs::Store::claim).
pub(in super::super) async fn claim(
    db: &Object,
    claim: &QueueClaim,
) -> Result<ClaimedRuns, Failure> {
    advance(db, &claim.freed).await?;
    let searched = match &claim.search {
        Some(slice) => search(db, slice).await?,
        None => Searched::default(),
    };
    let (names, busy): (Vec<&str>, Vec<i32>) = claim
        .busy
        .iter()
        .map(|(principal, runs)| (&**principal, i32::try_from(*runs).unwrap_or(i32::MAX)))
        .unzip();
    let limit = i64::try_from(claim.limit).unwrap_or(i64::MAX);
    let considered = i64::try_from(claim.limit.saturating_mul(SPARE)).unwrap_or(i64::MAX);
    let most = i64::try_from(claim.most).unwrap_or(i64::MAX);
    let bytes = i64::try_from(claim.slots.bytes).unwrap_or(i64::MAX);
    let most_slots = i64::try_from(claim.slots.most).unwrap_or(i64::MAX);
    let ready = prepare(db, READY).await?;
    for _ in 0..ROUNDS {
        let rows = db
            .query(
                &ready,
                &[&names, &busy, &considered, &most, &bytes, &most_slots],
            )
            .await?;
        let mut slots: HashMap<Uuid, i32> = HashMap::with_capacity(rows.len());
        let mut runs: Vec<Uuid> = Vec::with_capacity(rows.len());
        let mut each: Vec<i32> = Vec::with_capacity(rows.len());
        for row in &rows {
            let (run, taken) = (column(row, "run_id")?, column(row, "slots")?);
            runs.push(run);
            each.push(taken);
            slots.insert(run, taken);
        }
        if runs.is_empty() {
            break;
        }
        let statement = prepare(db, CLAIM).await?;
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&claim.worker.0, &runs, &limit, &each];
        let mut rows = db.query(&statement, &params).await?;
        let found = claimed(&mut rows)?;
        for one in &found {
            slots.remove(&one.run.id.0);
        }
        let total: i64 = each.iter().copied().map(i64::from).sum();
        let left: i64 = slots.values().copied().map(i64::from).sum();
        let more = total - left >= limit;
        // Who did not take as much as it could has passed over what waits for others.
        if !more && !slots.is_empty() {
            runs.retain(|run| slots.contains_key(run));
            let put_back = prepare(db, PUT_BACK).await?;
            db.execute(&put_back, &[&runs]).await?;
        }
        if !found.is_empty() {
            return Ok(ClaimedRuns {
                runs: found,
                more,
                searched,
            });
        }
    }
    Ok(ClaimedRuns {
        searched,
        ..ClaimedRuns::default()
    })
}

/// Looks for runs of a slice that are first now.
async fn search(db: &Object, slice: &Slice) -> Result<Searched, Failure> {
    let behind = prepare(db, BEHIND).await?;
    let most = i64::try_from(slice.runs).unwrap_or(i64::MAX);
    let rows = db.query(&behind, &[&slice.from.0, &most]).await?;
    let threads = rows
        .iter()
        .map(|row| Ok(ThreadId(column(row, "thread_id")?)));
    let mut threads: Vec<ThreadId> = threads.collect::<Result<_, Error>>()?;
    let next = slice.next(&threads);
    threads.dedup();
    let advanced = advance(db, &threads).await? > 0;
    Ok(Searched { advanced, next })
}

/// Lets the runs of these threads that are first now wait for a slot alone; how many there are.
async fn advance(db: &Object, threads: &[ThreadId]) -> Result<u64, Failure> {
    if threads.is_empty() {
        return Ok(0);
    }
    let threads: Vec<Uuid> = threads.iter().map(|thread| thread.0).collect();
    let statement = prepare(db, ADVANCE).await?;
    Ok(db.execute(&statement, &[&threads]).await?)
}

/// Runs that were claimed, oldest first.
pub(super) fn claimed(rows: &mut [Row]) -> Result<Vec<ClaimedRun>, Error> {
    rows.sort_by_key(|row| row.try_get::<_, i64>("seq").unwrap_or(i64::MAX));
    rows.iter()
        .map(|row| {
            Ok(ClaimedRun {
                run: run_of(row)?,
                slot: slot_of(row)?,
                is_permitted: column(row, "is_permitted")?,
            })
        })
        .collect()
}

statements!(BEHIND, ADVANCE, READY, CLAIM, PUT_BACK);
