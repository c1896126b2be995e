//! What becomes of keys whose request or storage fails.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;

use super::*;

/// Keys of which the first so many attempts to free them fail.
#[derive(Default)]
struct Failing {
    failures: Mutex<usize>,
    abandoned: Mutex<Vec<Uuid>>,
    released: Mutex<Vec<Uuid>>,
    /// Another request has the key.
    taken: AtomicBool,
    /// How often somebody tried to claim the key.
    claims: AtomicUsize,
    /// The reply to a claim is lost.
    loses_replies: AtomicBool,
    /// A response takes this long to be stored.
    delay: Mutex<Duration>,
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
        self.claims.fetch_add(1, Ordering::Relaxed);
        if self.loses_replies.load(Ordering::Relaxed) {
            return Err(Error::Unavailable("the reply was lost".to_owned()));
        }
        if self.taken.load(Ordering::Relaxed) {
            return Ok(Claimed::InProgress);
        }
        Ok(Claimed::Granted { first: claim.id })
    }

    async fn store_response(&self, claim: Claim, _: Vec<u8>) -> Result<(), Error> {
        let delay = *self.delay.lock();
        tokio::time::sleep(delay).await;
        self.free(&Mutex::default(), &claim)
    }

    async fn release_key(&self, claim: Claim) -> Result<(), Error> {
        self.free(&self.released, &claim)
    }

    async fn abandon_key(&self, claim: Claim) -> Result<(), Error> {
        self.free(&self.abandoned, &claim)
    }

    async fn expire_keys(&self, _: usize) -> Result<u64, Error> {
        Ok(0)
    }
}

fn service(store: &Arc<Failing>, drain: &CancellationToken) -> Service {
    Service::new(store.clone(), WorkerId::mint(), drain.clone())
}

fn key() -> Key {
    Key {
        principal: "ann".into(),
        text: "k".into(),
    }
}

async fn guard(store: &Arc<Failing>, drain: &CancellationToken) -> KeyGuard {
    match service(store, drain)
        .begin(&key(), [0; 16])
        .await
        .unwrap()
        .unwrap()
    {
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

#[tokio::test(start_paused = true)]
async fn a_claim_whose_reply_was_lost_keeps_nobody_from_the_key() {
    let (store, drain) = (Arc::new(Failing::default()), CancellationToken::new());
    store.loses_replies.store(true, Ordering::Relaxed);
    let begun = service(&store, &drain).begin(&key(), [0; 16]).await;
    assert!(begun.is_err());
    assert_eq!(freed(&store).await, (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_not_granted_frees_no_key() {
    let (store, drain) = (Arc::new(Failing::default()), CancellationToken::new());
    store.taken.store(true, Ordering::Relaxed);
    let begun = service(&store, &drain).begin(&key(), [0; 16]).await;
    assert!(begun.unwrap().is_none());
    assert_eq!(freed(&store).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_ends_while_its_response_is_stored_frees_its_key() {
    let (store, drain) = (Arc::new(Failing::default()), CancellationToken::new());
    *store.delay.lock() = Duration::from_secs(9);
    let completes = guard(&store, &drain).await.complete(vec![]);
    let ended = tokio::time::timeout(Duration::from_secs(1), completes).await;
    assert!(ended.is_err());
    assert_eq!(freed(&store).await, (1, 0));
}

#[tokio::test(start_paused = true)]
async fn of_a_thousand_repetitions_that_wait_one_polls() {
    let (store, drain) = (Arc::new(Failing::default()), CancellationToken::new());
    let service = service(&store, &drain);
    store.taken.store(true, Ordering::Relaxed);
    let waits = (0..1000).map(|_| {
        let service = service.clone();
        tokio::spawn(async move { service.wait(&key(), [0; 16]).await.is_ok() })
    });
    let waits: Vec<_> = waits.collect();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let polls = store.claims.load(Ordering::Relaxed);
    assert!((20..=60).contains(&polls), "{polls}");
    // A process that stops lets all of them go.
    drain.cancel();
    for wait in waits {
        assert!(!wait.await.unwrap());
    }
    assert_eq!(freed(&store).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_key_leaves_with_its_client_and_looks_when_the_key_is_free() {
    let (store, drain) = (Arc::new(Failing::default()), CancellationToken::new());
    let service = service(&store, &drain);
    store.taken.store(true, Ordering::Relaxed);
    let (left, stays) = (CancellationToken::new(), CancellationToken::new());
    let wait = |client: &CancellationToken| {
        let (service, client) = (service.clone(), client.clone());
        tokio::spawn(async move {
            let wait = abandon::with_client(client, async move {
                let outcome = service.wait(&key(), [0; 16]).await;
                outcome.map(|outcome| matches!(outcome, Outcome::Execute(_)))
            });
            wait.await
        })
    };
    let (first, second) = (wait(&left), wait(&stays));
    tokio::time::sleep(Duration::from_secs(60)).await;
    left.cancel();
    assert!(first.await.unwrap().is_err());
    let before = store.claims.load(Ordering::Relaxed);
    store.taken.store(false, Ordering::Relaxed);
    service.inner.waiting.wake(&key());
    assert!(second.await.unwrap().unwrap());
    assert!(store.claims.load(Ordering::Relaxed) <= before + 2);
}
