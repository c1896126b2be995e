//! Sends requests to a server, reads why it refuses one, and bounds the events that it sends back.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use async_openai::{error::OpenAIError, middleware::HttpRequestFactory};
use bytes::Bytes;
use futures::{Stream, StreamExt, future::BoxFuture, stream};
use jiff::Timestamp;
use parking_lot::Mutex;
use reqwest::{Body, Response};
use tower_service::Service;

use super::{reply, text::Text};
use crate::llm::{
    Error,
    address::without_password,
    connection::{reason, short},
    retry_after::retry_after,
};

/// Most bytes of a refusal that are read.
const REFUSAL: usize = 64 << 10;

/// What a reply is to be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Events,
    Json,
}

/// Sends each request once: who calls a model decides about further attempts. The one of the library repeats by itself
/// and passes on neither how long to wait nor the text of a page.
#[derive(Clone)]
pub(super) struct Transport {
    http: reqwest::Client,
    base: Arc<str>,
    form: Form,
    /// Most bytes of an event, or of a reply that is no stream.
    most: usize,
    /// Why a body ended early: its error loses the cause on the way through the library.
    failure: Arc<Mutex<Option<Error>>>,
}

impl Transport {
    /// The transport of one call.
    pub fn new(http: &reqwest::Client, base: &Arc<str>, form: Form, most: usize) -> Self {
        Self {
            http: http.clone(),
            base: base.clone(),
            form,
            most,
            failure: Arc::default(),
        }
    }

    /// The error of a reply that was too long, or no text.
    pub fn failure(&self) -> Option<Error> {
        self.failure.lock().clone()
    }

    fn fail(&self, error: Error) -> std::io::Error {
        let message = std::io::Error::other(error.to_string());
        *self.failure.lock() = Some(error);
        message
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
                this.bounded(response).await
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
    let redirect = redirect(&response);
    let text = beginning(response.bytes_stream()).await;
    Error::Refused {
        at: base.to_owned(),
        status,
        reason: redirect.unwrap_or_else(|| reason(&text)),
        retry_after,
    }
}

/// Why a redirect is none for requests with a key.
fn redirect(response: &Response) -> Option<String> {
    if !response.status().is_redirection() {
        return None;
    }
    let target = response
        .headers()
        .get(http::header::LOCATION)?
        .to_str()
        .ok()?;
    let target = short(without_password(target));
    Some(format!(
        "it redirects to {target}, which is not followed: make that the base URL if it is meant"
    ))
}

/// A body that is an object where a stream of events was expected: what failed, if it says so.
fn no_events(base: &str, text: &str) -> Error {
    let body: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    match body.get("error").filter(|error| !error.is_null()) {
        Some(error) => reply::failed(base, error),
        None => Error::Unreadable {
            at: base.to_owned(),
            reason: format!("no stream of events: {}", short(text)),
        },
    }
}

/// The beginning of the text of an error. One that cannot be read whole is one all the same.
async fn beginning(mut body: impl Stream<Item = reqwest::Result<Bytes>> + Unpin) -> String {
    let mut text = Vec::new();
    while let Some(Ok(bytes)) = body.next().await {
        let room = REFUSAL - text.len();
        text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if text.len() == REFUSAL {
            break;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

impl Transport {
    /// The response, with an error as soon as an event of it is longer than it may be, since the library reads an event
    /// whole, or is no text.
    async fn bounded(self, response: Response) -> Result<Response, OpenAIError> {
        let (status, headers) = (response.status(), response.headers().clone());
        let mut event = Event {
            bytes: 0,
            ended: false,
        };
        let mut text = Text::default();
        let mut body = response.bytes_stream();
        let mut first = None;
        if self.form == Form::Events && is_json(&headers) {
            // Some servers call a stream of events JSON, which it is not: no event begins so.
            first = body.next().await.transpose()?;
            let begins = |bytes: &Bytes| bytes.trim_ascii_start().starts_with(b"{");
            if first.as_ref().is_some_and(begins) {
                let all = stream::iter(first.map(Ok)).chain(body);
                let error = no_events(&self.base, &beginning(all).await);
                return Err(OpenAIError::Boxed(Box::new(error)));
            }
        }
        let body = stream::iter(first.map(Ok)).chain(body).map(move |bytes| {
            let bytes: Bytes = bytes.map_err(std::io::Error::other)?;
            if event.longest_with(&bytes) > self.most {
                return Err(self.fail(Error::TooLong {
                    at: self.base.to_string(),
                    most: self.most,
                }));
            }
            text.whole(bytes).map_err(|error| {
                self.fail(Error::Unreadable {
                    at: self.base.to_string(),
                    reason: error.to_string(),
                })
            })
        });
        let mut out = http::Response::new(Body::wrap_stream(body));
        *out.status_mut() = status;
        *out.headers_mut() = headers;
        Ok(out.into())
    }
}

fn is_json(headers: &http::HeaderMap) -> bool {
    let kind = headers.get(http::header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
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
