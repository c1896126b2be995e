//! Counts whole bodies of responses until their clients have taken them.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Response, StatusCode, body::Body as _};

use super::{
    body::{self, Body},
    error::Error,
};
use crate::budget::{Budget, Refusal, Reservation};

/// Smaller bodies are counted and not waited for: who does not read them gets no more responses.
pub const SMALL: usize = 64 << 10;

/// About what a response takes in memory beside its body: its head, its stream and the task that serves it.
const BESIDE: usize = 3 << 10;

/// Requests of a payer are 503 as long as it has this percentage of its share in use, most of it for small responses that it
/// does not read: large ones end at the share.
const REFUSED: usize = 150;

/// And from here on not even that is said: HTTP/2 resets the stream, HTTP/1 closes the connection.
const UNANSWERED: usize = 200;

/// A request has no response, since too many of its client's wait to be read.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("too many responses wait for this client")]
pub struct Unanswered;

/// Bytes that take memory of the budget as long as any part of them waits for the client.
struct Weighed<M> {
    bytes: Bytes,
    _memory: M,
}

impl<M> AsRef<[u8]> for Weighed<M> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes with the memory that is theirs.
pub fn weighed(bytes: impl Into<Bytes>, memory: impl Send + 'static) -> Bytes {
    Bytes::from_owner(Weighed {
        bytes: bytes.into(),
        _memory: memory,
    })
}

/// A response whose body is counted.
#[derive(Clone, Copy)]
struct Counted;

/// The response, whose body is counted if it is there as a whole; `reserved` is what was reserved while it
/// was made. Where the budget or the payer's share of it is exhausted, a large response to a read is 503; small ones
/// and what a request has changed are always answered.
pub async fn weigh(
    response: Response<Body>,
    budget: &Arc<Budget>,
    payer: &Arc<str>,
    only_reads: bool,
    reserved: Option<Reservation>,
) -> Response<Body> {
    let Some(size) = size_of(&response) else {
        return response;
    };
    let memory = match of_size(reserved, size, budget, payer) {
        Ok(memory) => memory,
        Err(Refusal::Exhausted) if only_reads && size >= SMALL => {
            let detail =
                "Too many responses wait for their clients. Read them, or try again later.";
            return Error::unavailable(detail).into_response();
        }
        Err(_) => budget.charge(payer, size + BESIDE),
    };
    with_memory(response, memory).await
}

/// The response, whose body is counted for `payer` if that is there as a whole and was not counted before, and is small:
/// an error, or what a layer of the program has made.
///
/// # Errors
/// Too many responses wait for this client already: it gets none.
pub async fn weigh_rest(
    mut response: Response<Body>,
    budget: &Arc<Budget>,
    payer: &Arc<str>,
) -> Result<Response<Body>, Unanswered> {
    let is_counted = response.extensions_mut().remove::<Counted>().is_some();
    let size = size_of(&response).filter(|size| !is_counted && *size < SMALL);
    let Some(size) = size else {
        return Ok(response);
    };
    if budget.is_beyond(UNANSWERED, payer) {
        return Err(Unanswered);
    }
    Ok(with_memory(response, budget.charge(payer, size + BESIDE)).await)
}

/// Before a request is worked on: those whose clients let so many responses wait get no more.
///
/// # Errors
/// 503: some of them must be read first.
pub fn check_unread(budget: &Arc<Budget>, payer: &Arc<str>) -> Result<(), Error> {
    if budget.is_beyond(REFUSED, payer) {
        return Err(Error::unavailable(
            "Too many responses of yours wait for you. Read them, or try again later.",
        ));
    }
    Ok(())
}

/// The size of a body that is there as a whole.
fn size_of(response: &Response<Body>) -> Option<usize> {
    let size = response.body().size_hint().exact();
    size.and_then(|size| usize::try_from(size).ok())
}

async fn with_memory(response: Response<Body>, memory: Reservation) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    parts.extensions.insert(Counted);
    let Ok(whole) = body.collect().await else {
        return body::text(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error");
    };
    let whole = whole.to_bytes();
    // Bytes that are none have no owner.
    let whole = if whole.is_empty() {
        whole
    } else {
        weighed(whole, memory)
    };
    Response::from_parts(parts, body::full(whole))
}

/// A reservation of another size, without a moment in which nothing is reserved.
fn of_size(
    reserved: Option<Reservation>,
    size: usize,
    budget: &Arc<Budget>,
    payer: &Arc<str>,
) -> Result<Reservation, Refusal> {
    // What is larger than one payer may have takes all of that.
    let size = (size + BESIDE).min(budget.share());
    match reserved {
        Some(mut memory) => {
            memory.resize(size)?;
            Ok(memory)
        }
        None => budget.reserve(payer, size),
    }
}
