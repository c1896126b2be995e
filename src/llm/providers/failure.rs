//! Errors of providers as errors of models.

use std::{error::Error as _, panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;
use genai::{
    Error as Failure,
    chat::{ChatOptions, RawFrameRef},
    webc,
};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value as Json;

use super::provider::Provider;
use crate::llm::{
    Error,
    connection::{reason, short},
    retry_after::retry_after,
};

/// Why a provider ended a reply early, if it said so in a way that the library does not pass on.
#[derive(Clone, Default)]
pub(super) struct Report(Arc<Mutex<Option<String>>>);

impl Report {
    /// Reads errors among the events of a reply: Ollama's have a form of their own.
    pub fn watch(&self, provider: Provider, options: ChatOptions) -> ChatOptions {
        if provider != Provider::Ollama {
            return options;
        }
        let report = self.0.clone();
        options.with_raw_frame_fn(move |_, frame: RawFrameRef<'_>| {
            if frame.data.starts_with("{\"error\"") {
                *report.lock() = Some(reason(frame.data));
            }
        })
    }

    pub fn reason(&self) -> String {
        let early = "the stream ended before the model was done".to_owned();
        self.0.lock().take().unwrap_or(early)
    }
}

/// Reads from the server `base`. The library adds up what providers count, in numbers that overflow: where that is checked,
/// as in programs that are built without optimisation, it panics. What it was reading is not used afterwards.
pub(super) async fn caught<T>(base: &str, step: impl Future<Output = T>) -> Result<T, Error> {
    let step = AssertUnwindSafe(step).catch_unwind().await;
    step.map_err(|_| Error::Unreadable {
        at: base.to_owned(),
        reason: "it has numbers that are too large".to_owned(),
    })
}

/// The failure of a call at the server `base`.
pub(super) fn error(base: &str, failure: &Failure) -> Error {
    let at = base.to_owned();
    match failure {
        Failure::HttpError {
            status,
            body,
            headers,
            ..
        } => refused(base, *status, body, headers),
        Failure::WebModelCall { webc_error, .. } | Failure::WebAdapterCall { webc_error, .. } => {
            match webc_error {
                webc::Error::ResponseFailedStatus {
                    status,
                    body,
                    headers,
                } => refused(base, *status, body, headers),
                webc::Error::Reqwest(error) => transport(base, error),
                other => Error::Unreadable {
                    at,
                    reason: short(&other.to_string()),
                },
            }
        }
        Failure::WebStream { error: inner, .. } => {
            if let Some(failure) = inner.downcast_ref::<Failure>() {
                error(base, failure)
            } else if let Some(error) = inner.downcast_ref::<reqwest::Error>() {
                transport(base, error)
            } else {
                Error::Unreadable {
                    at,
                    reason: short(&inner.to_string()),
                }
            }
        }
        Failure::ChatResponse { body, .. } => event(base, body),
        Failure::StreamParse { serde_error, .. } => Error::Unreadable {
            at,
            reason: serde_error.to_string(),
        },
        Failure::JsonValueExt(error) => Error::Unreadable {
            at,
            reason: short(&error.to_string()),
        },
        Failure::SerdeJson(error) => Error::Unreadable {
            at,
            reason: error.to_string(),
        },
        other => Error::Request(short(&other.to_string())),
    }
}

fn refused(base: &str, status: StatusCode, body: &str, headers: &HeaderMap) -> Error {
    Error::Refused {
        at: base.to_owned(),
        status: status.as_u16(),
        reason: reason(body),
        retry_after: retry_after(headers, Timestamp::now()),
    }
}

/// A connection that could not be opened, or was cut while the reply came in.
pub(super) fn transport(base: &str, error: &reqwest::Error) -> Error {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    let at = base.to_owned();
    if error.is_body() || error.is_decode() {
        Error::Broken { at, reason: text }
    } else {
        Error::Unreachable { at, reason: text }
    }
}

/// An error that the provider reports in the middle of a reply, with the status that it would have had before it.
fn event(base: &str, body: &Json) -> Error {
    let at = base.to_owned();
    let error = body.get("error").unwrap_or(body);
    let text = |key: &str| error.get(key).and_then(Json::as_str);
    let status = match text("type") {
        Some("overloaded_error") => Some(529),
        Some("rate_limit_error") => Some(429),
        Some("api_error" | "internal_server_error") => Some(500),
        Some("timeout_error") => Some(504),
        _ => error.get("code").and_then(Json::as_u64),
    };
    if let Some(status) = status.and_then(|status| u16::try_from(status).ok()) {
        Error::Refused {
            at,
            status,
            reason: reason(&body.to_string()),
            retry_after: None,
        }
    } else if error.get("message").is_some() {
        Error::Broken {
            at,
            reason: reason(&body.to_string()),
        }
    } else {
        Error::Unreadable {
            at,
            reason: "it has no candidate: the prompt may have been blocked".to_owned(),
        }
    }
}
