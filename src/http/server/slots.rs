//! Slots for running handlers: how many requests are worked on at once, of one connection, of one
//! principal and in all.

use std::sync::Arc;

use hyper::{Method, Response, http::request::Parts};
use parking_lot::Mutex;
use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    task::JoinError,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{body::Body, error::Error};
use crate::{abandon, contention::shares::Semaphores, http::parse::params::Query};

/// The slots of a server.
#[derive(Debug)]
pub struct Slots {
    all: Arc<Semaphore>,
    /// The shares of principals.
    shares: Semaphores,
}

impl Slots {
    pub fn new(most: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(most)),
            shares: Semaphores::new(most.div_ceil(2)),
        }
    }

    /// Waits for a slot. Of the slots of a known principal at most half are taken at once; without
    /// keys there is only one client. Whoever stops to wait has taken nothing.
    pub async fn take(
        &self,
        connection: &Arc<Semaphore>,
        principal: Option<&Arc<str>>,
    ) -> Result<Slot, Error> {
        let mut needed = vec![connection.clone()];
        needed.extend(principal.map(|principal| self.shares.of(principal)));
        needed.push(self.all.clone());
        Slot::of(needed).await
    }

    /// A slot of the connection alone, for probes: they are answered also when the server is busy.
    pub async fn take_for_probe(&self, connection: &Arc<Semaphore>) -> Result<Slot, Error> {
        Slot::of(vec![connection.clone()]).await
    }
}

/// A taken slot; it is free again once this is dropped.
#[derive(Debug)]
pub struct Slot {
    semaphores: Vec<Arc<Semaphore>>,
    permits: Mutex<Vec<OwnedSemaphorePermit>>,
}

impl Slot {
    async fn of(semaphores: Vec<Arc<Semaphore>>) -> Result<Self, Error> {
        let permits = acquire(&semaphores).await;
        let permits = permits.map_err(|error| Error::internal(&error))?;
        Ok(Self {
            semaphores,
            permits: Mutex::new(permits),
        })
    }

    /// Lets others have the slot while something is waited for that may fail: then it is not taken again.
    pub async fn try_lend<T, E>(&self, waits: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.permits.lock().clear();
        let result = waits.await?;
        self.retake().await;
        Ok(result)
    }

    /// Lets others have the slot while something is waited for that only the client can end.
    pub async fn lend<T>(&self, waits: impl Future<Output = T>) -> T {
        self.permits.lock().clear();
        let result = waits.await;
        self.retake().await;
        result
    }

    async fn retake(&self) {
        // The semaphores are never closed.
        if let Ok(permits) = acquire(&self.semaphores).await {
            *self.permits.lock() = permits;
        }
    }
}

/// In one order for all, so that nobody waits in a circle.
async fn acquire(semaphores: &[Arc<Semaphore>]) -> Result<Vec<OwnedSemaphorePermit>, AcquireError> {
    let mut permits = Vec::with_capacity(semaphores.len());
    for semaphore in semaphores {
        permits.push(semaphore.clone().acquire_owned().await?);
    }
    Ok(permits)
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
        slot.permits.lock().clear();
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

    #[tokio::test]
    async fn slots_are_bounded_by_connection_by_principal_and_in_all() {
        let slots = Slots::new(4);
        let connection = |most| Arc::new(Semaphore::new(most));
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
