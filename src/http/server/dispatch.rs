//! One request, from its parsed head to its response.

use std::sync::Arc;

use bytes::Bytes;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, Version,
    body::Body as _,
    header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, LOCATION, ORIGIN},
    http::{request::Parts, uri::PathAndQuery},
    upgrade::OnUpgrade,
};
use tokio::{task::JoinError, time::Instant};
use tracing::Instrument;
use uuid::Uuid;

use super::{
    attributed::attribute,
    auth::{self, Client},
    bodies::RequestBody,
    body::{self, Body},
    call::{Call, Shared},
    callers::Callers,
    connection::Connection,
    error::Error,
    foreign::Foreign,
    hosts,
    own::OwnRoutes,
    paced::Paced,
    panics::panic_text,
    progress::{Guarded, Progress},
    request_body::{Source, Unread},
    request_line::RequestLine,
    router::{Found, Routes},
    slots::{self, Slot},
    weigh::{Unanswered, check_unread, weigh, weigh_rest},
};
use crate::{
    budget::Reservation,
    contention::shares::on_behalf_of,
    http::{idempotency, parse::params::Query, routes::TABLE},
    metrics::Served,
    runs::shared::memory::ResponseMemory,
    trace,
};

/// About what a request takes in memory besides its head and its body.
const REQUEST_MEMORY: usize = 16 << 10;

/// How requests of the program's own routes are called in metrics and traces.
const OWN_ROUTES: &str = "(routes of the program)";

/// Takes each request to its handler.
pub struct Dispatcher {
    inner: Arc<Inner>,
    /// The same within the layers of the program, if it has any.
    layered: Option<Foreign>,
    callers: Callers,
}

/// What is within the layers of the program.
struct Inner {
    shared: Arc<Shared>,
    routes: Routes,
}

/// What a request takes with it through the layers of the program.
#[derive(Clone)]
struct Passage {
    connection: Connection,
    id: Arc<str>,
}

impl Dispatcher {
    pub fn new(shared: Shared) -> Self {
        let inner = Arc::new(Inner {
            shared: Arc::new(shared),
            routes: Routes::new(TABLE),
        });
        let service = || {
            let inner = inner.clone();
            Foreign::of(move |mut request| {
                let passage = request.extensions_mut().remove::<Passage>();
                let inner = inner.clone();
                Box::pin(async move {
                    match passage {
                        Some(Passage { connection, id }) => {
                            inner.carry_out(connection, request, id).await
                        }
                        // A layer has made a request of its own.
                        None => Error::internal(
                            &"a layer of the program dropped the extensions of a request",
                        )
                        .into_response(),
                    }
                })
            })
        };
        Self {
            layered: inner.shared.options.own.layered(service),
            inner,
            callers: Callers::default(),
        }
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// The response to a request.
    ///
    /// # Errors
    /// None is due: the client lets too many others wait.
    pub async fn handle(
        self: Arc<Self>,
        connection: Connection,
        request: Request<RequestBody>,
    ) -> Result<Response<Guarded>, Unanswered> {
        let options = &self.shared().options;
        let version = request.version();
        let of_connection = connection.activity.progress().clone();
        let peer = connection.peer.clone();
        let busy = connection.activity.enter(version == Version::HTTP_2);
        let origin = request.headers().get(ORIGIN).cloned();
        let is_head = request.method() == Method::HEAD;
        let id = request_id(request.headers());
        let line = RequestLine::of(&request, &id);
        let closes = request.headers().get(CONNECTION);
        let closes = closes.is_some_and(|value| value == "close");

        let cors = &options.cors;
        let mut response = if let Err(error) = self.callers.check(options, &request) {
            error.into_response()
        } else if let Some(response) = cors.preflight(request.method(), request.headers()) {
            response
        } else {
            match connection.expect(request) {
                Ok(request) => self.respond(connection, request, id).await,
                Err(error) => error.into_response(),
            }
        };
        line.log(&response);
        response = weigh_rest(response, &self.shared().responses, &peer).await?;
        cors.mark(origin.as_ref(), response.headers_mut());
        if closes || version == Version::HTTP_2 {
            response.headers_mut().remove(CONNECTION);
        }
        if is_head {
            if let Some(length) = response.body().size_hint().exact() {
                let length = HeaderValue::from(length);
                // Routes of the program know the length of what they would send.
                response
                    .headers_mut()
                    .entry(CONTENT_LENGTH)
                    .or_insert(length);
            }
            *response.body_mut() = body::full(Bytes::new());
        }
        let progress = Progress::of_stream().unwrap_or(of_connection);
        let slowest = options.slowest();
        Ok(response.map(|body| Guarded::new(body, busy, progress, slowest)))
    }

    async fn respond(
        &self,
        connection: Connection,
        mut request: Request<RequestBody>,
        id: Arc<str>,
    ) -> Response<Body> {
        let begin = Instant::now();
        let path = request.uri().path();
        let own = self.shared().options.own.routes_of(path);
        let path = own.map_or_else(|| self.inner.routes.template(path), |_| OWN_ROUTES);
        let method = method_name(request.method());
        let traceparent = request.headers().get("traceparent");
        let traceparent = traceparent.and_then(|text| text.to_str().ok());
        let span = trace::request(method, path, traceparent);
        let response = if let Some(layered) = &self.layered {
            let passage = Passage { connection, id };
            request.extensions_mut().insert(passage);
            layered.respond(request).instrument(span.clone()).await
        } else {
            let work = self.inner.carry_out(connection, request, id);
            work.instrument(span.clone()).await
        };
        let status = response.status().as_u16();
        trace::responded(&span, status);
        let served = Served {
            path,
            method,
            status,
        };
        let metrics = self.shared().services.runs().metrics();
        metrics.count_response(served, begin.elapsed());
        response
    }
}

impl Inner {
    async fn carry_out(
        &self,
        connection: Connection,
        request: Request<RequestBody>,
        id: Arc<str>,
    ) -> Response<Body> {
        let (mut parts, incoming) = request.into_parts();
        let incoming = Unread::new(incoming);
        let options = &self.shared.options;
        let path = parts.uri.path();
        let own = options.own.routes_of(path);
        let is_public = match own {
            Some(own) => own.is_public,
            None => options.is_public(path),
        };
        let client = if is_public {
            Client::local()
        } else {
            let authentication = options.own.authentication.as_ref();
            // The program may take its time, for whoever sends something.
            let may_wait = authentication.filter(|_| !hosts::is_probe(path));
            let head = may_wait.map(|_| self.reserve_head(&connection.peer, &parts));
            let _head = match head.transpose() {
                Ok(head) => head,
                Err(error) => return error.into_response(),
            };
            match auth::authenticate(authentication, &options.keys, &parts).await {
                Ok(client) => client,
                Err(error) => return error.into_response(),
            }
        };
        if let Some(own) = own {
            let work = self.carry_out_own(own, connection, (client, id), parts, incoming);
            return Box::pin(work).await.unwrap_or_else(Error::into_response);
        }
        let upgrade = parts.extensions.remove::<OnUpgrade>();
        let (route, path) = match self.routes.find(&parts.method, parts.uri.path()) {
            Found::Route(route, path) => (route, path),
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
        let admins = &self.shared.options.admins;
        let access = match route.right.access(&client, &id, admins) {
            Ok(access) => access,
            Err(error) => return error.into_response(),
        };
        if client.only_reads() && !slots::changes_nothing(&parts, route.path, upgrade.is_some()) {
            return refuse_change(&client, &id).into_response();
        }
        let handler = route.handler;
        let payer = payer(&client, &connection);
        let (slot, memory) = match self.admit(&connection, &client, &payer, &parts).await {
            Ok(admitted) => admitted,
            Err(error) => return error.into_response(),
        };
        let mut headers = parts.headers;
        // HTTP/2 names the host before the path, and handlers know one place.
        if let Some(authority) = parts.uri.authority()
            && !headers.contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            headers.insert(HOST, host);
        }
        let states = Arc::<ResponseMemory>::default();
        let acting = access.clone();
        let call = Call {
            shared: self.shared.clone(),
            payer: payer.clone(),
            memory,
            states: states.clone(),
            slot: slot.clone(),
            client,
            access,
            id,
            path,
            query: Query::of(parts.uri.query()),
            headers,
            body: Some(Source::Coming(incoming)),
            shows_breaks: parts.version != Version::HTTP_10,
            upgrade,
            run_id: None,
            is_retry: false,
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
        let only_reads = slots::only_reads(&parts.method, route.path);
        let services = self.shared.services.clone();
        let viewer = call.viewer();
        let work = async move {
            let response = match key {
                None => handler(call).await,
                Some(key) => {
                    let target = parts.uri.path_and_query().map_or("", PathAndQuery::as_str);
                    let request = idempotency::Request::new(key, parts.method, target, route.path);
                    Box::pin(idempotency::once(handler, call, request)).await
                }
            };
            if let Some(thread) = changed {
                services.threads().notify(thread);
            }
            if only_reads && response.is_ok() {
                // What was read while access was withdrawn is not shown.
                services.threads().on_behalf_of(acting).confirm().await?;
            }
            response
        };
        // One request, up to the head of its response; what is written of its body then are steps of their own.
        let work = on_behalf_of(viewer.clone(), work);
        let ended = slots::execute(slot, only_reads, work).await;
        let reserved = states.lock().take();
        let budget = &self.shared.responses;
        // Who asks whether the server lives is always told.
        let may_refuse = only_reads && !hosts::is_probe(route.path);
        let response = weigh(finish(ended), budget, &payer, may_refuse, reserved).await;
        attribute(response, viewer)
    }

    /// The response of a route of the program.
    async fn carry_out_own(
        &self,
        own: &OwnRoutes,
        connection: Connection,
        (client, id): (Client, Arc<str>),
        mut parts: Parts,
        incoming: Unread,
    ) -> Result<Response<Body>, Error> {
        let only_reads = matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
        if client.only_reads() && !only_reads {
            return Err(refuse_change(&client, &id));
        }
        // What somebody sends who has left HTTP may change something.
        if client.only_reads() && parts.extensions.get::<OnUpgrade>().is_some() {
            return Err(refuse_change(&client, &id));
        }
        let payer = payer(&client, &connection);
        let (slot, memory) = self.admit(&connection, &client, &payer, &parts).await?;
        if client.is_known {
            parts.extensions.insert(client.to_principal());
        }
        let options = &self.shared.options;
        let none = self.shared.bodies.reserve(&payer, 0);
        let none = none.map_err(|_| Error::unavailable("Too many requests. Try again later."))?;
        let body = incoming.take().map(|body| {
            let body = body.limited(options.body_limit);
            let pace = options.body_pace as f64;
            RequestBody::new(Paced::new(body, options.body_grace, pace, none))
        });
        let body = body.unwrap_or_else(RequestBody::empty);
        let request = Request::from_parts(parts, body);
        let service = own.service.clone();
        let work = async move {
            let response = service.respond(request).await;
            drop(memory);
            Ok(response)
        };
        Ok(finish(slots::execute(slot, only_reads, work).await))
    }

    /// The memory of the head of a request.
    fn reserve_head(&self, payer: &Arc<str>, parts: &Parts) -> Result<Reservation, Error> {
        let headers = parts.headers.iter();
        let head: usize = headers
            .map(|(name, value)| name.as_str().len() + value.len())
            .sum();
        let bytes = REQUEST_MEMORY + 2 * (head + parts.uri.path().len());
        let memory = self.shared.bodies.reserve(payer, bytes);
        memory.map_err(|_| Error::unavailable("Too many requests. Try again later."))
    }

    /// Waits until a request may be worked on. While it waits, its head takes memory, and nothing of it happens.
    async fn admit(
        &self,
        connection: &Connection,
        client: &Client,
        payer: &Arc<str>,
        parts: &Parts,
    ) -> Result<(Arc<Slot>, Vec<Reservation>), Error> {
        let slots = &self.shared.slots;
        if hosts::is_probe(parts.uri.path()) {
            return Ok((
                slots.take_for_probe(&connection.slots).await?.into(),
                vec![],
            ));
        }
        let memory = self.reserve_head(payer, parts)?;
        // Of those who are not known each address is somebody, unless the server is open to everybody.
        let is_somebody = client.is_known || !self.shared.options.is_open();
        let principal = is_somebody.then_some(payer);
        let slot = slots.take(&connection.slots, principal).await?;
        // Those that waited for their turn with it may not be read.
        check_unread(&self.shared.responses, payer)?;
        Ok((slot.into(), vec![memory]))
    }
}

/// Whose share of the memory for requests a request takes.
fn payer(client: &Client, connection: &Connection) -> Arc<str> {
    if client.is_known {
        client.principal.clone()
    } else {
        connection.peer.clone()
    }
}

/// 403 for who may only read, in the log too.
fn refuse_change(client: &Client, request: &Arc<str>) -> Error {
    let principal = &client.principal;
    tracing::info!(%principal, request_id = %request, "access was refused: the principal may only read");
    Error::reads_only()
}

/// The name of a method in metrics: clients may send any.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// The id of a request in the log.
fn request_id(headers: &HeaderMap) -> Arc<str> {
    let named = headers.get("x-request-id").and_then(|id| id.to_str().ok());
    match named.filter(|id| !id.is_empty()) {
        Some(id) => id.into(),
        None => Uuid::new_v4().to_string().into(),
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
