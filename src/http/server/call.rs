//! A request as its handler gets it, and what all requests share.

use std::sync::Arc;

use futures::future::BoxFuture;
use hyper::{HeaderMap, Response, StatusCode, upgrade::OnUpgrade};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::{
    auth::Client,
    body::Body,
    error::Error,
    options::Options,
    request_body::{self, Limits, Received, Source},
    slots::{Slot, Slots},
};
use crate::{
    assistants,
    budget::{Budget, Reservation},
    contention::shares::{Share, Shares},
    crons,
    http::{
        Services,
        parse::params::{Path, Query},
    },
    id::RunId,
    idempotency,
    runs::{
        self,
        listing::IN_MEMORY,
        request::Requester,
        shared::memory::{ReadMemory, ResponseMemory},
    },
    store, threads,
    tree::members::Access,
    value::{Map, Value},
};

/// What every request needs.
pub struct Shared {
    pub services: Services,
    pub options: Options,
    /// Slots for running handlers.
    pub slots: Slots,
    /// Memory for bodies of requests.
    pub bodies: Arc<Budget>,
    /// Memory for responses that are being made.
    pub responses: Arc<Budget>,
    /// Slots for event streams and deferred responses.
    pub streams: Arc<Semaphore>,
    /// The shares of principals in them.
    pub stream_shares: Shares,
    /// What serves connections that speak another protocol now.
    pub sockets: TaskTracker,
    pub drain: CancellationToken,
    /// Breaks off event streams: the drain is over.
    pub cut: CancellationToken,
}

impl Shared {
    /// What requests need whose handlers call `services`.
    pub fn new(
        services: Services,
        options: Options,
        drain: CancellationToken,
        cut: CancellationToken,
    ) -> Self {
        let share = options.share;
        Self {
            responses: services.runs().states().budget().clone(),
            services,
            slots: Slots::new(options.max_requests, share, options.request_wait),
            bodies: Budget::with_share(options.body_memory, share.of(options.body_memory)),
            streams: Arc::new(Semaphore::new(options.max_streams)),
            sockets: TaskTracker::new(),
            stream_shares: Shares::of_each(share.of(options.max_streams)),
            drain,
            cut,
            options,
        }
    }
}

/// An event stream or a deferred response that is open.
pub struct StreamSlot {
    _slot: OwnedSemaphorePermit,
    _share: Share,
}

/// What answers a request.
pub type RequestHandler = fn(Call) -> BoxFuture<'static, Result<Response<Body>, Error>>;

/// A request that has found its handler.
pub struct Call {
    pub shared: Arc<Shared>,
    /// Who sent the request.
    pub client: Client,
    /// On whose behalf its operations are carried out, with the level that the route takes.
    pub access: Access,
    /// Its id in the log: `x-request-id`, or a new one.
    pub id: Arc<str>,
    pub path: Path,
    pub query: Query,
    pub headers: HeaderMap,
    pub body: Option<Source>,
    /// Its client sees where a body breaks off. In HTTP/1.0 that looks like its end.
    pub shows_breaks: bool,
    /// The connection, once it speaks the protocol that the client asks for.
    pub upgrade: Option<OnUpgrade>,
    /// Whose share of the memory for requests its body takes.
    pub payer: Arc<str>,
    /// The memory of its head, and of its body once that is parsed.
    pub memory: Vec<Reservation>,
    /// The memory of the states it reads, until its response is out.
    pub states: Arc<ResponseMemory>,
    /// In which it is carried out.
    pub slot: Arc<Slot>,
    /// The id of its idempotency key, which a run is to have that the request creates; `None` for a new one.
    pub run_id: Option<RunId>,
    /// An earlier attempt of the request ended without a response that is stored: it may have taken effect.
    pub is_retry: bool,
}

impl Call {
    /// The id, from its idempotency key, of what the request creates and its client does not name. What has this id
    /// was created by an earlier attempt of the request.
    pub fn id_of_key<I: From<Uuid>>(&self) -> Option<I> {
        self.run_id.map(|run| I::from(run.0))
    }

    /// The id of the run that an earlier attempt of the request may have created.
    pub fn earlier_run(&self) -> Option<RunId> {
        self.run_id.filter(|_| self.is_retry)
    }

    pub fn runs(&self) -> &runs::Service {
        self.shared.services.runs()
    }

    /// The service of threads, acting on behalf of the client.
    pub fn threads(&self) -> threads::Service {
        let threads = self.shared.services.threads();
        let threads = threads.on_behalf_of(self.access.clone());
        threads.reading_in(self.read_memory())
    }

    /// The memory for the states that the request reads.
    pub fn read_memory(&self) -> ReadMemory {
        let budget = self.shared.responses.clone();
        ReadMemory::new(budget, self.payer.clone(), &self.states)
    }

    /// Reserves memory for a response that shows stored values of this weight, until it is out.
    ///
    /// # Errors
    /// 503: there is not enough left.
    pub fn reserve_response(&self, weight: u64) -> Result<(), Error> {
        let reserved = self.read_memory().reserve(weight);
        // The response itself keeps it.
        reserved
            .map(drop)
            .map_err(|_| Error::unavailable("Too many responses are being made. Try again later."))
    }

    /// Reserves memory for a response that shows these values, as [`reserve_response`](Self::reserve_response).
    ///
    /// # Errors
    /// 503: there is not enough left.
    pub fn reserve_values<'a>(&self, values: impl Iterator<Item = &'a Value>) -> Result<(), Error> {
        let memory: usize = values.map(Value::memory).sum();
        self.reserve_response(memory as u64 / IN_MEMORY)
    }

    pub fn idempotency(&self) -> &idempotency::Service {
        self.shared.services.idempotency()
    }

    pub fn items(&self) -> &store::Service {
        self.shared.services.items()
    }

    pub fn crons(&self) -> &crons::Service {
        self.shared.services.crons()
    }

    pub fn assistants(&self) -> &assistants::Service {
        self.shared.services.assistants()
    }

    /// On whose behalf the request creates runs.
    pub fn requester(&self) -> Requester {
        Requester {
            request_id: self.id.clone(),
            principal: self.principal(),
            payer: self.payer.clone(),
            user: self.viewer(),
            access: self.access.clone(),
        }
    }

    /// Who sent the request.
    pub fn principal(&self) -> Arc<str> {
        self.client.principal.clone()
    }

    /// Whose threads lists show; `None` for all.
    pub fn viewer(&self) -> Option<Arc<str>> {
        self.access.principal().cloned()
    }

    /// Whose crons lists show; `None` for all, which are also those of principals without a key.
    pub fn viewer_of_crons(&self) -> Option<Arc<str>> {
        self.viewer()
            .filter(|_| !self.client.administers(&self.shared.options.admins))
    }

    /// The JSON body.
    pub async fn json(&mut self) -> Result<Value, Error> {
        self.json_upto(self.shared.options.body_limit).await
    }

    /// The JSON body of at most `limit` bytes.
    pub async fn json_upto(&mut self, limit: usize) -> Result<Value, Error> {
        let Some(body) = self.body.take() else {
            return Err(Error::invalid("Invalid JSON in request body"));
        };
        let body = self.receive(body, limit).await?;
        self.parse(body).await
    }

    /// The JSON body of an operation that needs none: an absent one is an empty object.
    pub async fn json_or_nothing(&mut self) -> Result<Value, Error> {
        let limit = self.shared.options.body_limit;
        let Some(body) = self.body.take() else {
            return Ok(Value::map(Map::new()));
        };
        let body = self.receive(body, limit).await?;
        if body.bytes.is_empty() {
            Ok(Value::map(Map::new()))
        } else {
            self.parse(body).await
        }
    }

    /// Reads a body of at most `limit` bytes. Others have the slot while it comes, without which the request may be
    /// refused then: nothing must have been changed before.
    pub async fn receive(&self, body: Source, limit: usize) -> Result<Received, Error> {
        let (limits, is_there) = (self.limits(), body.is_there());
        let body = body.read(&self.headers, limit, &limits);
        if is_there {
            body.await
        } else {
            self.slot.try_lend(body).await
        }
    }

    async fn parse(&mut self, body: Received) -> Result<Value, Error> {
        let (value, memory) = request_body::parse(body, self.limits()).await?;
        self.memory.push(memory);
        Ok(value)
    }

    /// What bounds the bodies of the client's requests.
    pub fn limits(&self) -> Limits {
        Limits {
            grace: self.shared.options.body_grace,
            pace: self.shared.options.body_pace,
            values: self.shared.options.body_values,
            budget: self.shared.bodies.clone(),
            payer: self.payer.clone(),
        }
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The header `Last-Event-ID`, if it is a text.
    pub fn last_event_id(&self) -> Option<&str> {
        self.header("last-event-id")
    }

    /// A slot for an event stream or a deferred response; it is free again once dropped.
    pub fn stream_slot(&self) -> Result<StreamSlot, Error> {
        let share = self.shared.stream_shares.take(self.viewer().as_ref());
        let share = share.map_err(|_| {
            let detail = "You have as many event streams as one client may have: close some, or let the operator \
                          raise BACKSTITCH_MAX_STREAMS or BACKSTITCH_SHARE";
            Error::new(StatusCode::TOO_MANY_REQUESTS, detail).with_code("too_many_streams")
        })?;
        let slot = self.shared.streams.clone().try_acquire_owned();
        let slot = slot
            .map_err(|_| Error::unavailable("Too many event streams are open. Try again later."))?;
        Ok(StreamSlot {
            _slot: slot,
            _share: share,
        })
    }
}
