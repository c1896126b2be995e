//! Chat models and tools: one trait for models, clients of providers, scripted models for tests and
//! demonstrations, and functions that models may call.

use std::sync::Arc;

use futures::stream::BoxStream;

use crate::{
    extract::{Ctx, ModelCall},
    message::{AiChunk, Message},
    value::Value,
};

#[cfg(any(feature = "mcp", feature = "openai"))]
mod address;
#[cfg(feature = "openai")]
#[cfg_attr(
    not(feature = "models"),
    allow(dead_code, reason = "signed reasoning is Anthropic's")
)]
mod blocks;
#[cfg(feature = "openai")]
mod connection;
mod embeddings;
mod error;
#[cfg(feature = "openai")]
mod limits;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(feature = "openai")]
mod named;
#[cfg(feature = "openai")]
pub mod openai;
mod options;
#[cfg(feature = "openai")]
mod parts;
mod pieces;
#[cfg(feature = "models")]
pub mod providers;
mod recorder;
#[cfg(all(test, feature = "openai"))]
mod replay;
mod resilient;
#[cfg(feature = "openai")]
mod retry_after;
mod scripted;
pub(crate) mod tools;

pub use embeddings::Embeddings;
pub use error::Error;
#[cfg(feature = "openai")]
pub use named::{embedding_model, model};
pub use options::{CallOptions, Reasoning, ReplySchema, ToolChoice, complete};
use pieces::pieces;
pub use recorder::Recorder;
pub use resilient::{Fallback, RateLimited};
pub use scripted::{Reply, ScriptedModel};
pub use tools::{
    Call, IntoToolOutput, Tool, ToolDefinition, ToolNode, ToolOutput, ToolResult, run_tool, tool,
    tool_node,
};

/// The pieces of a model's reply as they come in; [`Ctx::chat`](crate::extract::Ctx::chat)
/// forwards them to clients and adds them up.
pub type Tokens = BoxStream<'static, anyhow::Result<AiChunk>>;

/// A chat model. Graphs get it as a dependency, so that tests can replace it by a
/// [`ScriptedModel`]:
///
/// ```
/// use std::sync::Arc;
/// use backstitch::prelude::*;
///
/// #[derive(State)]
/// struct Chat {
///     #[state(messages)]
///     messages: Vec<Message>,
/// }
///
/// async fn answer(chat: Chat, model: Dep<dyn ChatModel>, ctx: Ctx) -> Result<Update<Chat>> {
///     let reply = ctx.chat(&*model, &chat.messages, &[]).await?;
///     Ok(Chat::update().messages(reply))
/// }
///
/// let model: Arc<dyn ChatModel> = Arc::new(ScriptedModel::replying([Message::ai("Hello!")]));
/// let graph = Graph::<Chat>::new()
///     .provide(model)
///     .node("answer", answer)
///     .edge(START, "answer")
///     .build()?;
/// # Ok::<_, backstitch::graph::Invalid>(())
/// ```
pub trait ChatModel: Send + Sync + 'static {
    /// Starts a reply to `messages`; the model may request calls of `tools`. Nothing fails before
    /// the first piece is awaited, and dropping the stream stops the model.
    fn stream(&self, messages: &[Message], tools: &[Arc<Tool>]) -> Tokens;

    /// As [`stream`](Self::stream), with options. Models without options ignore them.
    fn stream_with(
        &self,
        messages: &[Message],
        tools: &[Arc<Tool>],
        options: &CallOptions,
    ) -> Tokens {
        let _ = options;
        self.stream(messages, tools)
    }

    /// The model that this one passes its calls on to: what is known of that one holds for this one too, unless a
    /// method below says otherwise.
    fn inner(&self) -> Option<&dyn ChatModel> {
        None
    }

    /// Whether the model follows [`CallOptions::schema`] in replies without tool calls.
    fn follows_schemas(&self) -> bool {
        self.inner().is_some_and(|inner| inner.follows_schemas())
    }

    /// What clients are told about who replies: the kind of model.
    fn name(&self) -> &str {
        self.inner().map_or("ChatModel", |inner| inner.name())
    }

    /// Who serves it, for example `openai`.
    fn provider(&self) -> Option<&str> {
        self.inner()?.provider()
    }
}

impl<M: ChatModel + ?Sized> ChatModel for Arc<M> {
    fn stream(&self, messages: &[Message], tools: &[Arc<Tool>]) -> Tokens {
        (**self).stream(messages, tools)
    }

    fn stream_with(
        &self,
        messages: &[Message],
        tools: &[Arc<Tool>],
        options: &CallOptions,
    ) -> Tokens {
        (**self).stream_with(messages, tools, options)
    }

    fn follows_schemas(&self) -> bool {
        (**self).follows_schemas()
    }

    fn name(&self) -> &str {
        (**self).name()
    }

    fn provider(&self) -> Option<&str> {
        (**self).provider()
    }
}

impl Ctx {
    /// Calls a chat model, forwards its reply to `messages` subscribers piece by piece and returns the
    /// whole message. Subscribers of `events` see which model is called with what.
    ///
    /// # Errors
    /// The model's error, or a reply without a piece.
    pub async fn chat<M: ChatModel + ?Sized>(
        &self,
        chat_model: &M,
        messages: &[Message],
        tools: &[Arc<Tool>],
    ) -> anyhow::Result<Message> {
        let options = CallOptions::new();
        self.chat_with(chat_model, messages, tools, &options).await
    }

    /// As [`chat`](Self::chat), with options.
    ///
    /// # Errors
    /// As [`chat`](Self::chat).
    pub async fn chat_with<M: ChatModel + ?Sized>(
        &self,
        chat_model: &M,
        messages: &[Message],
        tools: &[Arc<Tool>],
        options: &CallOptions,
    ) -> anyhow::Result<Message> {
        let shown = || messages.iter().cloned().map(Value::from).collect();
        let call = ModelCall {
            id: uuid::Uuid::now_v7(),
            name: chat_model.name().into(),
            provider: chat_model.provider().map(Arc::from),
            messages: self.reports().then(shown),
        };
        let reply = chat_model.stream_with(messages, tools, options);
        self.forward(call, reply).await
    }
}
