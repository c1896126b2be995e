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

/// Pauses between attempts to free a key: the first one, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(30)];

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
    /// The storage failed; the key is free for repetitions of the request then.
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
        let Some(claim) = self.claim.take() else {
            return;
        };
        let inner = &self.service.inner;
        if let Err(error) = inner.store.release_key(claim.clone()).await {
            tracing::warn!(%error, "an idempotency key is not free yet");
            self.claim = Some(claim);
        } else {
            inner.completed.notify_waiters();
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
        runtime.spawn(async move { service.abandon(claim).await });
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

    /// Frees a key for repetitions of its request. Until the storage has done so they wait, so that this is tried
    /// until the server drains; what its process has claimed is void after its death.
    async fn abandon(&self, claim: Claim) {
        let inner = &self.inner;
        let [mut pause, longest] = PAUSES;
        while let Err(error) = inner.store.abandon_key(claim.clone()).await {
            tracing::warn!(%error, "an idempotency key is not free yet");
            tokio::select! {
                () = inner.drain.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (2 * pause).min(longest);
        }
        inner.completed.notify_waiters();
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

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use parking_lot::Mutex;

    use super::*;

    /// Keys of which the first so many attempts to free them fail.
    #[derive(Default)]
    struct Failing {
        failures: Mutex<usize>,
        abandoned: Mutex<Vec<Uuid>>,
        released: Mutex<Vec<Uuid>>,
    }

    impl Failing {
        fn free(&self, freed: &Mutex<Vec<Uuid>>, claim: &Claim) -> Result<(), Error> {
            let mut failures = self.failures.lock();
            if *failures > 0 {
                *failures -= 1;
                return Err(Error::Unavailable("the storage is away".to_owned()));
            }
            freed.lock().push(claim.id);
            Ok(())
        }
    }

    #[async_trait]
    impl Store for Failing {
        async fn claim_key(&self, claim: Claim) -> Result<Claimed, Error> {
            Ok(Claimed::Granted { first: claim.id })
        }

        async fn store_response(&self, claim: Claim, _: Vec<u8>) -> Result<(), Error> {
            self.free(&Mutex::default(), &claim)
        }

        async fn release_key(&self, claim: Claim) -> Result<(), Error> {
            self.free(&self.released, &claim)
        }

        async fn abandon_key(&self, claim: Claim) -> Result<(), Error> {
            self.free(&self.abandoned, &claim)
        }

        async fn expire_keys(&self) -> Result<u64, Error> {
            Ok(0)
        }
    }

    async fn guard(store: &Arc<Failing>, drain: &CancellationToken) -> KeyGuard {
        let service = Service::new(store.clone(), WorkerId::mint(), drain.clone());
        let key = Key {
            principal: "ann".into(),
            text: "k".into(),
        };
        match service.begin(key, [0; 16]).await.unwrap() {
            Outcome::Execute(guard) => guard,
            other => unreachable!("{other:?}"),
        }
    }

    /// What was freed once nothing is left to do: abandoned keys, and released ones.
    async fn freed(store: &Failing) -> (usize, usize) {
        tokio::time::sleep(Duration::from_secs(600)).await;
        let (abandoned, released) = (store.abandoned.lock(), store.released.lock());
        (abandoned.len(), released.len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_whose_request_ended_without_a_response_stays_that_of_the_request() {
        let (store, drain) = (Arc::new(Failing::default()), CancellationToken::new());
        drop(guard(&store, &drain).await);
        assert_eq!(freed(&store).await, (1, 0));
        guard(&store, &drain).await.release().await;
        assert_eq!(freed(&store).await, (1, 1));
        guard(&store, &drain).await.complete(vec![]).await.unwrap();
        assert_eq!(freed(&store).await, (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_freed_once_the_storage_is_there_again() {
        let (store, drain) = (Arc::new(Failing::default()), CancellationToken::new());
        for (nth, end) in ["dropped", "released", "completed"].into_iter().enumerate() {
            let guard = guard(&store, &drain).await;
            *store.failures.lock() = 7;
            match end {
                "dropped" => drop(guard),
                "released" => guard.release().await,
                _ => assert!(guard.complete(vec![]).await.is_err()),
            }
            assert_eq!(freed(&store).await, (nth + 1, 0), "{end}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_drains_does_not_wait_for_the_storage_to_free_keys() {
        let (store, drain) = (Arc::new(Failing::default()), CancellationToken::new());
        let guard = guard(&store, &drain).await;
        *store.failures.lock() = usize::MAX;
        drop(guard);
        tokio::time::sleep(Duration::from_secs(1)).await;
        drain.cancel();
        let left = freed(&store).await;
        assert_eq!(
            (left, *store.failures.lock() > usize::MAX - 5),
            ((0, 0), true)
        );
    }
}
