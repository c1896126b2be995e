//! Threads with a time to live: when they expire, and which ones have.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{
    checkpoint::Result,
    id::{ThreadId, TreeId},
    storage::sqlite::columns::{id, parsed},
    time::Timestamp,
    tree::ttl::{Expiry, Ttl, TtlStrategy},
};

/// How long a thread that was taken is left to whoever took it, in microseconds.
const TAKEN: i64 = 5 * 60 * 1_000_000;

/// When a thread changed last, and whether work is to be done on it: a run waits or is executed, or a cron will make
/// one, which would go with the thread.
pub(in super::super) const EXPIRY: &str = "SELECT t.ttl_minutes, t.ttl_strategy, max(t.updated_at, b.updated_at), \
     EXISTS (SELECT 1 FROM runs r WHERE r.tree_id = t.tree_id \
       AND r.thread_id = t.thread_id AND r.status IN ('pending', 'running')) \
     OR (t.ttl_strategy = 'delete' AND EXISTS (SELECT 1 FROM crons c WHERE c.thread_id = t.thread_id \
       AND c.enabled AND c.next_run_at IS NOT NULL)) \
    FROM threads t JOIN branches b \
      ON b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id \
    WHERE t.thread_id = ?1 AND t.deleted_at IS NULL AND t.ttl_minutes IS NOT NULL";

pub(in super::super) const EXPIRED: &str = "SELECT tree_id, thread_id FROM threads INDEXED BY threads_expiry \
    WHERE expires_at <= ?1 AND expires_at IS NOT NULL AND deleted_at IS NULL ORDER BY expires_at LIMIT ?2";

pub(in super::super) const SET: &str =
    "UPDATE threads SET ttl_minutes = ?2, ttl_strategy = ?3, expires_at = ?4 WHERE thread_id = ?1";

const NEXT_CHECK: &str = "UPDATE threads SET expires_at = ?2 WHERE thread_id = ?1";

/// When the thread expires, and whether work is to be done on it.
fn read(row: &Row<'_>) -> rusqlite::Result<(Expiry, bool)> {
    let ttl = Ttl {
        minutes: row.get(0)?,
        strategy: parsed(row, 1)?,
    };
    let expiry = ttl.expiry(Timestamp(row.get(2)?));
    Ok((expiry, row.get(3)?))
}

/// See [`tree::Store::expiry`](crate::tree::Store::expiry).
pub(in super::super) fn expiry(db: &Connection, thread: ThreadId) -> Result<Option<Expiry>> {
    let found = db
        .prepare_cached(EXPIRY)?
        .query_row([thread], read)
        .optional()?;
    Ok(found.map(|(expiry, _)| expiry))
}

/// See [`tree::Store::take_expired`](crate::tree::Store::take_expired).
pub(in super::super) fn take_expired(
    db: &Connection,
    limit: usize,
) -> Result<Vec<(TreeId, ThreadId)>> {
    let now = Timestamp::now().0;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let found: Vec<(TreeId, ThreadId)> = db
        .prepare_cached(EXPIRED)?
        .query_map(params![now, limit], |row| Ok((id(row, 0)?, id(row, 1)?)))?
        .collect::<Result<_, _>>()?;
    for (_, thread) in &found {
        db.prepare_cached(NEXT_CHECK)?
            .execute(params![thread, now + TAKEN])?;
    }
    Ok(found)
}

/// See [`tree::Tx::set_ttl`](crate::tree::Tx::set_ttl).
pub(in super::super) fn set_ttl(db: &Connection, thread: ThreadId, ttl: Ttl) -> Result<()> {
    let at = Timestamp::now().0 + ttl.micros();
    let strategy = ttl.strategy.as_str();
    db.prepare_cached(SET)?
        .execute(params![thread, ttl.minutes, strategy, at])?;
    Ok(())
}

/// See [`tree::Tx::expired`](crate::tree::Tx::expired).
pub(in super::super) fn expired(
    db: &Connection,
    _tree: TreeId,
    thread: ThreadId,
) -> Result<Option<TtlStrategy>> {
    let found = db
        .prepare_cached(EXPIRY)?
        .query_row([thread], read)
        .optional()?;
    let Some((expiry, has_work)) = found else {
        return Ok(None);
    };
    let check = expiry.check(Timestamp::now(), has_work);
    db.prepare_cached(NEXT_CHECK)?
        .execute(params![thread, check.next.0])?;
    Ok(check.expired)
}
