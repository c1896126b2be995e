//! Idempotency keys. One process uses a database, so a claim of another one is void.

use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use super::columns::id;
use crate::{
    checkpoint::Result,
    idempotency::{Claim, Claimed, DatedResponse, RETENTION},
    time::Timestamp,
};

/// When the oldest key that still counts was claimed.
fn oldest(now: Timestamp) -> i64 {
    now.plus_seconds(-RETENTION.as_secs_f64()).0
}

pub(super) fn claim_key(db: &Connection, new: &Claim) -> Result<Claimed> {
    let now = Timestamp::now();
    let found = db
        .prepare_cached(
            "SELECT request_hash, first_id, worker_id, response, created_at \
             FROM idempotency_keys WHERE principal = ?1 AND key = ?2",
        )?
        .query_row(params![new.key.principal, new.key.text], |row| {
            let hash: [u8; 16] = row.get(0)?;
            let first: Uuid = id(row, 1)?;
            let worker: Uuid = id(row, 2)?;
            let response: Option<Vec<u8>> = row.get(3)?;
            let created: i64 = row.get(4)?;
            Ok((hash, first, worker, response, created))
        })
        .optional()?;
    let (first, created) = match found {
        Some((hash, first, worker, response, created)) if created >= oldest(now) => {
            if hash != new.request {
                return Ok(Claimed::OtherRequest);
            }
            if let Some(bytes) = response {
                let stored_at = Timestamp(created);
                return Ok(Claimed::Completed(DatedResponse { bytes, stored_at }));
            }
            if worker == new.worker.0 {
                return Ok(Claimed::InProgress);
            }
            (first, created)
        }
        _ => (new.id, now.0),
    };
    db.prepare_cached(
        "INSERT OR REPLACE INTO idempotency_keys (principal, key, request_hash, claim_id, \
         first_id, worker_id, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        new.key.principal,
        new.key.text,
        new.request,
        new.id.as_bytes(),
        first.as_bytes(),
        new.worker,
        created,
    ])?;
    Ok(Claimed::Granted { first })
}

pub(super) fn store_response(db: &Connection, claim: &Claim, response: &[u8]) -> Result<()> {
    db.prepare_cached(
        "UPDATE idempotency_keys SET response = ?4, \
         created_at = CASE WHEN response IS NULL THEN ?5 ELSE created_at END \
         WHERE principal = ?1 AND key = ?2 AND claim_id = ?3",
    )?
    .execute(params![
        claim.key.principal,
        claim.key.text,
        claim.id.as_bytes(),
        response,
        Timestamp::now().0,
    ])?;
    Ok(())
}

pub(super) fn release_key(db: &Connection, claim: &Claim) -> Result<()> {
    db.prepare_cached(
        "DELETE FROM idempotency_keys WHERE principal = ?1 AND key = ?2 \
         AND claim_id = ?3 AND response IS NULL",
    )?
    .execute(params![
        claim.key.principal,
        claim.key.text,
        claim.id.as_bytes()
    ])?;
    Ok(())
}

/// No process has the id that the row has then.
pub(super) fn abandon_key(db: &Connection, claim: &Claim) -> Result<()> {
    db.prepare_cached(
        "UPDATE idempotency_keys SET worker_id = ?4 WHERE principal = ?1 AND key = ?2 \
         AND claim_id = ?3 AND response IS NULL",
    )?
    .execute(params![
        claim.key.principal,
        claim.key.text,
        claim.id.as_bytes(),
        Uuid::nil().as_bytes(),
    ])?;
    Ok(())
}

pub(super) fn expire_keys(db: &Connection, limit: usize) -> Result<u64> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let gone = db
        .prepare_cached(
            "DELETE FROM idempotency_keys WHERE (principal, key) IN (SELECT principal, key \
             FROM idempotency_keys WHERE created_at < ?1 ORDER BY created_at LIMIT ?2)",
        )?
        .execute(params![oldest(Timestamp::now()), limit])?;
    Ok(gone as u64)
}
