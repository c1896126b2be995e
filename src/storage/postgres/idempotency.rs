//! Idempotency keys.

use async_trait::async_trait;
use uuid::Uuid;

use super::{
    Store,
    columns::{Params, column, name},
    connection::{self, prepare},
};
use crate::{
    checkpoint::Error,
    runs::keys::{self, Claim, Found, KEEP},
};

/// Takes a key that is free or expired, or whose process has died over the same request. The
/// same claim may arrive twice, when its first reply was lost.
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

const LOOK: &str = "
SELECT request_hash = $3 AS same, response FROM idempotency_keys WHERE principal = $1 AND key = $2";

const KEEP_ANSWER: &str = "
UPDATE idempotency_keys SET response = $4 WHERE principal = $1 AND key = $2 AND claim_id = $3";

const RELEASE: &str = "
DELETE FROM idempotency_keys WHERE principal = $1 AND key = $2 AND claim_id = $3 AND response IS NULL";

const EXPIRE: &str = "
DELETE FROM idempotency_keys WHERE created_at < now() - make_interval(secs => $1)";

#[async_trait]
impl keys::Store for Store {
    async fn claim_key(&self, claim: Claim) -> Result<Found, Error> {
        let claim = &claim;
        connection::retry(&self.pools.reads, |client| async move {
            let client = &client;
            let take = prepare(client, CLAIM).await?;
            let look = prepare(client, LOOK).await?;
            let (principal, key) = (name(&claim.key.principal), name(&claim.key.text));
            let hash = claim.request.as_slice();
            let keep = KEEP.as_secs_f64();
            let taken: Params<'_, 6> = [&principal, &key, &hash, &claim.id, &claim.worker.0, &keep];
            if let Some(row) = client.query_opt(&take, &taken).await? {
                let first: Uuid = column(&row, "first_id")?;
                return Ok(Found::Ours { first });
            }
            let row = client.query_opt(&look, &[&principal, &key, &hash]).await?;
            let Some(row) = row else {
                // Released in between: the caller tries again.
                return Ok(Found::Theirs);
            };
            if !column::<bool>(&row, "same")? {
                return Ok(Found::Other);
            }
            Ok(match column::<Option<Vec<u8>>>(&row, "response")? {
                Some(answer) => Found::Answered(answer),
                None => Found::Theirs,
            })
        })
        .await
    }

    async fn keep_answer(&self, claim: Claim, answer: Vec<u8>) -> Result<(), Error> {
        let (claim, answer) = (&claim, &answer);
        connection::retry(&self.pools.reads, |client| async move {
            let client = &client;
            let statement = prepare(client, KEEP_ANSWER).await?;
            let (principal, key) = (name(&claim.key.principal), name(&claim.key.text));
            client
                .execute(&statement, &[&principal, &key, &claim.id, answer])
                .await?;
            Ok(())
        })
        .await
    }

    async fn release_key(&self, claim: Claim) -> Result<(), Error> {
        let claim = &claim;
        connection::retry(&self.pools.reads, |client| async move {
            let client = &client;
            let statement = prepare(client, RELEASE).await?;
            let (principal, key) = (name(&claim.key.principal), name(&claim.key.text));
            client
                .execute(&statement, &[&principal, &key, &claim.id])
                .await?;
            Ok(())
        })
        .await
    }

    async fn expire_keys(&self) -> Result<u64, Error> {
        connection::retry(&self.pools.reads, |client| async move {
            let client = &client;
            let statement = prepare(client, EXPIRE).await?;
            Ok(client.execute(&statement, &[&KEEP.as_secs_f64()]).await?)
        })
        .await
    }
}
