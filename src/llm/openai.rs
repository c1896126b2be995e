//! Chat models behind a server that speaks OpenAI's chat completions, streamed.

use std::{env, sync::Arc, time::Duration};

use async_openai::{config::OpenAIConfig, error::OpenAIError, traits::RequestOptionsBuilder};
use futures::StreamExt;
use tokio::time::timeout;

use super::{
    CallOptions, ChatModel, Error, Tokens, Tool,
    address::without_password,
    connection::{self, short},
    limits::Settings,
};
use crate::{message::Message, trace};

mod embeddings;
mod reply;
mod request;
mod text;
mod transport;

pub use embeddings::EmbeddingModel;

/// How long a server may take to send what follows a reply that is whole.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// The default base URL of requests.
pub const DEFAULT_BASE: &str = "https://api.openai.com/v1";
/// The default model.
pub const DEFAULT_MODEL: &str = "gpt-4o-mini";

/// A model at an OpenAI-compatible server.
///
/// ```no_run
/// use std::sync::Arc;
/// use backstitch::prelude::*;
///
/// let model: Arc<dyn ChatModel> = Arc::new(openai::Client::from_env()?);
/// # Ok::<_, backstitch::llm::Error>(())
/// ```
#[derive(Clone)]
pub struct Client {
    client: async_openai::Client<OpenAIConfig>,
    http: reqwest::Client,
    /// As messages show it.
    base: Arc<str>,
    model: Arc<str>,
    limits: Settings,
    schemas: Option<bool>,
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
        let http = connection::http()?;
        let (base, model): (Arc<str>, Arc<str>) = (base.into(), model.into());
        let shown = without_password(&base).into();
        let config = OpenAIConfig::new()
            .with_api_base(base.trim_end_matches('/'))
            .with_api_key(key);
        Ok(Self {
            client: async_openai::Client::build(http.clone(), config),
            http,
            base: shown,
            limits: Settings::of_model(&model),
            model,
            schemas: None,
        })
    }

    /// How long the model may take to begin its reply before the call fails; by default one minute, and
    /// five where [`reasoning`](crate::llm::CallOptions::reasoning) is asked for or the name says that the model thinks
    /// (`o3`, `gpt-5`, `deepseek-reasoner`). What it shows of its thoughts is not the reply yet.
    #[must_use]
    pub fn begin_within(mut self, limit: Duration) -> Self {
        self.limits.begin = Some(limit);
        self
    }

    /// How long the model may be silent once it has begun to reply; by default one minute.
    #[must_use]
    pub fn silence(mut self, limit: Duration) -> Self {
        self.limits.silence = Some(limit);
        self
    }

    /// Most bytes of a reply; by default 10 MiB.
    #[must_use]
    pub fn reply_bytes(mut self, bytes: usize) -> Self {
        self.limits.bytes = Some(bytes);
        self
    }

    /// Whether the model follows the schema of a reply; by default what is known of models with this name.
    #[must_use]
    pub fn schemas(mut self, follows: bool) -> Self {
        self.schemas = Some(follows);
        self
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

    /// The client for one call, and its transport.
    fn for_call(
        &self,
        form: transport::Form,
    ) -> (async_openai::Client<OpenAIConfig>, transport::Transport) {
        // Around a piece of a reply there is what the protocol says about it.
        let limits = self.limits.of_call(&CallOptions::new(), 0);
        let most = limits.bytes.saturating_add(1 << 20);
        let transport = transport::Transport::new(&self.http, &self.base, form, most);
        let client = self.client.clone().with_http_service(transport.clone());
        (client, transport)
    }

    /// The model that it calls.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Base URL of the server that it calls, without a password in it.
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
        let (this, limits) = (self.clone(), self.limits.of_call(options, tools.len()));
        let traceparent = trace::traceparent();
        Box::pin(async_stream::try_stream! {
            let base = &*this.base;
            let mut silence = limits.silence();
            let (client, transport) = this.for_call(transport::Form::Events);
            let mut chat = client.chat();
            if let Some(header) = traceparent {
                chat = chat.header("traceparent", &*header).map_err(|error| failed(base, error))?;
            }
            let call = chat.create_stream_byot::<_, reply::Event>(request?);
            let events = silence.within(base, call).await?;
            let mut events = events.map_err(|error| failed(base, error))?;
            let mut reply = reply::Reply::default();
            let mut meter = limits.meter(this.base.clone());
            loop {
                let event = if reply.is_done() {
                    // Counts of tokens may follow. A reply that is whole does not fail by what comes after it, and some
                    // servers leave the connection open.
                    let Ok(Some(Ok(event))) = timeout(AFTERWARDS, events.next()).await else { break };
                    event
                } else {
                    let Some(event) = silence.next(base, &mut events).await? else { break };
                    event.map_err(|error| transport.failure().unwrap_or_else(|| failed(base, error)))?
                };
                for piece in reply.pieces(base, event)? {
                    meter.count(&piece)?;
                    silence.piece(&piece);
                    yield piece;
                    silence.end();
                }
            }
            yield reply.end().ok_or_else(|| Error::Broken {
                at: base.to_owned(),
                reason: "the stream ended before the model was done".to_owned(),
            })?;
        })
    }

    fn follows_schemas(&self) -> bool {
        self.schemas.unwrap_or_else(|| follows_schemas(&self.model))
    }

    fn name(&self) -> &str {
        "ChatOpenAI"
    }

    fn provider(&self) -> Option<&str> {
        Some("openai")
    }
}

/// Whether models of this name follow schemas: since GPT-4o. Of others nothing is known; agents get a response from
/// them by a tool, which all have.
fn follows_schemas(model: &str) -> bool {
    let known = [
        "gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "gpt-6", "o1", "o3", "o4",
    ];
    known.iter().any(|name| model.starts_with(name)) && !model.starts_with("gpt-4o-2024-05")
}

fn failed(base: &str, error: OpenAIError) -> Error {
    let at = base.to_owned();
    match error {
        OpenAIError::Boxed(error) => match error.downcast::<Error>() {
            Ok(refused) => *refused,
            Err(other) => Error::Request(other.to_string()),
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

#[cfg(test)]
mod tests;
