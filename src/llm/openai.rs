//! Chat models behind a server that speaks OpenAI's chat completions, streamed.

use std::{env, sync::Arc, time::Duration};

use async_openai::{config::OpenAIConfig, error::OpenAIError, traits::RequestOptionsBuilder};
use futures::StreamExt;

use super::{CallOptions, ChatModel, Error, Tokens, Tool};
use crate::{message::Message, trace};

mod embeddings;
mod reply;
mod request;

pub use embeddings::EmbeddingModel;

/// The default base URL of requests.
pub const DEFAULT_BASE: &str = "https://api.openai.com/v1";
/// The default model.
pub const DEFAULT_MODEL: &str = "gpt-4o-mini";

const CONNECT: Duration = Duration::from_secs(10);
/// How long a server may be silent: some models think for minutes.
const SILENCE: Duration = Duration::from_secs(300);

/// A model at an OpenAI-compatible server.
///
/// ```no_run
/// use std::sync::Arc;
/// use backstitch::prelude::*;
///
/// let model: Arc<dyn ChatModel> = Arc::new(openai::Client::from_env()?);
/// # Ok::<_, backstitch::llm::Error>(())
/// ```
pub struct Client {
    client: async_openai::Client<OpenAIConfig>,
    base: Arc<str>,
    model: Arc<str>,
}

impl Client {
    /// The model `model` at the server with this base URL, which ends in `/v1` for most servers.
    /// Local servers often take any key, or an empty one.
    ///
    /// # Errors
    /// The HTTP client cannot be set up, for example because the machine has no certificates.
    pub fn new(
        base: impl Into<Arc<str>>,
        key: impl Into<String>,
        model: impl Into<Arc<str>>,
    ) -> Result<Self, Error> {
        crate::tls::set_provider();
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .build()
            .map_err(|error| Error::Client(format!("{:#}", anyhow::Error::new(error))))?;
        let base: Arc<str> = base.into();
        let config = OpenAIConfig::new()
            .with_api_base(base.trim_end_matches('/'))
            .with_api_key(key);
        Ok(Self {
            client: async_openai::Client::build(http, config),
            base,
            model: model.into(),
        })
    }

    /// A client from environment variables: `OPENAI_API_KEY`, `OPENAI_BASE_URL` (by default OpenAI's own
    /// server) and `OPENAI_MODEL` (by default `gpt-4o-mini`).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_env() -> Result<Self, Error> {
        Self::new(
            set("OPENAI_BASE_URL").unwrap_or_else(|| DEFAULT_BASE.to_owned()),
            set("OPENAI_API_KEY").unwrap_or_default(),
            set("OPENAI_MODEL").unwrap_or_else(|| DEFAULT_MODEL.to_owned()),
        )
    }

    /// Whether the environment names a server or a key.
    pub fn is_configured() -> bool {
        set("OPENAI_API_KEY").is_some() || set("OPENAI_BASE_URL").is_some()
    }

    /// The model that it calls.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Base URL of the server that it calls.
    pub fn base(&self) -> &str {
        &self.base
    }
}

/// A variable of the environment that is not empty.
fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

impl ChatModel for Client {
    fn stream(&self, messages: &[Message], tools: &[Arc<Tool>]) -> Tokens {
        self.stream_with(messages, tools, &CallOptions::new())
    }

    fn stream_with(
        &self,
        messages: &[Message],
        tools: &[Arc<Tool>],
        options: &CallOptions,
    ) -> Tokens {
        let request = request::request(&self.model, messages, tools, options);
        let (client, base) = (self.client.clone(), self.base.clone());
        let traceparent = trace::traceparent();
        Box::pin(async_stream::try_stream! {
            let mut chat = client.chat();
            if let Some(header) = traceparent {
                chat = chat.header("traceparent", &*header).map_err(|error| failed(&base, error))?;
            }
            let mut events = chat
                .create_stream(request?)
                .await
                .map_err(|error| failed(&base, error))?;
            let mut reply = reply::Reply::default();
            while let Some(event) = events.next().await {
                let event = event.map_err(|error| failed(&base, error))?;
                if let Some(piece) = reply.piece(event) {
                    yield piece;
                }
            }
            yield reply.end().ok_or_else(|| Error::Broken {
                at: base.to_string(),
                reason: "the stream ended before the model was done".to_owned(),
            })?;
        })
    }

    fn name(&self) -> &str {
        "ChatOpenAI"
    }

    fn provider(&self) -> Option<&str> {
        Some("openai")
    }
}

fn failed(base: &str, error: OpenAIError) -> Error {
    let at = base.to_owned();
    match error {
        OpenAIError::ApiError(error) => Error::Refused {
            at,
            status: error.status_code.as_u16(),
            reason: short(&error.api_error.to_string()),
        },
        OpenAIError::StreamError(error) => Error::Broken {
            at,
            reason: error.to_string(),
        },
        OpenAIError::JSONDeserialize(error, text) => Error::Unreadable {
            at,
            reason: format!("{error}: {}", short(&text)),
        },
        OpenAIError::Reqwest(error) => Error::Unreachable {
            at,
            reason: format!("{:#}", anyhow::Error::new(error)),
        },
        other => Error::Request(other.to_string()),
    }
}

/// The beginning of a text, for messages: some servers answer with whole pages.
fn short(text: &str) -> String {
    const MOST: usize = 500;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
