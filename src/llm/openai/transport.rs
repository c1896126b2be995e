//! Sends requests to a server, reads why it refuses one, and bounds the events that it sends back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use async_openai::{error::OpenAIError, middleware::HttpRequestFactory};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, future::BoxFuture};
use jiff::Timestamp;
use reqwest::{Body, Response};
use tower_service::Service;

use crate::llm::{Error, connection::reason, retry_after::retry_after};

/// Most bytes of a refusal that are read.
const REFUSAL: usize = 64 << 10;

/// Sends each request once: who calls a model decides about further attempts. The one of the library repeats by itself
/// and passes on neither how long to wait nor the text of a page.
#[derive(Clone)]
pub(super) struct Transport {
    http: reqwest::Client,
    base: Arc<str>,
    /// Most bytes of an event, or of a reply that is no stream.
    most: usize,
    /// There were more: the error of a body loses its cause on the way through the library.
    exceeded: Arc<AtomicBool>,
}

impl Transport {
    /// The transport of one call.
    pub fn new(http: &reqwest::Client, base: &Arc<str>, most: usize) -> Self {
        Self {
            http: http.clone(),
            base: base.clone(),
            most,
            exceeded: Arc::default(),
        }
    }

    /// The error of a reply that was too long.
    pub fn too_long(&self, base: &str) -> Option<Error> {
        self.exceeded
            .load(Ordering::Relaxed)
            .then(|| Error::TooLong {
                at: base.to_owned(),
                most: self.most,
            })
    }
}

impl Service<HttpRequestFactory> for Transport {
    type Response = Response;
    type Error = OpenAIError;
    type Future = BoxFuture<'static, Result<Response, OpenAIError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OpenAIError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequestFactory) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let request = request.build().await?;
            let response = this.http.execute(request).await?;
            if response.status().is_success() {
                Ok(this.bounded(response))
            } else {
                let refusal = refusal(&this.base, response).await;
                Err(OpenAIError::Boxed(Box::new(refusal)))
            }
        })
    }
}

async fn refusal(base: &str, response: Response) -> Error {
    let status = response.status().as_u16();
    let retry_after = retry_after(response.headers(), Timestamp::now());
    let mut text = Vec::new();
    let mut body = response.bytes_stream();
    // A refusal whose text cannot be read whole is one all the same.
    while let Some(Ok(bytes)) = body.next().await {
        let room = REFUSAL - text.len();
        text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if text.len() == REFUSAL {
            break;
        }
    }
    Error::Refused {
        at: base.to_owned(),
        status,
        reason: reason(&String::from_utf8_lossy(&text)),
        retry_after,
    }
}

impl Transport {
    /// The response, with an error as soon as an event of it is longer than it may be: the library reads an event whole.
    fn bounded(self, response: Response) -> Response {
        let (status, headers) = (response.status(), response.headers().clone());
        let mut event = Event {
            bytes: 0,
            ended: false,
        };
        let body = response
            .bytes_stream()
            .map_err(std::io::Error::other)
            .map(move |bytes| {
                let bytes: Bytes = bytes?;
                if event.longest_with(&bytes) > self.most {
                    self.exceeded.store(true, Ordering::Relaxed);
                    return Err(std::io::Error::other("an event is too long"));
                }
                Ok(bytes)
            });
        let mut out = http::Response::new(Body::wrap_stream(body));
        *out.status_mut() = status;
        *out.headers_mut() = headers;
        out.into()
    }
}

/// How long the event is that comes in. An empty line ends it.
struct Event {
    bytes: usize,
    ended: bool,
}

impl Event {
    /// The longest that the event has been while these bytes came in.
    fn longest_with(&mut self, bytes: &[u8]) -> usize {
        let mut longest = self.bytes;
        for byte in bytes {
            match byte {
                b'\n' if self.ended => self.bytes = 0,
                b'\n' => self.ended = true,
                b'\r' => {}
                _ => {
                    self.ended = false;
                    self.bytes += 1;
                    longest = longest.max(self.bytes);
                }
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_line_ends_an_event() {
        let mut event = Event {
            bytes: 0,
            ended: false,
        };
        assert_eq!(event.longest_with(b"data: 1"), 7);
        assert_eq!(event.longest_with(b"2\r\n\r\ndata"), 8);
        assert_eq!(event.longest_with(b": 3\ndata: 4\n"), 14);
    }
}
