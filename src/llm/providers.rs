//! Chat models of Anthropic, Google and Ollama, each in its own protocol.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use genai::{
    ModelIden, ServiceTarget,
    chat::ChatStreamEvent,
    resolver::{AuthData, Endpoint},
};

use super::{
    CallOptions, ChatModel, Error, Tokens, Tool, address::without_password, connection,
    limits::Settings,
};
use crate::{message::Message, trace};

mod embeddings;
mod failure;
mod media;
mod provider;
mod reply;
mod request;
mod schema;

pub use embeddings::EmbeddingModel;
pub use provider::Provider;

/// A model of one of these providers.
///
/// ```no_run
/// use backstitch::llm::providers::{Client, Provider};
///
/// let model = Client::new(Provider::Anthropic, "sk-ant-…", "claude-sonnet-4-5")?;
/// # Ok::<_, backstitch::llm::Error>(())
/// ```
#[derive(Clone)]
pub struct Client {
    client: genai::Client,
    provider: Provider,
    base: Arc<str>,
    key: String,
    model: Arc<str>,
    limits: Settings,
    schemas: Option<bool>,
}

impl Client {
    /// The model `model` at the provider's own server. Ollama takes any key, or an empty one.
    ///
    /// # Errors
    /// The HTTP client cannot be set up, for example because the machine has no certificates.
    pub fn new(
        provider: Provider,
        key: impl Into<String>,
        model: impl Into<Arc<str>>,
    ) -> Result<Self, Error> {
        let client = genai::Client::builder().with_reqwest(connection::http()?);
        let model: Arc<str> = model.into();
        let known = Settings::of_model(&model);
        Ok(Self {
            client: client
                .build()
                .map_err(|error| Error::Client(error.to_string()))?,
            provider,
            base: provider.base().into(),
            key: key.into(),
            limits: Settings {
                // Ollama loads a model when it is called first.
                begins_late: known.begins_late || provider == Provider::Ollama,
                sends_whole_calls: provider != Provider::Anthropic,
                ..known
            },
            model,
            schemas: None,
        })
    }

    /// The server with this base URL, without the version: `https://api.anthropic.com`, for example.
    #[must_use]
    pub fn at(mut self, base: impl AsRef<str>) -> Self {
        self.base = base.as_ref().trim_end_matches('/').into();
        self
    }

    /// How long the model may take to begin its reply before the call fails; by default one minute, and
    /// five where it is known to work without a sign: [`reasoning`](CallOptions::reasoning) is asked for, its name says
    /// that it thinks (`gemini-2.5-pro`), Ollama may have to load it, or it has tools and sends a call when that is
    /// whole (Google, Ollama). What it shows of its thoughts is not the reply yet.
    #[must_use]
    pub fn begin_within(mut self, limit: Duration) -> Self {
        self.limits.begin = Some(limit);
        self
    }

    /// How long the model may be silent once it has begun to reply; by default one minute, in which the server of
    /// Anthropic may also show by events without content that the model writes a long call, for five minutes, or as
    /// long as it may take to begin where that is set. With tools the others have five minutes, since they send a call
    /// when it is whole.
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

    /// The model that it calls.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Base URL of the server that it calls, without a password in it.
    pub fn base(&self) -> &str {
        without_password(&self.base)
    }

    fn target(&self) -> ServiceTarget {
        let base = format!("{}/{}", self.base, self.provider.version());
        ServiceTarget {
            endpoint: Endpoint::from_owned(base),
            auth: AuthData::from_single(self.key.clone()),
            model: ModelIden::new(self.provider.adapter(), self.model.to_string()),
        }
    }
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
        let limits = self.limits.of_call(options, tools.len());
        let request = request::request(self.provider, messages, tools, options);
        let failure = failure::Report::default();
        let options = request::options(self.provider, tools, options, trace::traceparent());
        let options = options.map(|options| failure.watch(self.provider, options));
        let this = self.clone();
        Box::pin(async_stream::try_stream! {
            let base = this.base();
            let mut silence = limits.silence();
            let failed = |error: genai::Error| failure::error(base, &error);
            let (request, options) = (request?, options?);
            let call = this.client.exec_chat_stream(this.target(), request, Some(&options));
            let mut events = silence.within(base, call).await?.map_err(failed)?.stream;
            let mut reply = reply::Reply::new(this.provider, &this.model);
            let mut meter = limits.meter(base.into());
            while let Some(event) = silence.within(base, failure::caught(base, events.next())).await?? {
                let event = event.map_err(failed)?;
                if matches!(event, ChatStreamEvent::Heartbeat) {
                    silence.sign_of_life();
                }
                for piece in reply.pieces(event) {
                    meter.count(&piece)?;
                    silence.piece(&piece);
                    yield piece;
                    silence.end();
                }
                meter.has_room(reply.unsent())?;
                if reply.is_done() {
                    return;
                }
            }
            Err(Error::Broken {
                at: base.to_owned(),
                reason: failure.reason(),
            })?;
        })
    }

    fn follows_schemas(&self) -> bool {
        self.schemas
            .unwrap_or_else(|| self.provider.follows_schemas(&self.model))
    }

    fn name(&self) -> &str {
        self.provider.class()
    }

    fn provider(&self) -> Option<&str> {
        Some(self.provider.id())
    }
}

#[cfg(test)]
mod tests;
