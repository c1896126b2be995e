//! Requests that must take effect once: which principal sent which key with what, and what was
//! answered.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use uuid::Uuid;

use super::Service;
use crate::{
    checkpoint::Error,
    id::{RunId, WorkerId},
};

/// How long an answer can be had again.
pub const KEEP: Duration = Duration::from_secs(24 * 3600);
/// How often a request that waits for another one's answer looks for it, when that is given by
/// another process. In this process it is told.
const LOOK: Duration = Duration::from_millis(100);

/// A client's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Who sent it.
    pub principal: Arc<str>,
    /// The text of the header.
    pub text: Arc<str>,
}

/// A request that wants to be the one that is carried out under a key.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The key.
    pub key: Key,
    /// Hash of method, path and body.
    pub request: [u8; 16],
    /// Tells this attempt from all others.
    pub id: Uuid,
    /// The process that carries it out; when its lease has lapsed the claim is void.
    pub worker: WorkerId,
}

/// What the table says about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The claim holds: carry the request out, then keep or release.
    Ours {
        /// The id of the first claim of this request: another one than this claim's when a
        /// process died over it. A run it creates has this id.
        first: Uuid,
    },
    /// The same request is being carried out.
    Theirs,
    /// It was answered.
    Answered(Vec<u8>),
    /// The key belongs to another request.
    Other,
}

/// Keeps keys and answers. Implemented by `storage::sqlite` and `storage::postgres`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Claims a key that is free, expired, or held for the same request by a process that died.
    async fn claim_key(&self, claim: Claim) -> Result<Found, Error>;
    /// Keeps the answer, if the claim still holds.
    async fn keep_answer(&self, claim: Claim, answer: Vec<u8>) -> Result<(), Error>;
    /// Gives the key back without an answer, if the claim still holds.
    async fn release_key(&self, claim: Claim) -> Result<(), Error>;
    /// Deletes keys older than [`KEEP`]; answers how many.
    async fn expire_keys(&self) -> Result<u64, Error>;
}

/// A key that this process carries a request out for. Dropping it gives the key back.
#[derive(Debug)]
pub struct Held {
    service: Service,
    claim: Option<Claim>,
    /// The id a run has that this request creates.
    pub run: RunId,
    /// A process died while it carried this request out: the run may exist.
    pub again: bool,
}

/// What to do with a request that has a key.
#[derive(Debug)]
pub enum Begun {
    /// Carry it out.
    Go(Held),
    /// Give this answer again.
    Answered(Vec<u8>),
    /// Refuse: the key belongs to another request.
    Other,
}

/// A key whose answer is kept and may be put better.
#[derive(Debug)]
pub struct Kept {
    service: Service,
    claim: Claim,
}

impl Kept {
    /// Keeps another answer in place of the first one.
    ///
    /// # Errors
    /// The storage failed; the first answer stays.
    pub async fn replace(self, answer: Vec<u8>) -> Result<(), Error> {
        let keys = &self.service.inner.parts.keys;
        keys.keep_answer(self.claim, answer).await
    }
}

impl Held {
    /// The right to keep another answer after the first one, when it is known.
    pub fn later(&self) -> Option<Kept> {
        Some(Kept {
            service: self.service.clone(),
            claim: self.claim.clone()?,
        })
    }

    /// Keeps the answer for whoever sends the request again.
    ///
    /// # Errors
    /// The storage failed; the key is free again then.
    pub async fn keep(mut self, answer: Vec<u8>) -> Result<(), Error> {
        let Some(claim) = self.claim.take() else {
            return Ok(());
        };
        let kept = self
            .service
            .inner
            .parts
            .keys
            .keep_answer(claim.clone(), answer)
            .await;
        if kept.is_err() {
            self.claim = Some(claim);
        } else {
            self.service.inner.answered.notify_waiters();
        }
        kept
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (Some(claim), Ok(runtime)) = (self.claim.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let service = self.service.clone();
        runtime.spawn(async move {
            if let Err(error) = service.inner.parts.keys.release_key(claim).await {
                tracing::warn!(%error, "an idempotency key could not be given back");
            }
            service.inner.answered.notify_waiters();
        });
    }
}

impl Service {
    /// Claims a key for a request. While another request with it is carried out this waits for
    /// its answer.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn begin_once(&self, key: Key, request: [u8; 16]) -> Result<Begun, Error> {
        let claim = Claim {
            key,
            request,
            id: Uuid::now_v7(),
            worker: self.inner.worker,
        };
        loop {
            let mut answered = std::pin::pin!(self.inner.answered.notified());
            // From here on no answer is missed.
            answered.as_mut().enable();
            match self.inner.parts.keys.claim_key(claim.clone()).await? {
                Found::Ours { first } => {
                    return Ok(Begun::Go(Held {
                        service: self.clone(),
                        run: RunId(first),
                        again: first != claim.id,
                        claim: Some(claim),
                    }));
                }
                Found::Answered(answer) => return Ok(Begun::Answered(answer)),
                Found::Other => return Ok(Begun::Other),
                Found::Theirs => {
                    let _ = tokio::time::timeout(LOOK, answered).await;
                }
            }
        }
    }

    /// Deletes expired keys from time to time, until the server drains.
    pub(super) async fn look_after_keys(self) {
        let mut hours = tokio::time::interval(KEEP / 24);
        loop {
            tokio::select! {
                () = self.inner.drain.cancelled() => return,
                _ = hours.tick() => {}
            }
            if let Err(error) = self.inner.parts.keys.expire_keys().await {
                tracing::warn!(%error, "expired idempotency keys could not be deleted");
            }
        }
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}
