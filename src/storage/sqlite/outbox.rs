//! The outbox of webhooks. Triggers of the table of runs insert its rows and drop them with their runs.

use std::{sync::Arc, time::Duration};

use rusqlite::{Connection, Row, params};

use super::columns::{all, id, one};
use crate::{
    checkpoint::Result,
    time::Timestamp,
    webhooks::outbox::{Delivery, Due, DueByHost, FailedTry, HostPage, Key},
};

pub(super) const DUE: &str = "SELECT run_id, tree_id, host, principal FROM outbox \
     INDEXED BY outbox_due WHERE dead_at IS NULL AND next_at <= ?1 ORDER BY next_at LIMIT ?2";

/// The next host by the index.
pub(super) const HOST: &str = "SELECT host FROM outbox INDEXED BY outbox_hosts \
     WHERE dead_at IS NULL AND host > ?1 ORDER BY host LIMIT 1";

pub(super) const OF_HOST: &str = "SELECT run_id, tree_id, host, principal FROM outbox \
     INDEXED BY outbox_hosts WHERE dead_at IS NULL AND host = ?1 AND next_at <= ?2 \
     ORDER BY next_at LIMIT ?3";

const TAKE: &str = "UPDATE outbox SET attempts = attempts + 1, next_at = ?4 \
     WHERE run_id = ?1 AND tree_id = ?2 AND dead_at IS NULL AND next_at <= ?3 \
     RETURNING run_id, tree_id, url, attempts";

const SWEEP: &str = "DELETE FROM outbox WHERE (run_id, tree_id) IN ( \
     SELECT run_id, tree_id FROM outbox INDEXED BY outbox_dead \
      WHERE dead_at IS NOT NULL AND dead_at < ?1 LIMIT ?2)";

pub(super) fn due_deliveries(db: &Connection, limit: usize) -> Result<Vec<Due>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    all(db, DUE, params![Timestamp::now().0, limit], read_due)
}

pub(super) fn due_by_host(db: &Connection, page: &HostPage) -> Result<DueByHost> {
    let now = Timestamp::now();
    let per_host = i64::try_from(page.per_host).unwrap_or(i64::MAX);
    let mut found = DueByHost {
        due: vec![],
        last: Some(page.after.clone()),
    };
    for _ in 0..page.hosts {
        let host = one(db, HOST, [found.last.as_deref()], |row| {
            row.get::<_, Arc<str>>(0)
        })?;
        let Some(host) = host else {
            found.last = None;
            break;
        };
        found
            .due
            .extend(all(db, OF_HOST, params![host, now.0, per_host], read_due)?);
        found.last = Some(host);
    }
    Ok(found)
}

pub(super) fn take_deliveries(
    db: &Connection,
    keys: &[Key],
    lease: Duration,
) -> Result<Vec<Delivery>> {
    let now = Timestamp::now();
    let until = now.plus_seconds(lease.as_secs_f64());
    let mut taken = vec![];
    for key in keys {
        let params = params![key.run, key.tree, now.0, until.0];
        taken.extend(one(db, TAKE, params, |row| {
            Ok(Delivery {
                key: read_key(row)?,
                url: row.get(2)?,
                attempt: row.get(3)?,
            })
        })?);
    }
    Ok(taken)
}

pub(super) fn delivered(db: &Connection, key: Key) -> Result<()> {
    db.prepare_cached("DELETE FROM outbox WHERE run_id = ?1 AND tree_id = ?2")?
        .execute(params![key.run, key.tree])?;
    Ok(())
}

pub(super) fn delivery_failed(db: &Connection, failed: &FailedTry) -> Result<()> {
    let now = Timestamp::now();
    let next = failed
        .pause
        .map(|pause| now.plus_seconds(pause.as_secs_f64()));
    db.prepare_cached(
        "UPDATE outbox SET last_error = ?4, next_at = coalesce(?5, next_at), \
         dead_at = CASE WHEN ?5 IS NULL THEN ?6 END \
         WHERE run_id = ?1 AND tree_id = ?2 AND attempts = ?3 AND dead_at IS NULL",
    )?
    .execute(params![
        failed.key.run,
        failed.key.tree,
        failed.attempt,
        failed.error,
        next.map(|next| next.0),
        now.0,
    ])?;
    Ok(())
}

pub(super) fn release_deliveries(db: &Connection, taken: &[(Key, i32)]) -> Result<()> {
    let now = Timestamp::now();
    for (key, attempt) in taken {
        db.prepare_cached(
            "UPDATE outbox SET attempts = attempts - 1, next_at = ?4 \
             WHERE run_id = ?1 AND tree_id = ?2 AND attempts = ?3 AND dead_at IS NULL",
        )?
        .execute(params![key.run, key.tree, attempt, now.0])?;
    }
    Ok(())
}

pub(super) fn sweep_deliveries(db: &Connection, age: Duration, limit: usize) -> Result<u64> {
    let oldest = Timestamp::now().plus_seconds(-age.as_secs_f64());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let gone = db
        .prepare_cached(SWEEP)?
        .execute(params![oldest.0, limit])?;
    Ok(gone as u64)
}

fn read_key(row: &Row<'_>) -> rusqlite::Result<Key> {
    Ok(Key {
        run: id(row, 0)?,
        tree: id(row, 1)?,
    })
}

fn read_due(row: &Row<'_>) -> rusqlite::Result<Due> {
    Ok(Due {
        key: read_key(row)?,
        host: row.get(2)?,
        principal: row.get(3)?,
    })
}
