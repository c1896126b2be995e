//! Carrying out keyed requests: one at a time under a key, and its response for all repetitions.

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Claim, Claimed, Key, RETENTION, Store};
use crate::{
    checkpoint::Error,
    id::{RunId, WorkerId},
};

/// How often a request that waits for the response of another one polls for it, when another
/// process carries that one out. Within this process it is notified.
const POLL: Duration = Duration::from_millis(100);

/// A key that this process carries a request out for. Dropping it frees the key.
#[derive(Debug)]
pub struct KeyGuard {
    service: Service,
    claim: Option<Claim>,
    /// The id of a run that this request creates.
    pub run: RunId,
    /// A process died while it carried this request out: the run may exist.
    pub is_retry: bool,
}

/// What to do with a keyed request.
#[derive(Debug)]
pub enum Outcome {
    /// Carry it out.
    Execute(KeyGuard),
    /// Send this response, which the first request had.
    Replay(Vec<u8>),
    /// Refuse it: the key belongs to another request.
    OtherRequest,
}

/// A key whose response is stored and may be replaced once.
#[derive(Debug)]
pub struct StoredResponse {
    service: Service,
    claim: Claim,
}

impl StoredResponse {
    /// Stores another response instead of the first one.
    ///
    /// # Errors
    /// The storage failed; the first response stays.
    pub async fn replace(self, response: Vec<u8>) -> Result<(), Error> {
        let store = &self.service.inner.store;
        store.store_response(self.claim, response).await
    }
}

impl KeyGuard {
    /// The right to replace the response after it is stored, once the whole response is known.
    pub fn replaceable(&self) -> Option<StoredResponse> {
        Some(StoredResponse {
            service: self.service.clone(),
            claim: self.claim.clone()?,
        })
    }

    /// Stores the response for whoever repeats the request.
    ///
    /// # Errors
    /// The storage failed; the key is free again then.
    pub async fn complete(mut self, response: Vec<u8>) -> Result<(), Error> {
        let Some(claim) = self.claim.take() else {
            return Ok(());
        };
        let inner = &self.service.inner;
        let stored = inner.store.store_response(claim.clone(), response).await;
        if stored.is_err() {
            self.claim = Some(claim);
        } else {
            inner.completed.notify_waiters();
        }
        stored
    }

    /// Frees the key: its request has changed nothing. By the time this returns another request may
    /// have it.
    pub async fn release(mut self) {
        if let Some(claim) = self.claim.take() {
            self.service.release(claim).await;
        }
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        let (Some(claim), Ok(runtime)) = (self.claim.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let service = self.service.clone();
        runtime.spawn(async move { service.release(claim).await });
    }
}

struct Inner {
    store: Arc<dyn Store>,
    worker: WorkerId,
    drain: CancellationToken,
    /// A keyed request was completed or given up.
    completed: Notify,
}

/// The service of keyed requests. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

impl Service {
    /// A service over `store` for the process `worker`, until `drain` is cancelled.
    pub fn new(store: Arc<dyn Store>, worker: WorkerId, drain: CancellationToken) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                worker,
                drain,
                completed: Notify::new(),
            }),
        }
    }

    async fn release(&self, claim: Claim) {
        if let Err(error) = self.inner.store.release_key(claim).await {
            tracing::warn!(%error, "an idempotency key could not be given back");
        }
        self.inner.completed.notify_waiters();
    }

    /// Begins to delete expired keys.
    pub fn start(&self) {
        tokio::spawn(self.clone().expire_keys());
    }

    /// Claims a key for a request. While another request with it is carried out this waits for
    /// its response.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn begin(&self, key: Key, request: [u8; 16]) -> Result<Outcome, Error> {
        let inner = &self.inner;
        let claim = Claim {
            key,
            request,
            id: Uuid::now_v7(),
            worker: inner.worker,
        };
        loop {
            let mut completed = std::pin::pin!(inner.completed.notified());
            // From here on no notification is missed.
            completed.as_mut().enable();
            match inner.store.claim_key(claim.clone()).await? {
                Claimed::Granted { first } => {
                    return Ok(Outcome::Execute(KeyGuard {
                        service: self.clone(),
                        run: RunId(first),
                        is_retry: first != claim.id,
                        claim: Some(claim),
                    }));
                }
                Claimed::Completed(response) => return Ok(Outcome::Replay(response)),
                Claimed::OtherRequest => return Ok(Outcome::OtherRequest),
                Claimed::InProgress => {
                    let _ = tokio::time::timeout(POLL, completed).await;
                }
            }
        }
    }

    /// Deletes expired keys from time to time, until the server drains.
    async fn expire_keys(self) {
        let mut interval = tokio::time::interval(RETENTION / 24);
        loop {
            tokio::select! {
                () = self.inner.drain.cancelled() => return,
                _ = interval.tick() => {}
            }
            if let Err(error) = self.inner.store.expire_keys().await {
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
