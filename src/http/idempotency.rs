//! `Idempotency-Key`: a POST or PUT that is sent again within a day gets the answer of the first
//! time and has no further effect.
//!
//! Answers below 500 are kept whole. Of an answer that takes as long as a run, that run is noted
//! first, and the same request joins it; the whole answer is kept at its end, unless it is long or
//! its client left. Whoever sends a key while the first request is under way waits for its answer.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    HeaderMap, Method, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_LOCATION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION},
};
use xxhash_rust::xxh3::Xxh3;

use super::{
    render,
    runs::{self as handlers, Replay},
    server::{
        body::{self, Body},
        call::{Call, Handler},
        error::Error,
        request_body::Source,
        sse,
    },
};
use crate::{
    checkpoint::codec,
    fail_point,
    id::{RunId, ThreadId},
    runs::{
        Service,
        keys::{Begun, Kept, Key},
        request::{Join, Target},
    },
    stream::{FrameSource, write_frame},
    value::{Map, Value},
};

/// Most characters of a key.
const LONGEST: usize = 255;
/// Headers that are kept with an answer.
const KEPT: [HeaderName; 7] = [
    CONTENT_TYPE,
    CONTENT_LOCATION,
    LOCATION,
    CACHE_CONTROL,
    HeaderName::from_static("x-accel-buffering"),
    HeaderName::from_static("x-pagination-total"),
    HeaderName::from_static("x-pagination-next"),
];
/// Most bytes of a stream that are kept.
const STREAM_MAX: usize = 1 << 20;
/// How long after the end of a run the answer to its first request is waited for, and how often
/// it is looked for.
const GRACE: (u32, Duration) = (20, Duration::from_millis(50));
/// Says that an answer is one that was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// What tells requests with one key apart, before the body is there.
pub(super) struct Request {
    key: String,
    hash: Xxh3,
    creates: Option<Creates>,
}

/// What a request that creates a run is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Creates {
    Row,
    Stream,
    Wait,
}

impl Creates {
    fn of(target: &str) -> Option<Self> {
        let path = target.split('?').next().unwrap_or_default();
        let ends = [
            ("/runs", Self::Row),
            ("/runs/stream", Self::Stream),
            ("/runs/wait", Self::Wait),
        ];
        let found = ends.into_iter().find(|(end, _)| path.ends_with(end));
        found.map(|(_, creates)| creates)
    }
}

impl Request {
    pub fn new(key: String, method: Method, target: &str) -> Self {
        let mut hash = Xxh3::new();
        for part in [method.as_str(), target] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        Self {
            key,
            hash,
            creates: Creates::of(target),
        }
    }
}

/// The key of a request that has one and may have one.
pub(super) fn key(method: &Method, headers: &HeaderMap) -> Result<Option<String>, Error> {
    if !matches!(*method, Method::POST | Method::PUT) {
        return Ok(None);
    }
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    let good = (1..=LONGEST).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if good && headers.get_all("idempotency-key").iter().count() == 1 {
        return Ok(Some(text.to_owned()));
    }
    let detail =
        format!("Invalid Idempotency-Key: one, of 1 to {LONGEST} visible ASCII characters");
    Err(Error::invalid(detail).coded())
}

/// Carries a request out, unless it was before.
pub(super) async fn once(
    handler: Handler,
    mut call: Call,
    mut request: Request,
) -> Result<Response<Body>, Error> {
    let options = &call.shared.options;
    let limit = options.body_limit.max(options.edit_limit);
    let bytes = match call.body.take() {
        Some(body) => body.read(&call.headers, limit, options.body_grace).await?,
        None => Bytes::new(),
    };
    request.hash.update(&bytes);
    let hash = request.hash.digest128().to_be_bytes();
    let key = Key {
        principal: call.principal(),
        text: request.key.into(),
    };
    let held = match call.idempotency().begin_once(key.clone(), hash).await? {
        Begun::Go(held) => held,
        Begun::Answered(answer) => return again(&call, key, hash, &answer).await,
        Begun::Other => {
            let detail = "The Idempotency-Key belongs to another request: take a new one";
            return Err(Error::invalid(detail).with_code("idempotency_mismatch"));
        }
    };
    // Whoever carried this out before died over it, maybe after it created the run.
    let orphan = match request.creates.filter(|_| held.again) {
        Some(creates) => orphan(&call, held.run, creates, (key, hash)).await?,
        None => None,
    };
    call.body = Some(Source::Read(bytes));
    call.run_id = Some(held.run);
    let response = match orphan {
        Some(response) => response,
        None => match handler(call).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        },
    };
    if response.status().is_server_error() {
        return Ok(response);
    }
    let later = held.later();
    let (mut response, answer) = taken_apart(response).await;
    if let (Some(replay), Some(later)) = (response.extensions().get().copied(), later) {
        let head = kept_head(&response);
        response = response.map(|body| kept_at_its_end(body, later, head, replay));
    }
    fail_point!("http::before_keep");
    if let Err(error) = held.keep(codec::encode(&answer)).await {
        tracing::warn!(%error, "an answer could not be kept for its idempotency key");
    }
    Ok(response)
}

/// The answer, and what is kept of it.
async fn taken_apart(response: Response<Body>) -> (Response<Body>, Value) {
    let mut kept = kept_head(&response);
    if let Some(replay) = response.extensions().get::<Replay>().copied() {
        let (word, run) = match replay {
            Replay::Stream(run) => ("stream", run),
            Replay::Wait(run) => ("wait", run),
        };
        kept.insert("join", word);
        kept.insert("thread", run.thread.to_string());
        kept.insert("run", run.run.to_string());
        return (response, Value::map(kept));
    }
    let (head, body) = response.into_parts();
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(never) => match never {},
    };
    kept.insert("body", Value::Bytes(bytes.clone()));
    let response = Response::from_parts(head, body::full(bytes));
    (response, Value::map(kept))
}

/// Status and headers of an answer as they are kept.
fn kept_head(response: &Response<Body>) -> Map {
    let mut kept = Map::new();
    kept.insert("status", i64::from(response.status().as_u16()));
    for name in &KEPT {
        if let Some(text) = response.headers().get(name).and_then(|v| v.to_str().ok()) {
            kept.insert(name.as_str(), text);
        }
    }
    kept
}

/// The body of an answer that takes as long as its run, which is kept whole once it is: the run may
/// be gone when the request comes again.
fn kept_at_its_end(mut body: Body, later: Kept, mut head: Map, replay: Replay) -> Body {
    let stream = async_stream::stream! {
        let mut whole = Some(Vec::new());
        while let Some(Ok(frame)) = body.frame().await {
            if let (Some(data), Some(bytes)) = (frame.data_ref(), &mut whole) {
                bytes.extend_from_slice(data);
            }
            if let Replay::Stream(_) = replay {
                whole = whole.filter(|bytes| bytes.len() <= STREAM_MAX);
            }
            yield Ok(frame);
        }
        let Some(whole) = whole else { return };
        let begin = match replay {
            // Line breaks told that the answer is still to come.
            Replay::Wait(_) => whole.iter().position(|byte| *byte != b'\n').unwrap_or(0),
            Replay::Stream(_) => 0,
        };
        head.insert("body", Value::Bytes(Bytes::from(whole).slice(begin..)));
        if let Err(error) = later.replace(codec::encode(&Value::map(head))).await {
            tracing::warn!(%error, "an answer could not be kept for its idempotency key");
        }
    };
    StreamBody::new(stream).boxed_unsync()
}

/// Puts kept headers on an answer.
fn restore_headers(response: &mut Response<Body>, kept: &Value) {
    for name in KEPT {
        let text = kept.get(name.as_str()).and_then(Value::as_str);
        if let Some(value) = text.and_then(|text| HeaderValue::from_str(text).ok()) {
            response.headers_mut().insert(name, value);
        }
    }
}

/// Gives an answer again.
async fn again(
    call: &Call,
    key: Key,
    hash: [u8; 16],
    answer: &[u8],
) -> Result<Response<Body>, Error> {
    let kept = codec::decode(codec::BINCODE, answer).map_err(|error| Error::internal(&error))?;
    let text = |name: &str| kept.get(name).and_then(Value::as_str);
    if let (Some(word), Some(thread), Some(run)) = (text("join"), text("thread"), text("run")) {
        let (Ok(thread), Ok(run)) = (thread.parse(), run.parse()) else {
            return Err(Error::internal(&"a kept answer names no run"));
        };
        let mut response = join(call, word, Target { thread, run }, (key, hash)).await?;
        restore_headers(&mut response, &kept);
        mark(&mut response);
        return Ok(response);
    }
    let status = kept.get("status").and_then(Value::as_u64);
    let status = status.and_then(|status| StatusCode::from_u16(u16::try_from(status).ok()?).ok());
    let (Some(status), Some(bytes)) = (status, kept.get("body").and_then(Value::as_bytes)) else {
        return Err(Error::internal(&"a kept answer cannot be read"));
    };
    let mut response = Response::new(body::full(bytes.clone()));
    *response.status_mut() = status;
    restore_headers(&mut response, &kept);
    mark(&mut response);
    Ok(response)
}

/// The answer to a request whose run exists and whose answer nobody kept.
async fn orphan(
    call: &Call,
    run: RunId,
    creates: Creates,
    of: (Key, [u8; 16]),
) -> Result<Option<Response<Body>>, Error> {
    let thread = match call.path.has_thread() {
        true => call.path.thread()?,
        false => ThreadId::of_run(run),
    };
    let run = Target { thread, run };
    let Some(row) = call.runs().find_run(run.thread, run.run).await? else {
        return Ok(None);
    };
    let (mut response, replay) = match creates {
        Creates::Stream => (join(call, "stream", run, of).await?, Replay::Stream(run)),
        Creates::Wait => (join(call, "wait", run, of).await?, Replay::Wait(run)),
        Creates::Row => {
            let mut response = body::json(StatusCode::OK, &Value::map(render::run(&row)));
            let named = call.path.has_thread().then_some(run.thread);
            handlers::put_location(response.headers_mut(), named, run);
            mark(&mut response);
            return Ok(Some(response));
        }
    };
    response.extensions_mut().insert(replay);
    mark(&mut response);
    Ok(Some(response))
}

/// Joins a run whose whole answer is not kept: by its events, if they are there from the first one
/// on, or by its end.
async fn join(
    call: &Call,
    word: &str,
    run: Target,
    of: (Key, [u8; 16]),
) -> Result<Response<Body>, Error> {
    if word == "wait" {
        return handlers::join_run(call, run, false).await;
    }
    let publisher = call.runs().stream(run.run);
    if publisher.is_some_and(|publisher| publisher.resumable()) {
        let join = Join {
            last_event_id: Some("-".into()),
            ..Join::default()
        };
        return handlers::watch(call, run, join).await;
    }
    let slot = call.stream_slot()?;
    let end = handlers::join::result(call.runs(), run).await?;
    let end = end.unwrap_or_else(handlers::join::not_found);
    let idempotency = call.idempotency().clone();
    let answer = async move {
        let end = end.await;
        // Who was first is about to have read all of it.
        for _ in 0..GRACE.0 {
            match whole_answer(&idempotency, of.clone()).await {
                Some(bytes) => return bytes,
                None => tokio::time::sleep(GRACE.1).await,
            }
        }
        outcome(run, &end)
    };
    let frames = Box::new(Late(Some(answer.boxed())));
    let heartbeat = call.shared.options.heartbeat;
    let drain = call.shared.drain.clone();
    Ok(sse::respond(frames, None, heartbeat, drain, slot))
}

/// The body that is kept by now.
async fn whole_answer(service: &Service, (key, hash): (Key, [u8; 16])) -> Option<Bytes> {
    let Ok(Begun::Answered(answer)) = service.begin_once(key, hash).await else {
        return None;
    };
    let kept = codec::decode(codec::BINCODE, &answer).ok()?;
    kept.get("body").and_then(Value::as_bytes).cloned()
}

/// A stream that tells no more than how a run ended.
fn outcome(run: Target, end: &Value) -> Bytes {
    let mut bytes = vec![];
    let about = Map::from([
        ("run_id", run.run.to_string().into()),
        ("attempt", 1.into()),
    ]);
    let about = Value::map(about).to_json();
    write_frame(&mut bytes, "metadata", about.as_bytes(), None);
    match end.get("__error__") {
        Some(error) => write_frame(&mut bytes, "error", error.to_json().as_bytes(), None),
        None => write_frame(&mut bytes, "values", end.to_json().as_bytes(), None),
    }
    bytes.into()
}

/// A stream whose frames come all at once.
struct Late(Option<BoxFuture<'static, Bytes>>);

#[async_trait]
impl FrameSource for Late {
    async fn next(&mut self) -> Option<Bytes> {
        let bytes = self.0.as_mut()?.await;
        self.0 = None;
        Some(bytes)
    }
}

fn mark(response: &mut Response<Body>) {
    let yes = HeaderValue::from_static("true");
    response.headers_mut().insert(REPLAYED, yes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_posts_and_puts_have_keys_and_strange_keys_are_refused() {
        let of = |method: Method, values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                let name = HeaderName::from_static("idempotency-key");
                headers.append(name, HeaderValue::from_str(value).unwrap());
            }
            key(&method, &headers)
        };
        assert_eq!(of(Method::POST, &["a-1"]).unwrap().as_deref(), Some("a-1"));
        assert_eq!(of(Method::PUT, &["a-1"]).unwrap().as_deref(), Some("a-1"));
        for method in [Method::GET, Method::PATCH, Method::DELETE] {
            assert_eq!(of(method, &["a-1"]).unwrap(), None);
        }
        assert_eq!(of(Method::POST, &[]).unwrap(), None);
        for bad in [&[""][..], &["a b"], &["a", "b"], &[&*"x".repeat(256)]] {
            assert_eq!(of(Method::POST, bad).unwrap_err().status, 422, "{bad:?}");
        }
    }

    #[test]
    fn requests_differ_by_method_path_and_body() {
        let hash = |method: Method, target: &str, body: &[u8]| {
            let mut request = Request::new("k".into(), method, target);
            request.hash.update(body);
            request.hash.digest128()
        };
        let one = hash(Method::POST, "/threads", b"{}");
        assert_eq!(one, hash(Method::POST, "/threads", b"{}"));
        for other in [
            hash(Method::PUT, "/threads", b"{}"),
            hash(Method::POST, "/threads?a", b"{}"),
            hash(Method::POST, "/threads", b"{ }"),
            hash(Method::POST, "/thread", b"s{}"),
        ] {
            assert_ne!(one, other);
        }
    }
}
