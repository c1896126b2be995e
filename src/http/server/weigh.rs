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
const COUNTED: usize = 64 << 10;

/// Bytes that take memory of the budget as long as any part of them waits for the client.
struct Weighed {
    bytes: Bytes,
    _memory: Reservation,
}

impl AsRef<[u8]> for Weighed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The response, whose body is counted if it is there as a whole. Where the budget or the payer's
/// share of it is exhausted, a read is 503; what a request has changed is always answered.
pub async fn weigh(
    response: Response<Body>,
    budget: &Arc<Budget>,
    payer: &Arc<str>,
    only_reads: bool,
) -> Response<Body> {
    let size = response.body().size_hint().exact();
    let Some(size) = size.and_then(|size| usize::try_from(size).ok()) else {
        return response;
    };
    if size < COUNTED {
        return response;
    }
    match budget.reserve(payer, size) {
        Ok(memory) => {
            let (parts, body) = response.into_parts();
            let Ok(whole) = body.collect().await else {
                return body::text(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error");
            };
            let weighed = Weighed {
                bytes: whole.to_bytes(),
                _memory: memory,
            };
            Response::from_parts(parts, body::full(Bytes::from_owner(weighed)))
        }
        Err(Refusal::Exhausted) if only_reads => {
            let detail =
                "Too many responses wait for their clients. Read them, or try again later.";
            Error::unavailable(detail).into_response()
        }
        Err(_) => response,
    }
}
