//! Carrying out keyed requests: one at a time under a key, and its response for all repetitions.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    Claim, Claimed, DatedResponse, Key, KeyGuard, RETENTION, Store, abandoned::Abandoned,
    waiting::Waiting,
};
use crate::{
    abandon,
    checkpoint::Error,
    id::{RunId, WorkerId},
};

/// How often a request that waits for the response of another one polls for it, when another
/// process carries that one out: at first, and at last. Within this process it is notified.
const POLLS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// Pauses between attempts to free a key: the first one, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(30)];

/// Most keys that one statement deletes: their responses may be large.
const BATCH: usize = 100;

/// What to do with a keyed request.
#[derive(Debug)]
pub enum Outcome {
    /// Carry it out.
    Execute(KeyGuard),
    /// Send this response, which the first request had.
    Replay(DatedResponse),
    /// Refuse it: the key belongs to another request.
    OtherRequest,
}

pub(super) struct Inner {
    pub store: Arc<dyn Store>,
    worker: WorkerId,
    drain: CancellationToken,
    pub waiting: Waiting,
    abandoned: Abandoned,
}

/// The service of keyed requests. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    pub(super) inner: Arc<Inner>,
}

impl Service {
    /// A service over `store` for the process `worker`, until `drain` is cancelled.
    pub fn new(store: Arc<dyn Store>, worker: WorkerId, drain: CancellationToken) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                worker,
                drain,
                waiting: Waiting::default(),
                abandoned: Abandoned::default(),
            }),
        }
    }

    /// Frees a key for repetitions of its request. Until the storage has done so they wait, so that this is tried
    /// until the server drains; what its process has claimed is void after its death.
    pub(super) fn abandon(&self, claim: Claim) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if self.inner.abandoned.push(claim) {
            let service = self.clone();
            runtime.spawn(async move { service.free_abandoned().await });
        }
    }

    /// Frees the keys of all abandoned claims, one after the other.
    async fn free_abandoned(&self) {
        let inner = &self.inner;
        let [mut pause, longest] = PAUSES;
        while let Some(claim) = inner.abandoned.take() {
            match inner.store.abandon_key(claim.clone()).await {
                Ok(()) => {
                    inner.waiting.wake(&claim.key);
                    pause = PAUSES[0];
                }
                Err(error) => {
                    let keys = inner.abandoned.put_back(claim);
                    tracing::warn!(%error, keys, "idempotency keys are not free yet");
                    tokio::select! {
                        () = inner.drain.cancelled() => return,
                        () = tokio::time::sleep(pause) => {}
                    }
                    pause = (2 * pause).min(longest);
                }
            }
        }
    }

    /// Begins to delete expired keys.
    pub fn start(&self) {
        tokio::spawn(self.clone().expire_keys());
    }

    /// Claims a key for a request; `None` while another request with it is carried out.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn begin(&self, key: &Key, request: [u8; 16]) -> Result<Option<Outcome>, Error> {
        let inner = &self.inner;
        let claim = Claim {
            key: key.clone(),
            request,
            id: Uuid::now_v7(),
            worker: inner.worker,
        };
        let mut guard = KeyGuard::new(self.clone(), claim.clone());
        let claimed = inner.store.claim_key(claim.clone()).await?;
        if let Claimed::Granted { first } = claimed {
            guard.run = RunId(first);
            guard.is_retry = first != claim.id;
            return Ok(Some(Outcome::Execute(guard)));
        }
        guard.forget();
        Ok(match claimed {
            Claimed::Completed(response) => Some(Outcome::Replay(response)),
            Claimed::OtherRequest => Some(Outcome::OtherRequest),
            Claimed::InProgress | Claimed::Granted { .. } => None,
        })
    }

    /// Waits until the request that has a key is carried out, or claims the key when it was given up. Of those who
    /// wait for one key here one polls the storage.
    ///
    /// # Errors
    /// The storage failed, the server drains, or the client has left.
    pub async fn wait(&self, key: &Key, request: [u8; 16]) -> Result<Outcome, Error> {
        let inner = &self.inner;
        let line = inner.waiting.line(key);
        let left = async {
            tokio::select! {
                () = inner.drain.cancelled() => stopped("the server stops"),
                () = abandon::client_gone() => stopped("the client has left"),
            }
        };
        let mut left = std::pin::pin!(left);
        let _turn = tokio::select! {
            turn = line.turn.lock() => turn,
            error = &mut left => return Err(error),
        };
        let [mut pause, longest] = POLLS;
        loop {
            let mut changed = std::pin::pin!(line.changed.notified());
            // From here on no notification is missed.
            changed.as_mut().enable();
            // What was sent to the storage goes on when nobody waits for it: no claim is left behind.
            if let Some(outcome) = self.begin(key, request).await? {
                return Ok(outcome);
            }
            tokio::select! {
                _ = tokio::time::timeout(pause, changed) => {}
                error = &mut left => return Err(error),
            }
            pause = (2 * pause).min(longest);
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
            while !self.inner.drain.is_cancelled() {
                match self.inner.store.expire_keys(BATCH).await {
                    Ok(deleted) if deleted >= BATCH as u64 => {}
                    Ok(_) => break,
                    Err(error) => {
                        tracing::warn!(%error, "expired idempotency keys could not be deleted");
                        break;
                    }
                }
            }
        }
    }
}

/// Why nobody waits any longer for a request that goes on.
fn stopped(why: &str) -> Error {
    Error::Unavailable(why.to_owned())
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
