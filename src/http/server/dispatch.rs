//! One request, from its parsed head to its response.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::{
    Method, Request, Response, StatusCode, Version,
    body::{Body as _, Frame, Incoming, SizeHint},
    header::{CONNECTION, CONTENT_LENGTH, HeaderValue, LOCATION, ORIGIN},
    http::{request::Parts, uri::PathAndQuery},
};
use tokio::task::JoinError;

use super::{
    access, auth,
    body::{self, Body},
    call::{Call, Shared},
    connection::{Activity, Busy},
    error::Error,
    request_body::Source,
    router::{Found, Routes},
};
use crate::http::{idempotency, parse::params::Query};

/// Takes each request to its handler.
pub struct Dispatcher {
    shared: Arc<Shared>,
    routes: Routes,
}

impl Dispatcher {
    pub fn new(shared: Shared) -> Self {
        Self {
            shared: Arc::new(shared),
            routes: Routes::new(),
        }
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The response to a request.
    pub async fn handle(
        self: Arc<Self>,
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

        let cors = &self.shared.options.cors;
        let mut response = match cors.preflight(request.method(), request.headers()) {
            Some(response) => response,
            None => self.respond(request).await,
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

    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        let (parts, incoming) = request.into_parts();
        let client = match auth::client(&self.shared.options.keys, &parts.headers, parts.uri.path())
        {
            Ok(client) => client,
            Err(error) => return error.into_response(),
        };
        let (handler, path) = match self.routes.find(&parts.method, parts.uri.path()) {
            Found::Route(handler, path) => (handler, path),
            Found::Nothing => {
                let there = without_slash(&self.routes, &parts);
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
            shared: self.shared.clone(),
            client,
            path,
            query: Query::of(parts.uri.query()),
            headers: parts.headers,
            body: Some(Source::Coming(incoming)),
            run_id: None,
        };
        // Followers of the thread's events need not wait for their next poll.
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
        let services = self.shared.services.clone();
        let work = async move {
            access::admit(&call, &parts.method, parts.uri.path()).await?;
            let response = match key {
                None => handler(call).await,
                Some(key) => {
                    let target = parts.uri.path_and_query().map_or("", PathAndQuery::as_str);
                    let request = idempotency::Request::new(key, parts.method, target);
                    Box::pin(idempotency::once(handler, call, request)).await
                }
            };
            if let Some(thread) = changed {
                services.threads().notify(thread);
            }
            response
        };
        finish(tokio::spawn(work).await)
    }
}

/// Redirects a client that put a slash behind a path; method and body stay as they are.
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

/// The response of a handler that ran on a task of its own.
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

/// The body of a response; its request is in progress until the body is written or dropped.
pub struct Guarded {
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
