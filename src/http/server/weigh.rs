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

/// Smaller bodies are not counted.
pub const COUNTED: usize = 64 << 10;

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

/// The response, whose body is counted if it is there as a whole; `reserved` is what was reserved while it
/// was made. Where the budget or the payer's share of it is exhausted, a read is 503; what a request has
/// changed is always answered.
pub async fn weigh(
    response: Response<Body>,
    budget: &Arc<Budget>,
    payer: &Arc<str>,
    only_reads: bool,
    reserved: Option<Reservation>,
) -> Response<Body> {
    let size = response.body().size_hint().exact();
    let Some(size) = size.and_then(|size| usize::try_from(size).ok()) else {
        return response;
    };
    if size < COUNTED {
        return response;
    }
    match of_size(reserved, size, budget, payer) {
        Ok(memory) => {
            let (parts, body) = response.into_parts();
            let Ok(whole) = body.collect().await else {
                return body::text(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error");
            };
            let bytes = weighed(whole.to_bytes(), memory);
            Response::from_parts(parts, body::full(bytes))
        }
        Err(Refusal::Exhausted) if only_reads => {
            let detail =
                "Too many responses wait for their clients. Read them, or try again later.";
            Error::unavailable(detail).into_response()
        }
        Err(_) => response,
    }
}

/// A reservation of another size, without a moment in which nothing is reserved.
fn of_size(
    reserved: Option<Reservation>,
    size: usize,
    budget: &Arc<Budget>,
    payer: &Arc<str>,
) -> Result<Reservation, Refusal> {
    // What is larger than one payer may have takes all of that.
    let size = size.min(budget.share());
    match reserved {
        Some(mut memory) => {
            memory.resize(size)?;
            Ok(memory)
        }
        None => budget.reserve(payer, size),
    }
}
