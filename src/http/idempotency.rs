//! `Idempotency-Key`: a POST or PUT that is repeated within a day gets the response of the first
//! time and has no further effect.
//!
//! Responses below 500 are stored whole, up to a limit; a larger one is made anew from its run when
//! the request is repeated, or refused, and nothing is carried out twice. Of a response that takes as long as a run, that run is
//! stored first, and a repeated request joins it; the whole response is stored at its end, unless
//! it is long or its client left. A request whose key is in use waits for the response of the first
//! one.

mod replay;
mod stored;

use hyper::{HeaderMap, Method, Response, StatusCode};
use xxhash_rust::xxh3::Xxh3;

use self::replay::{Creates, Replayed};
use super::server::{
    Body, Error,
    call::{Call, RequestHandler},
    request_body::Source,
    slots,
};
use crate::{
    checkpoint::codec,
    contention::shares::in_this_name,
    fail_point,
    idempotency::{Key, Outcome},
};

/// The header with the key.
const HEADER: &str = "idempotency-key";
/// Most characters of a key.
const KEY_MAX: usize = 255;

/// A request with a key, before its body is read.
pub(super) struct Request {
    key: String,
    hash: Xxh3,
    creates: Option<Creates>,
    /// It changes nothing, so that nothing is stored of it.
    reads: bool,
}

impl Request {
    /// One with this target, to the route with this path: what a client names in a target may be any
    /// word.
    pub fn new(key: String, method: Method, target: &str, route: &str) -> Self {
        let mut hash = Xxh3::new();
        for part in [method.as_str(), target] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        Self {
            key,
            hash,
            creates: Creates::of(route),
            reads: slots::only_reads(&method, route),
        }
    }
}

/// Says of a response that its request has only read.
#[derive(Clone, Copy)]
pub(super) struct OnlyRead;

/// Whether keys have an effect on requests to the route with this path.
pub(super) fn applies(method: &Method, route: &str) -> bool {
    matches!(*method, Method::POST | Method::PUT) && !slots::only_reads(method, route)
}

/// The key of a request that has one and may have one.
pub(super) fn key(method: &Method, headers: &HeaderMap) -> Result<Option<String>, Error> {
    if !matches!(*method, Method::POST | Method::PUT) {
        return Ok(None);
    }
    let Some(value) = headers.get(HEADER) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default();
    let valid = (1..=KEY_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if valid && headers.get_all(HEADER).iter().count() == 1 {
        return Ok(Some(text.to_owned()));
    }
    let detail =
        format!("Invalid Idempotency-Key: one, of 1 to {KEY_MAX} visible ASCII characters");
    Err(Error::invalid(detail).coded())
}

/// Carries a request out, unless it was carried out before.
pub(super) async fn once(
    handler: RequestHandler,
    mut call: Call,
    mut request: Request,
) -> Result<Response<Body>, Error> {
    if request.reads {
        return handler(call).await;
    }
    let options = &call.shared.options;
    let stored_limit = options.stored_response;
    let limit = options.body_limit.max(options.edit_limit);
    let body = match call.body.take() {
        Some(body) => Some(call.receive(body, limit).await?),
        None => None,
    };
    let text = body.as_ref().map_or(&[][..], |body| &body.bytes);
    request.hash.update(text);
    let replayed = Replayed {
        key: Key {
            principal: call.principal(),
            text: request.key.into(),
        },
        hash: request.hash.digest128().to_be_bytes(),
    };
    let outcome = match call
        .idempotency()
        .begin(&replayed.key, replayed.hash)
        .await?
    {
        Some(outcome) => outcome,
        None => {
            // Who waits takes the slot of a stream, and none that others need to be worked on.
            let _slot = call.stream_slot()?;
            let wait = call.idempotency().wait(&replayed.key, replayed.hash);
            // It polls for as long as the other request takes.
            call.slot.try_lend(in_this_name(wait)).await?
        }
    };
    let guard = match outcome {
        Outcome::Execute(guard) => guard,
        Outcome::Replay(stored) => {
            return replayed.response(&call, &stored, request.creates).await;
        }
        Outcome::OtherRequest => {
            let detail = "The Idempotency-Key belongs to another request: take a new one";
            return Err(Error::invalid(detail).with_code("idempotency_mismatch"));
        }
    };
    // An attempt before this one ended without a response that is stored, maybe after it created the run.
    let orphan = match request.creates.filter(|_| guard.is_retry) {
        Some(creates) => replayed.of_orphan(&call, guard.run, creates).await?,
        None => None,
    };
    call.body = body.map(Source::Read);
    (call.run_id, call.is_retry) = (Some(guard.run), guard.is_retry);
    let access = call.access.clone();
    let retained = stored::Retained {
        limit: stored_limit,
        budget: call.shared.responses.clone(),
        payer: call.payer.clone(),
    };
    let response = match orphan {
        Some(response) => response,
        None => match handler(call).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        },
    };
    let status = response.status();
    let is_refusal = matches!(status, StatusCode::FORBIDDEN | StatusCode::NOT_FOUND);
    // A refusal holds until the client has the right, and one for too much at once until there is less: not for a day.
    let is_busy = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    if is_busy || is_refusal && access.was_refused() {
        return Ok(response);
    }
    if response.extensions().get::<OnlyRead>().is_some() {
        guard.release().await;
        return Ok(response);
    }
    let later = guard.replaceable();
    let row = (request.creates == Some(Creates::Row)).then_some(guard.run);
    let (mut response, to_store) = stored::encode(response, &access, stored_limit, row).await?;
    if let Some(later) = later {
        response = stored::store_at_end(response, later, &access, retained);
    }
    fail_point!("http::before_keep");
    if let Err(error) = guard.complete(codec::encode(&to_store)).await {
        tracing::warn!(%error, "a response could not be stored for its idempotency key");
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn only_posts_and_puts_have_keys_and_strange_keys_are_refused() {
        let of = |method: Method, values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                let name = HeaderName::from_static(HEADER);
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
            let mut request = Request::new("k".into(), method, target, "/threads");
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

    #[test]
    fn the_words_in_a_target_do_not_tell_what_its_route_does() {
        let request =
            |target: &str, route: &str| Request::new("k".into(), Method::POST, target, route);
        assert!(request("/threads/search?x=/runs", "/threads/search").reads);
        for name in ["search", "count", "history", "runs"] {
            let named = request(&format!("/a2a/{name}"), "/a2a/{assistant_id}");
            assert!(!named.reads && named.creates.is_none(), "{name}");
        }
        let wait = request("/threads/x/runs/wait?a=b", "/threads/{thread_id}/runs/wait");
        assert_eq!(wait.creates, Some(Creates::Wait));
    }
}
