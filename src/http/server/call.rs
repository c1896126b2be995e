//! A request as its handler gets it, and what all requests share.

use std::sync::Arc;

use futures::future::BoxFuture;
use hyper::{HeaderMap, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{
    auth::Client,
    body::Body,
    error::Error,
    options::Options,
    request_body::{self, Source},
};
use crate::{
    assistants,
    http::{
        Services,
        parse::params::{Path, Query},
    },
    id::RunId,
    idempotency, runs, threads,
    value::{Map, Value},
};

/// What every request needs.
pub struct Shared {
    pub services: Services,
    pub options: Options,
    /// Slots for event streams and deferred responses.
    pub streams: Arc<Semaphore>,
    pub drain: CancellationToken,
}

/// What answers a request.
pub type RequestHandler = fn(Call) -> BoxFuture<'static, Result<Response<Body>, Error>>;

/// A request that has found its handler.
pub struct Call {
    pub shared: Arc<Shared>,
    /// Who sent the request.
    pub client: Client,
    pub path: Path,
    pub query: Query,
    pub headers: HeaderMap,
    pub body: Option<Source>,
    /// The id a run is to have that the request creates; `None` for a new one.
    pub run_id: Option<RunId>,
}

impl Call {
    pub fn runs(&self) -> &runs::Service {
        self.shared.services.runs()
    }

    pub fn threads(&self) -> &threads::Service {
        self.shared.services.threads()
    }

    pub fn idempotency(&self) -> &idempotency::Service {
        self.shared.services.idempotency()
    }

    pub fn assistants(&self) -> &assistants::Service {
        self.shared.services.assistants()
    }

    /// Who sent the request.
    pub fn principal(&self) -> Arc<str> {
        self.client.principal.clone()
    }

    /// Whose threads lists show; `None` for all.
    pub fn viewer(&self) -> Option<Arc<str>> {
        self.client.is_known.then(|| self.principal())
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
        let grace = self.shared.options.body_grace;
        let bytes = body.read(&self.headers, limit, grace).await?;
        request_body::parse(&bytes)
    }

    /// The JSON body of an operation that needs none: an absent one is an empty object.
    pub async fn json_or_nothing(&mut self) -> Result<Value, Error> {
        let limit = self.shared.options.body_limit;
        let Some(body) = self.body.take() else {
            return Ok(Value::map(Map::new()));
        };
        let grace = self.shared.options.body_grace;
        let bytes = body.read(&self.headers, limit, grace).await?;
        match bytes.is_empty() {
            true => Ok(Value::map(Map::new())),
            false => request_body::parse(&bytes),
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
    pub fn stream_slot(&self) -> Result<OwnedSemaphorePermit, Error> {
        let slot = self.shared.streams.clone().try_acquire_owned();
        slot.map_err(|_| Error::unavailable("Too many event streams are open. Try again later."))
    }
}
