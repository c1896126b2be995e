//! Slots for running handlers: how many requests are worked on at once, of one connection, of one
//! principal and in all.

use std::{sync::Arc, time::Duration};

use hyper::{Method, Response, StatusCode, http::request::Parts};
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinError,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{body::Body, error::Error};
use crate::{
    abandon,
    contention::{
        permits::{Permit, Permits, Priority},
        shares::Percent,
    },
    http::parse::params::Query,
};

/// How many requests of one connection are worked on at once. Those that have begun go first, as among those of
/// their principal.
#[derive(Clone, Debug)]
pub struct ConnectionSlots {
    permits: Arc<Permits>,
    /// All of them have one line.
    name: Arc<str>,
}

impl ConnectionSlots {
    /// So many.
    pub fn new(most: usize) -> Self {
        Self {
            permits: Permits::new(most),
            name: Arc::default(),
        }
    }

    async fn wait(&self, priority: Priority) -> Permit {
        self.permits.wait(&self.name, priority).await
    }
}

/// The slots of a server.
#[derive(Debug)]
pub struct Slots {
    all: Arc<Semaphore>,
    /// The shares of principals.
    shares: Arc<Permits>,
    /// How long a request may wait for its slot.
    limit: Duration,
}

impl Slots {
    /// So many, of which each principal has this share, and the longest wait for one.
    pub fn new(most: usize, share: Percent, limit: Duration) -> Self {
        Self {
            all: Arc::new(Semaphore::new(most)),
            shares: Permits::new(share.of(most)),
            limit,
        }
    }

    /// Waits for a slot. A known principal has its share of all slots at the most; without
    /// keys there is only one client. Whoever stops to wait has taken nothing.
    ///
    /// # Errors
    /// 429: other requests of the connection or of the principal had their slots for too long; 503: those of all did.
    pub async fn take(
        &self,
        connection: &ConnectionSlots,
        principal: Option<&Arc<str>>,
    ) -> Result<Slot, Error> {
        let share = principal.map(|principal| (self.shares.clone(), principal.clone()));
        let needed = Needed {
            connection: connection.clone(),
            share,
            all: Some(self.all.clone()),
        };
        Slot::of(needed, self.limit).await
    }

    /// A slot of the connection alone, for probes: they are answered also when the server is busy, and wait as long
    /// as it takes.
    pub async fn take_for_probe(&self, connection: &ConnectionSlots) -> Result<Slot, Error> {
        let needed = Needed {
            connection: connection.clone(),
            share: None,
            all: None,
        };
        Slot::of(needed, Duration::MAX).await
    }
}

/// A taken slot; it is free again once this is dropped.
#[derive(Debug)]
pub struct Slot {
    needed: Needed,
    taken: Mutex<Option<Taken>>,
    /// How long its request may still wait for it: all its waits together have the limit of one.
    left: Mutex<Duration>,
    /// That limit.
    limit: Duration,
}

/// What a slot is made of.
#[derive(Debug)]
struct Needed {
    connection: ConnectionSlots,
    share: Option<(Arc<Permits>, Arc<str>)>,
    all: Option<Arc<Semaphore>>,
}

/// A slot for a command; it is free again once this is dropped.
#[derive(Debug)]
pub struct AnotherSlot {
    _taken: Taken,
}

#[derive(Debug)]
struct Taken {
    _connection: Permit,
    _share: Option<Permit>,
    _all: Option<OwnedSemaphorePermit>,
}

impl Slot {
    async fn of(needed: Needed, limit: Duration) -> Result<Self, Error> {
        let (begin, taken) = (Instant::now(), needed.take(Priority::New, limit).await?);
        Ok(Self {
            needed,
            taken: Mutex::new(Some(taken)),
            left: Mutex::new(limit.saturating_sub(begin.elapsed())),
            limit,
        })
    }

    /// Lets others have the slot while something is waited for that may fail: then it is not taken again. Else this
    /// request has it again before those of its connection and of its principal that have had none.
    ///
    /// # Errors
    /// What is waited for, or those of [`Slots::take`]: the request must not have changed anything yet.
    pub async fn try_lend<T, E: Into<Error>>(
        &self,
        waits: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Error> {
        self.release();
        let result = waits.await.map_err(Into::into)?;
        let (begin, left) = (Instant::now(), *self.left.lock());
        *self.taken.lock() = Some(self.needed.take(Priority::Begun, left).await?);
        *self.left.lock() = left.saturating_sub(begin.elapsed());
        Ok(result)
    }

    /// Lets others have the slot while something is waited for that the request has begun: it cannot be refused any more,
    /// however long it takes until it has the slot again.
    pub async fn lend<T>(&self, waits: impl Future<Output = T>) -> T {
        self.release();
        let result = waits.await;
        let taken = self.needed.take(Priority::Begun, Duration::MAX).await;
        *self.taken.lock() = taken.ok();
        result
    }

    /// Waits for a slot like this one, for what its request has led to and is a request of its own: a command on a
    /// connection.
    ///
    /// # Errors
    /// Those of [`Slots::take`].
    pub async fn take_another(self: Arc<Self>) -> Result<AnotherSlot, Error> {
        Ok(AnotherSlot {
            _taken: self.needed.take(Priority::New, self.limit).await?,
        })
    }

    fn release(&self) {
        drop(self.taken.lock().take());
    }
}

impl Needed {
    /// In one order for all, so that nobody waits in a circle; all of it within the limit.
    async fn take(&self, priority: Priority, limit: Duration) -> Result<Taken, Error> {
        let begin = Instant::now();
        let left = || limit.saturating_sub(begin.elapsed());
        let connection = timeout(left(), self.connection.wait(priority)).await;
        let connection = connection.map_err(|_| {
            too_many(
                "Other requests on this connection are not answered yet: wait for their responses or send fewer \
                 at once, and try again.",
            )
        })?;
        let share = match &self.share {
            Some((shares, principal)) => {
                let share = timeout(left(), shares.wait(principal, priority)).await;
                Some(share.map_err(|_| principal_has_its_share())?)
            }
            None => None,
        };
        let of_own = begin.elapsed();
        let all = match &self.all {
            Some(all) => {
                let slot = timeout(left(), all.clone().acquire_owned()).await;
                Some(slot.map_err(|_| {
                    // Its own requests took most of the time.
                    if self.share.is_some() && 2 * of_own > limit {
                        principal_has_its_share()
                    } else {
                        Error::unavailable("Too many requests are worked on. Try again later.")
                    }
                })?)
            }
            None => None,
        };
        Ok(Taken {
            _connection: connection,
            _share: share,
            // The semaphore is never closed.
            _all: all.transpose().map_err(|error| Error::internal(&error))?,
        })
    }
}

fn principal_has_its_share() -> Error {
    too_many(
        "Other requests of yours are all that one client may have worked on at once: wait for their responses or \
         send fewer at once, and try again. The operator sets BACKSTITCH_SHARE and BACKSTITCH_REQUESTS.",
    )
}

fn too_many(detail: &'static str) -> Error {
    Error::new(StatusCode::TOO_MANY_REQUESTS, detail).with_code("too_many_requests")
}

/// Whether a request changes nothing, so that it may be dropped when nobody waits for its response. `path` is
/// that of the route: the name of a graph in a request's path may be any word.
pub fn only_reads(method: &Method, path: &str) -> bool {
    match method.as_str() {
        // Whoever leaves these may cancel a run by that.
        "GET" | "HEAD" => !path.ends_with("/stream") && !path.ends_with("/join"),
        "POST" => [
            "/search",
            "/count",
            "/versions",
            "/store/namespaces",
            "/history",
            "/state/checkpoint",
            "/stream/events",
        ]
        .iter()
        .any(|end| path.ends_with(end)),
        _ => false,
    }
}

/// Whether somebody who may only read may send a request. One whose end cancels a run changes
/// something, and so may the messages of a client that leaves HTTP.
pub fn changes_nothing(head: &Parts, path: &str, leaves_http: bool) -> bool {
    let reads = matches!(head.method, Method::GET | Method::HEAD) || only_reads(&head.method, path);
    let query = Query::of(head.uri.query());
    reads && !leaves_http && query.get("cancel_on_disconnect").is_none()
}

/// Carries a request out in its slot, which is free once the head of the response is there.
///
/// On a task of its own: a client that hangs up must not cut off what the request has begun (a run
/// claimed and never executed), and a panic must end here. What only reads ends with its client.
pub async fn execute(
    slot: Arc<Slot>,
    only_reads: bool,
    work: impl Future<Output = Result<Response<Body>, Error>> + Send + 'static,
) -> Result<Result<Response<Body>, Error>, JoinError> {
    let abandoned = CancellationToken::new();
    let client = abandoned.clone().drop_guard();
    let work = async move {
        let response = if only_reads {
            let read = abandon::unless_abandoned(abandoned, work).await;
            // Nobody gets this one.
            read.unwrap_or_else(|| Err(Error::unavailable("The client has left.")))
        } else {
            abandon::with_client(abandoned, work).await
        };
        slot.release();
        response
    };
    let response = tokio::spawn(work.in_current_span()).await;
    drop(client);
    response
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn status<T>(result: Result<T, Error>) -> Option<u16> {
        result.err().map(|error| error.status.as_u16())
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_told_for_whom() {
        let slots = Arc::new(Slots::new(4, Percent::default(), LIMIT));
        let connection = ConnectionSlots::new;
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let (small, large) = (connection(1), connection(9));
        let first = slots.take(&small, Some(&ann)).await.unwrap();
        let begin = Instant::now();
        let refused = slots.take(&small, Some(&bob)).await.unwrap_err();
        assert_eq!(
            (refused.status.as_u16(), refused.code),
            (429, Some("too_many_requests"))
        );
        assert!(refused.detail.contains("on this connection"));
        let second = slots.take(&large, Some(&ann)).await.unwrap();
        let refused = slots.take(&large, Some(&ann)).await.unwrap_err();
        assert_eq!(
            (refused.status.as_u16(), refused.code),
            (429, Some("too_many_requests"))
        );
        assert!(refused.detail.contains("of yours"));
        let _others = (
            slots.take(&large, Some(&bob)).await.unwrap(),
            slots.take(&large, None).await.unwrap(),
        );
        assert_eq!(status(slots.take(&large, None).await), Some(503));
        assert_eq!(status(slots.take(&large, Some(&bob)).await), Some(503));
        let waited = begin.elapsed();
        assert!(waited >= 4 * LIMIT && waited < 4 * LIMIT + Duration::from_secs(1));
        // A probe waits on, for as long as its connection is used.
        let probe = slots.take_for_probe(&small);
        let mut probe = std::pin::pin!(timeout(3 * LIMIT, probe));
        assert!(futures::poll!(probe.as_mut()).is_pending());
        tokio::time::sleep(2 * LIMIT).await;
        assert!(futures::poll!(probe.as_mut()).is_pending());
        drop((first, second));
        assert!(probe.await.unwrap().is_ok());
    }

    /// A request that waits for so long for its principal's share, and then for one of all slots.
    async fn status_after(of_own: Duration) -> Option<u16> {
        let slots = Slots::new(2, Percent::default(), LIMIT);
        let connection = ConnectionSlots::new(9);
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let held = slots.take(&connection, Some(&ann)).await.unwrap();
        let _other = slots.take(&connection, Some(&bob)).await.unwrap();
        let follows = async {
            tokio::time::sleep(of_own).await;
            let nobody = slots.take(&connection, None);
            let mut nobody = std::pin::pin!(nobody);
            assert!(futures::poll!(nobody.as_mut()).is_pending());
            drop(held);
            let slot = nobody.await.unwrap();
            tokio::time::sleep(LIMIT).await;
            drop(slot);
        };
        let waits = slots.take(&connection, Some(&ann));
        let (waited, ()) = tokio::join!(biased; waits, follows);
        status(waited)
    }

    #[tokio::test(start_paused = true)]
    async fn those_for_whom_it_waited_longer_are_the_cause() {
        assert_eq!(status_after(LIMIT * 2 / 5).await, Some(503));
        assert_eq!(status_after(LIMIT * 3 / 5).await, Some(429));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_was_lent_is_had_again_before_new_ones_and_all_its_waits_have_one_limit() {
        let slots = Slots::new(2, Percent::default(), LIMIT);
        let connection = ConnectionSlots::new(9);
        let ann: Arc<str> = "ann".into();
        let take = || slots.take(&connection, Some(&ann));
        let held = take().await.unwrap();
        let frees = async {
            tokio::time::sleep(LIMIT * 2 / 5).await;
            drop(held);
        };
        let (slot, ()) = tokio::join!(take(), frees);
        let slot = slot.unwrap();
        let other = Mutex::new(None);
        let body = async {
            // Its client takes its time, which is nobody's wait.
            tokio::time::sleep(3 * LIMIT).await;
            *other.lock() = Some(take().await.unwrap());
            Ok::<_, Error>("body")
        };
        let begin = Instant::now();
        let refused = slot.try_lend(body).await;
        assert_eq!(status(refused), Some(429));
        let waited = begin.elapsed().as_secs_f64() / LIMIT.as_secs_f64();
        assert!((3.5..3.7).contains(&waited), "{waited}");
        // What cannot be refused waits on, and goes first.
        let mut lent = Box::pin(slot.lend(async {}));
        let mut new = std::pin::pin!(take());
        assert!(futures::poll!(new.as_mut()).is_pending());
        assert!(futures::poll!(lent.as_mut()).is_pending());
        other.lock().take();
        lent.as_mut().await;
        drop(lent);
        assert!(futures::poll!(new.as_mut()).is_pending());
        drop(slot);
        assert!(new.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_was_lent_is_had_again_before_new_requests_of_its_connection() {
        let slots = Slots::new(9, Percent::default(), LIMIT);
        let connection = ConnectionSlots::new(1);
        let take = || slots.take(&connection, None);
        let slot = take().await.unwrap();
        let other = Mutex::new(None);
        let body = async {
            *other.lock() = Some(take().await.unwrap());
            tokio::time::sleep(LIMIT / 2).await;
            Ok::<_, Error>("body")
        };
        let mut lent = Box::pin(slot.try_lend(body));
        assert!(futures::poll!(lent.as_mut()).is_pending());
        let mut new = std::pin::pin!(take());
        assert!(
            futures::poll!(new.as_mut()).is_pending(),
            "another one has it while the body comes"
        );
        tokio::time::sleep(LIMIT * 3 / 4).await;
        assert!(
            futures::poll!(lent.as_mut()).is_pending(),
            "it waits behind that one"
        );
        other.lock().take();
        assert!(futures::poll!(new.as_mut()).is_pending());
        assert_eq!(lent.as_mut().await.unwrap(), "body");
        drop(lent);
        drop(slot);
        assert!(new.await.is_ok());
    }

    #[tokio::test]
    async fn slots_are_bounded_by_connection_by_principal_and_in_all() {
        let slots = Slots::new(4, Percent::default(), LIMIT);
        let connection = ConnectionSlots::new;
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        let (small, large) = (connection(1), connection(9));
        let first = slots.take(&small, Some(&ann)).await.unwrap();
        let waits = |connection, who| slots.take(connection, who).now_or_never().is_none();
        assert!(waits(&small, Some(&ann)), "the connection has one");
        let second = slots.take(&large, Some(&ann)).await.unwrap();
        assert!(waits(&large, Some(&ann)), "half of all are taken");
        let third = slots.take(&large, Some(&bob)).await.unwrap();
        let fourth = slots.take(&large, None).await.unwrap();
        assert!(waits(&large, None), "all are taken");
        assert!(slots.take_for_probe(&large).now_or_never().is_some());
        let lent = first.lend(async {
            assert!(!waits(&small, Some(&ann)), "it is lent");
        });
        lent.await;
        assert!(waits(&small, Some(&ann)), "it is taken back");
        drop((first, second, third, fourth));
        assert!(!waits(&small, Some(&ann)));
    }
}
