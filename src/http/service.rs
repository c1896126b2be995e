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
    header::{CONNECTION, CONTENT_LENGTH, HeaderValue, ORIGIN},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{
    Api, Error, Options,
    body::{self, Body},
    params::{Path, Query},
    router::{Found, Routes},
    socket::{Activity, Busy},
};
use crate::value::Value;

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
    pub path: Path,
    pub query: Query,
    pub headers: HeaderMap,
    pub body: Option<Incoming>,
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
        let bytes = body::read(&self.headers, body, limit, grace).await?;
        body::parse(&bytes)
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
    let (handler, path) = match shared.routes.find(&parts.method, parts.uri.path()) {
        Found::Handler(handler, path) => (handler, path),
        Found::Nothing => return Error::not_found().into_response(),
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
        path,
        query: Query::of(parts.uri.query()),
        headers: parts.headers,
        body: Some(incoming),
    };
    // On a task of its own: a client that hangs up must not cut off what the request has begun
    // (a run claimed and never executed), and a panic must end here.
    match tokio::spawn(handler(call)).await {
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
