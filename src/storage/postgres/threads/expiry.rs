//! Threads with a time to live: when they expire, and which ones have.

use tokio_postgres::Row;

use crate::{
    checkpoint::Error,
    id::{ThreadId, TreeId},
    storage::postgres::{
        columns::{Time, column, execute, word},
        connection::{Object, Result, prepare},
    },
    tree::ttl::{Expiry, Ttl, TtlStrategy},
};

/// When a thread changed last, and whether work is to be done on it: a run waits or is executed, or a cron will make
/// one, which would go with the thread.
const EXPIRY: &str = "
SELECT t.ttl_minutes, t.ttl_strategy, GREATEST(t.updated_at, b.updated_at) AS changed_at, clock_timestamp() AS now,
       EXISTS (SELECT 1 FROM runs r WHERE r.tree_id = t.tree_id AND r.thread_id = t.thread_id AND r.status IN ('pending', 'running'))
         OR (t.ttl_strategy = 'delete' AND EXISTS (SELECT 1 FROM crons c WHERE c.thread_id = t.thread_id
               AND c.enabled AND c.next_run_at IS NOT NULL)) AS has_work
  FROM threads t JOIN branches b ON b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id
 WHERE t.thread_id = $1 AND t.deleted_at IS NULL AND t.ttl_minutes IS NOT NULL";

/// The threads to look at, which are left to whoever took them for a while.
const TAKE: &str = "
UPDATE threads SET expires_at = now() + interval '5 minutes' WHERE thread_id = ANY (ARRAY(
  SELECT t.thread_id FROM threads t WHERE t.expires_at <= now() AND t.expires_at IS NOT NULL AND t.deleted_at IS NULL
   ORDER BY t.expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING tree_id, thread_id";

const SET: &str = "
UPDATE threads SET ttl_minutes = $2, ttl_strategy = $3, expires_at = clock_timestamp() + $2 * interval '1 minute' WHERE thread_id = $1";

/// Against runs that are created at this moment.
const LOCK_BRANCHES: &str = "
SELECT 1 FROM branches b WHERE b.tree_id = $1 AND b.thread_id = $2 ORDER BY b.branch_id FOR UPDATE";

const NEXT_CHECK: &str = "UPDATE threads SET expires_at = $2 WHERE thread_id = $1";

fn expiry_of(row: &Row) -> Result<Expiry, Error> {
    let ttl = Ttl {
        minutes: column(row, "ttl_minutes")?,
        strategy: word(column(row, "ttl_strategy")?)?,
    };
    Ok(ttl.expiry(column::<Time>(row, "changed_at")?.0))
}

/// See [`tree::Store::expiry`](crate::tree::Store::expiry).
pub(in super::super) async fn expiry(db: &Object, thread: ThreadId) -> Result<Option<Expiry>> {
    let statement = prepare(db, EXPIRY).await?;
    let row = db.query_opt(&statement, &[&thread.0]).await?;
    Ok(row.as_ref().map(expiry_of).transpose()?)
}

/// See [`tree::Store::take_expired`](crate::tree::Store::take_expired).
pub(in super::super) async fn take_expired(
    db: &Object,
    limit: usize,
) -> Result<Vec<(TreeId, ThreadId)>> {
    let statement = prepare(db, TAKE).await?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = db.query(&statement, &[&limit]).await?;
    let ids = rows.iter().map(|row| {
        let tree = TreeId(column(row, "tree_id")?);
        Ok((tree, ThreadId(column(row, "thread_id")?)))
    });
    Ok(ids.collect::<Result<_, Error>>()?)
}

/// See [`tree::Tx::set_ttl`](crate::tree::Tx::set_ttl).
pub(in super::super) async fn set_ttl(db: &Object, thread: ThreadId, ttl: Ttl) -> Result<()> {
    let strategy = ttl.strategy.as_str();
    execute(db, SET, &[&thread.0, &ttl.minutes, &strategy]).await?;
    Ok(())
}

/// See [`tree::Tx::expired`](crate::tree::Tx::expired).
pub(in super::super) async fn expired(
    db: &Object,
    tree: TreeId,
    thread: ThreadId,
) -> Result<Option<TtlStrategy>> {
    let lock = prepare(db, LOCK_BRANCHES).await?;
    db.query(&lock, &[&tree.0, &thread.0]).await?;
    let statement = prepare(db, EXPIRY).await?;
    let Some(row) = db.query_opt(&statement, &[&thread.0]).await? else {
        return Ok(None);
    };
    let expiry = expiry_of(&row)?;
    let check = expiry.check(column::<Time>(&row, "now")?.0, column(&row, "has_work")?);
    let next = prepare(db, NEXT_CHECK).await?;
    db.execute(&next, &[&thread.0, &Time(check.next)]).await?;
    Ok(check.expired)
}

statements!(EXPIRY, TAKE, SET, LOCK_BRANCHES, NEXT_CHECK);
