//! Claiming runs: takes pending runs from the queue, in fair shares.

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
    runs::{ClaimedRun, QueueClaim},
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

/// The threads with runs that were behind others, one after the other by the index.
const BEHIND: &str = "
WITH RECURSIVE w AS (
  (SELECT r.thread_id FROM runs r WHERE r.status = 'pending' AND r.behind ORDER BY r.thread_id LIMIT 1)
  UNION ALL
  SELECT (SELECT r.thread_id FROM runs r WHERE r.status = 'pending' AND r.behind AND r.thread_id > w.thread_id ORDER BY r.thread_id LIMIT 1)
    FROM w WHERE w.thread_id IS NOT NULL)
SELECT thread_id FROM w WHERE thread_id IS NOT NULL";

/// Runs of these threads that were behind others and are first now.
const ADVANCE: &str = concat!(
    "
UPDATE runs r SET behind = false FROM (
  SELECT r.run_id, r.tree_id FROM runs r JOIN threads t ON t.thread_id = r.thread_id AND t.deleted_at IS NULL
    JOIN branches b ON b.branch_id = COALESCE(r.branch_id, t.active_branch_id) AND CASE WHEN b.tree_id = r.tree_id THEN true END
   WHERE r.thread_id = ANY ($1::uuid[]) AND r.status = 'pending' AND r.behind AND NOT ",
    waits!(),
    " FOR UPDATE OF r SKIP LOCKED) d
 WHERE r.run_id = d.run_id AND r.tree_id = d.tree_id"
);

/// Runs whose turn may have come: of every principal the oldest ones, and first those of principals
/// ($1) of which fewer are executed here ($2), of none more than $4 with those.
const READY: &str = "
WITH RECURSIVE p AS (
  (SELECT COALESCE(r.principal, '') AS name FROM runs r WHERE r.status = 'pending' AND NOT r.behind ORDER BY COALESCE(r.principal, '') LIMIT 1)
  UNION ALL
  SELECT (SELECT COALESCE(r.principal, '') FROM runs r WHERE r.status = 'pending' AND NOT r.behind AND COALESCE(r.principal, '') > p.name
           ORDER BY COALESCE(r.principal, '') LIMIT 1)
    FROM p WHERE p.name IS NOT NULL)
SELECT x.run_id FROM p CROSS JOIN LATERAL (
  SELECT r.run_id, r.run_at, r.seq, row_number() OVER (ORDER BY r.run_at, r.seq)
         + COALESCE((SELECT s.busy FROM unnest($1::text[], $2::int[]) s(name, busy) WHERE s.name = p.name), 0) AS turn
    FROM runs r WHERE r.status = 'pending' AND NOT r.behind AND COALESCE(r.principal, '') = p.name AND r.run_at <= now()
   ORDER BY r.run_at, r.seq LIMIT $3) x
 WHERE p.name IS NOT NULL AND (x.turn <= $4 OR p.name = '') ORDER BY x.turn, x.run_at, x.seq LIMIT $3";

/// Takes runs whose turn has come, in their order, whose slots are free. Whether one is `behind` is read
/// once it is locked: a change of rights that this statement cannot see has set it.
const CLAIM: &str = concat!(
    "
WITH c AS (
  SELECT r.tree_id, r.run_id, b.branch_id FROM runs r JOIN threads t ON t.thread_id = r.thread_id AND t.deleted_at IS NULL
    JOIN branches b ON b.branch_id = COALESCE(r.branch_id, t.active_branch_id) AND CASE WHEN b.tree_id = r.tree_id THEN true END
   WHERE r.run_id = ANY ($2::uuid[]) AND CASE WHEN r.status = 'pending' THEN r.run_at <= now() END AND NOT r.behind AND NOT ",
    waits!(),
    " ORDER BY array_position($2, r.run_id) LIMIT $3 FOR UPDATE OF b, r SKIP LOCKED),
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
) -> Result<Vec<ClaimedRun>, Failure> {
    let threads: Vec<Uuid> = match &claim.freed {
        Some(threads) => threads.iter().map(|thread| thread.0).collect(),
        None => {
            let behind = prepare(db, BEHIND).await?;
            let rows = db.query(&behind, &[]).await?;
            let threads = rows.iter().map(|row| column(row, "thread_id"));
            threads.collect::<Result<_, Error>>()?
        }
    };
    if !threads.is_empty() {
        let advance = prepare(db, ADVANCE).await?;
        db.execute(&advance, &[&threads]).await?;
    }
    let (names, busy): (Vec<&str>, Vec<i32>) = claim
        .busy
        .iter()
        .map(|(principal, runs)| (&**principal, i32::try_from(*runs).unwrap_or(i32::MAX)))
        .unzip();
    let limit = i64::try_from(claim.limit).unwrap_or(i64::MAX);
    let considered = i64::try_from(claim.limit.saturating_mul(SPARE)).unwrap_or(i64::MAX);
    let most = i64::try_from(claim.most).unwrap_or(i64::MAX);
    let ready = prepare(db, READY).await?;
    for _ in 0..ROUNDS {
        let rows = db
            .query(&ready, &[&names, &busy, &considered, &most])
            .await?;
        let runs = rows.iter().map(|row| column(row, "run_id"));
        let mut runs = runs.collect::<Result<Vec<Uuid>, Error>>()?;
        if runs.is_empty() {
            break;
        }
        let statement = prepare(db, CLAIM).await?;
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&claim.worker.0, &runs, &limit];
        let mut rows = db.query(&statement, &params).await?;
        let found = claimed(&mut rows)?;
        if found.len() < claim.limit.min(runs.len()) {
            runs.retain(|run| found.iter().all(|claimed| claimed.run.id.0 != *run));
            let put_back = prepare(db, PUT_BACK).await?;
            db.execute(&put_back, &[&runs]).await?;
        }
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(vec![])
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
