//! A claimed key, until its response is stored or it is free again.

use super::{Claim, Error, Service};
use crate::id::RunId;

/// A key that this process carries a request out for. Dropping it frees the key for repetitions of the request, which
/// may have taken effect: they find what it created.
#[derive(Debug)]
pub struct KeyGuard {
    service: Service,
    claim: Option<Claim>,
    /// The id of a run that this request creates.
    pub run: RunId,
    /// An earlier attempt ended without a response, or with one that is not stored: the run may exist.
    pub is_retry: bool,
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
    /// A guard of a claim that is made next: the reply of the storage may be lost, and the claim be there.
    pub(super) fn new(service: Service, claim: Claim) -> Self {
        Self {
            service,
            run: RunId(claim.id),
            claim: Some(claim),
            is_retry: false,
        }
    }

    /// The claim was not granted: there is nothing to free.
    pub(super) fn forget(mut self) {
        self.claim = None;
    }

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
    /// The storage failed; the key is free for repetitions of the request then.
    pub async fn complete(mut self, response: Vec<u8>) -> Result<(), Error> {
        // Until it is stored the guard has the claim: this future may be dropped while it waits.
        let Some(claim) = self.claim.clone() else {
            return Ok(());
        };
        let inner = &self.service.inner;
        inner.store.store_response(claim.clone(), response).await?;
        inner.waiting.wake(&claim.key);
        self.claim = None;
        Ok(())
    }

    /// Frees the key: its request has changed nothing. By the time this returns another request may
    /// have it.
    pub async fn release(mut self) {
        let Some(claim) = self.claim.clone() else {
            return;
        };
        let inner = &self.service.inner;
        if let Err(error) = inner.store.release_key(claim.clone()).await {
            tracing::warn!(%error, "an idempotency key is not free yet");
            return;
        }
        inner.waiting.wake(&claim.key);
        self.claim = None;
    }
}

impl Drop for KeyGuard {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.service.abandon(claim);
        }
    }
}
