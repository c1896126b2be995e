//! The HTTP client by which models are called.

use std::time::Duration;

use super::Error;

const CONNECT: Duration = Duration::from_secs(10);

/// A client with our TLS. How long a server may be silent each call decides itself. It follows no redirect, which could
/// take keys and conversations to another server.
pub(super) fn http() -> Result<reqwest::Client, Error> {
    crate::tls::set_provider();
    reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| Error::Client(format!("{:#}", anyhow::Error::new(error))))
}

/// The beginning of a text, for messages: some servers reply with whole pages.
pub(super) fn short(text: &str) -> String {
    const MOST: usize = 500;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The message of an error that a server reports as JSON, or the beginning of its text.
pub(super) fn reason(body: &str) -> String {
    let json: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let error = json.get("error").unwrap_or(&json);
    let message = error.get("message").unwrap_or(error).as_str();
    let kind = error.get("type").or_else(|| error.get("status"));
    match (kind.and_then(serde_json::Value::as_str), message) {
        (Some(kind), Some(message)) => short(&format!("{kind}: {message}")),
        (None, Some(message)) => short(message),
        _ => short(body),
    }
}
