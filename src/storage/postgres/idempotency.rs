//! Idempotency keys, claimed by one process at a time.

use uuid::Uuid;

use super::{
    columns::{Params, Time, column, execute, name},
    connection::{Object, Result, prepare},
};
use crate::idempotency::{Claim, Claimed, DatedResponse, RETENTION};

/// Takes a key that is free or expired, or whose attempt at this request was abandoned or has died with its process. A
/// claim may arrive twice, when its first reply was lost.
const CLAIM: &str = "
INSERT INTO idempotency_keys AS k (principal, key, request_hash, claim_id, first_id, worker_id)
VALUES ($1, $2, $3, $4, $4, $5)
ON CONFLICT (principal, key) DO UPDATE SET request_hash = EXCLUDED.request_hash, claim_id = EXCLUDED.claim_id,
       worker_id = EXCLUDED.worker_id, response = NULL,
       first_id = CASE WHEN k.created_at < now() - make_interval(secs => $6) THEN EXCLUDED.first_id ELSE k.first_id END,
       created_at = CASE WHEN k.created_at < now() - make_interval(secs => $6) THEN now() ELSE k.created_at END
 WHERE k.created_at < now() - make_interval(secs => $6)
    OR (k.response IS NULL AND k.request_hash = EXCLUDED.request_hash
        AND (k.claim_id = EXCLUDED.claim_id
             OR NOT EXISTS (SELECT 1 FROM workers w WHERE w.worker_id = k.worker_id AND w.lease_until >= now())))
RETURNING first_id";

const FIND: &str = "
SELECT request_hash = $3 AS is_equal, response, created_at FROM idempotency_keys WHERE principal = $1 AND key = $2";

const STORE_RESPONSE: &str = "
UPDATE idempotency_keys SET response = $4, created_at = CASE WHEN response IS NULL THEN now() ELSE created_at END WHERE principal = $1 AND key = $2 AND claim_id = $3";

const RELEASE: &str = "
DELETE FROM idempotency_keys WHERE principal = $1 AND key = $2 AND claim_id = $3 AND response IS NULL";

/// No process has this id, so that no lease keeps the key.
const ABANDON: &str = "
UPDATE idempotency_keys SET worker_id = '00000000-0000-0000-0000-000000000000'
 WHERE principal = $1 AND key = $2 AND claim_id = $3 AND response IS NULL";

/// What another process deletes is left to it.
const EXPIRE: &str = "
DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM idempotency_keys WHERE created_at < now() - make_interval(secs => $1)
   ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))";

pub(super) async fn claim_key(db: &Object, claim: &Claim) -> Result<Claimed> {
    let (principal, key) = (name(&claim.key.principal), name(&claim.key.text));
    let hash = claim.request.as_slice();
    let expiry = RETENTION.as_secs_f64();
    let statement = prepare(db, CLAIM).await?;
    let params: Params<'_, 6> = [&principal, &key, &hash, &claim.id, &claim.worker.0, &expiry];
    if let Some(row) = db.query_opt(&statement, &params).await? {
        let first: Uuid = column(&row, "first_id")?;
        return Ok(Claimed::Granted { first });
    }
    let statement = prepare(db, FIND).await?;
    let row = db.query_opt(&statement, &[&principal, &key, &hash]).await?;
    let Some(row) = row else {
        // Released in between: the caller retries.
        return Ok(Claimed::InProgress);
    };
    if !column::<bool>(&row, "is_equal")? {
        return Ok(Claimed::OtherRequest);
    }
    Ok(match column::<Option<Vec<u8>>>(&row, "response")? {
        Some(bytes) => Claimed::Completed(DatedResponse {
            bytes,
            stored_at: column::<Time>(&row, "created_at")?.0,
        }),
        None => Claimed::InProgress,
    })
}

pub(super) async fn store_response(db: &Object, claim: &Claim, response: &[u8]) -> Result<()> {
    let (principal, key) = (name(&claim.key.principal), name(&claim.key.text));
    execute(
        db,
        STORE_RESPONSE,
        &[&principal, &key, &claim.id, &response],
    )
    .await?;
    Ok(())
}

pub(super) async fn release_key(db: &Object, claim: &Claim) -> Result<()> {
    let (principal, key) = (name(&claim.key.principal), name(&claim.key.text));
    execute(db, RELEASE, &[&principal, &key, &claim.id]).await?;
    Ok(())
}

pub(super) async fn abandon_key(db: &Object, claim: &Claim) -> Result<()> {
    let (principal, key) = (name(&claim.key.principal), name(&claim.key.text));
    execute(db, ABANDON, &[&principal, &key, &claim.id]).await?;
    Ok(())
}

pub(super) async fn expire_keys(db: &Object, limit: usize) -> Result<u64> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    execute(db, EXPIRE, &[&RETENTION.as_secs_f64(), &limit]).await
}

statements!(CLAIM, FIND, STORE_RESPONSE, RELEASE, ABANDON, EXPIRE);
