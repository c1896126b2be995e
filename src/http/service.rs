//! One request: from the parsed head to the marked answer.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, Version,
    body::{Body as _, Frame, Incoming, SizeHint},
    header::{CONNECTION, CONTENT_LENGTH, HeaderValue, LOCATION, ORIGIN},
    http::{request::Parts, uri::PathAndQuery},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinError,
};
use tokio_util::sync::CancellationToken;

use super::{
    Api, Error, Options,
    auth::{self, Client},
    body::{self, Body, Source},
    idempotency,
    params::{Path, Query},
    router::{Found, Routes},
    socket::{Activity, Busy},
};
use crate::{
    id::RunId,
    value::{Map, Value},
};

/// What every request needs.
pub(super) struct Shared {
    pub api: Arc<dyn Api>,
    pub options: Options,
    pub routes: Routes,
    /// Places for event streams and waiting answers.
    pub streams: Arc<Semaphore>,
    pub drain: CancellationToken,
}

/// A request that has found its handler.
pub(super) struct Call {
    pub shared: Arc<Shared>,
    /// Whose request it is.
    pub client: Client,
    pub path: Path,
    pub query: Query,
    pub headers: HeaderMap,
    pub body: Option<Source>,
    /// The id a run is to have that the request creates; `None` for a new one.
    pub run_id: Option<RunId>,
}

impl Call {
    pub fn api(&self) -> &dyn Api {
        self.shared.api.as_ref()
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
        body::parse(&bytes)
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
            false => body::parse(&bytes),
        }
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// A place among the event streams.
    pub fn stream_place(&self) -> Result<OwnedSemaphorePermit, Error> {
        let place = self.shared.streams.clone().try_acquire_owned();
        place.map_err(|_| Error::unavailable("Too many event streams are open. Try again later."))
    }
}

/// Answers a request.
pub(super) async fn handle(
    shared: Arc<Shared>,
    activity: Arc<Activity>,
    request: Request<Incoming>,
) -> Result<Response<Guarded>, Infallible> {
    let version = request.version();
    let busy = activity.enter(version == Version::HTTP_2);
    let origin = request.headers().get(ORIGIN).cloned();
    let is_head = request.method() == Method::HEAD;
    let closes = request
        .headers()
        .get(CONNECTION)
        .is_some_and(|value| value == "close");

    let cors = &shared.options.cors;
    let mut response = match cors.preflight(request.method(), request.headers()) {
        Some(response) => response,
        None => answer(&shared, request).await,
    };
    cors.mark(origin.as_ref(), response.headers_mut());
    if closes || version == Version::HTTP_2 {
        response.headers_mut().remove(CONNECTION);
    }
    if is_head {
        if let Some(length) = response.body().size_hint().exact() {
            let length = HeaderValue::from(length);
            response.headers_mut().insert(CONTENT_LENGTH, length);
        }
        *response.body_mut() = body::full(Bytes::new());
    }
    Ok(response.map(|body| Guarded { body, _busy: busy }))
}

async fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let (parts, incoming) = request.into_parts();
    let client = match auth::client(&shared.options.keys, &parts.headers, parts.uri.path()) {
        Ok(client) => client,
        Err(error) => return error.into_response(),
    };
    let (handler, path) = match shared.routes.find(&parts.method, parts.uri.path()) {
        Found::Handler(handler, path) => (handler, path),
        Found::Nothing => {
            let there = without_slash(&shared.routes, &parts);
            return there.unwrap_or_else(|| Error::not_found().into_response());
        }
        Found::OtherMethods(allow) => {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            let mut response = Error::new(status, "Method Not Allowed").into_response();
            if let Ok(allow) = HeaderValue::from_str(&allow) {
                response.headers_mut().insert("allow", allow);
            }
            return response;
        }
    };
    let call = Call {
        shared: shared.clone(),
        client,
        path,
        query: Query::of(parts.uri.query()),
        headers: parts.headers,
        body: Some(Source::Coming(incoming)),
        run_id: None,
    };
    // Who follows the thread's events need not wait for its next look.
    let changed = match parts.method {
        Method::GET | Method::HEAD => None,
        _ => call.path.thread().ok(),
    };
    let key = match idempotency::key(&parts.method, &call.headers) {
        Ok(key) => key,
        Err(error) => return error.into_response(),
    };
    // On a task of its own: a client that hangs up must not cut off what the request has begun
    // (a run claimed and never executed), and a panic must end here.
    let api = shared.api.clone();
    let work = async move {
        auth::admit(&call, &parts.method, parts.uri.path()).await?;
        let answer = match key {
            None => handler(call).await,
            Some(key) => {
                let target = parts.uri.path_and_query().map_or("", PathAndQuery::as_str);
                let request = idempotency::Request::new(key, parts.method, target);
                Box::pin(idempotency::once(handler, call, request)).await
            }
        };
        if let Some(thread) = changed {
            api.told_of(thread);
        }
        answer
    };
    finish(tokio::spawn(work).await)
}

/// Sends a client on that put a slash behind a path, with method and body as they are.
fn without_slash(routes: &Routes, parts: &Parts) -> Option<Response<Body>> {
    let path = parts.uri.path().strip_suffix('/')?;
    if matches!(routes.find(&parts.method, path), Found::Nothing) {
        return None;
    }
    let there = match parts.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut response = body::empty(StatusCode::TEMPORARY_REDIRECT);
    let there = HeaderValue::try_from(there).ok()?;
    response.headers_mut().insert(LOCATION, there);
    Some(response)
}

/// The answer of a handler that ran on a task of its own.
fn finish(ended: Result<Result<Response<Body>, Error>, JoinError>) -> Response<Body> {
    match ended {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => error.into_response(),
        Err(failure) => {
            if let Ok(panic) = failure.try_into_panic() {
                tracing::error!(panic = panic_text(panic.as_ref()), "a handler panicked");
            }
            body::text(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error")
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(owned).unwrap_or("no text")
}

/// The body of an answer; its request is in progress until it is sent or dropped.
pub(super) struct Guarded {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for Guarded {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
