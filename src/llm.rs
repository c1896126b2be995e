//! Chat models and tools: one trait for models, a client for OpenAI-compatible servers, scripted
//! models for tests and demonstrations, and functions that models may call.

use std::sync::Arc;

use futures::stream::BoxStream;

use crate::{
    extract::{Ctx, ModelCall},
    message::{AiChunk, Message, ToolCallChunk},
    value::Value,
};

mod embeddings;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(feature = "openai")]
pub mod openai;
mod options;
mod recorder;
mod resilient;
mod scripted;
pub(crate) mod tools;

pub use embeddings::Embeddings;
pub use options::{CallOptions, ReplySchema, ToolChoice, complete};
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

    /// Whether the model follows [`CallOptions::schema`] in replies without tool calls.
    fn follows_schemas(&self) -> bool {
        false
    }

    /// What clients are told about who replies: the kind of model.
    fn name(&self) -> &str {
        "ChatModel"
    }

    /// Who serves it, for example `openai`.
    fn provider(&self) -> Option<&str> {
        None
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
        model: &M,
        messages: &[Message],
        tools: &[Arc<Tool>],
    ) -> anyhow::Result<Message> {
        let options = CallOptions::new();
        self.chat_with(model, messages, tools, &options).await
    }

    /// As [`chat`](Self::chat), with options.
    ///
    /// # Errors
    /// As [`chat`](Self::chat).
    pub async fn chat_with<M: ChatModel + ?Sized>(
        &self,
        model: &M,
        messages: &[Message],
        tools: &[Arc<Tool>],
        options: &CallOptions,
    ) -> anyhow::Result<Message> {
        let shown = || messages.iter().cloned().map(Value::from).collect();
        let call = ModelCall {
            id: uuid::Uuid::now_v7(),
            name: model.name().into(),
            provider: model.provider().map(Arc::from),
            messages: self.reports().then(shown),
        };
        let reply = model.stream_with(messages, tools, options);
        self.forward(call, reply).await
    }
}

/// Why a model did not reply. Nodes may find it in their errors, for example to choose which
/// failures are worth another attempt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A scripted model was called once too often.
    #[error("the script has {replies} replies, but the conversation asks for one more")]
    ScriptEnds {
        /// How many replies the script has.
        replies: usize,
    },
    /// The client for HTTP and TLS could not be set up.
    #[error("the client for models cannot start: {0}")]
    Client(String),
    /// A message that the protocol of the model has no form for.
    #[error("message {index} of the conversation cannot be sent to the model: {reason}")]
    Message {
        /// Its position in the conversation, from 0.
        index: usize,
        /// What is wrong.
        reason: String,
    },
    /// The request could not be built from the messages and tools.
    #[error("the request cannot be sent to the model: {0}")]
    Request(String),
    /// The server cannot be reached.
    #[error("the model at {at} cannot be reached: {reason}")]
    Unreachable {
        /// Base URL.
        at: String,
        /// What went wrong.
        reason: String,
    },
    /// The server responded with an error.
    #[error("the model at {at} refused with {status}: {reason}")]
    Refused {
        /// Base URL.
        at: String,
        /// Status of HTTP.
        status: u16,
        /// The server's message.
        reason: String,
    },
    /// The reply ended before the model reported its end.
    #[error("the answer of the model at {at} broke off: {reason}")]
    Broken {
        /// Base URL.
        at: String,
        /// What went wrong.
        reason: String,
    },
    /// The reply does not follow the protocol.
    #[error("the model at {at} sent what cannot be read: {reason}")]
    Unreadable {
        /// Base URL.
        at: String,
        /// What went wrong.
        reason: String,
    },
}

/// Divides a whole reply into pieces as a model would send them: word by word, then its tool
/// calls, then the mark of the end.
fn pieces(message: &Message) -> Vec<AiChunk> {
    let text = message.text();
    let mut pieces: Vec<AiChunk> = text.split_inclusive(' ').map(AiChunk::text).collect();
    let calls = (0i64..).zip(message.tool_calls());
    pieces.extend(calls.map(|(index, call)| AiChunk {
        tool_call_chunks: vec![ToolCallChunk {
            name: Some(call.name),
            args: call.args.to_json(),
            id: call.id,
            index: Some(index),
        }],
        ..AiChunk::default()
    }));
    pieces.push(AiChunk {
        last: true,
        ..AiChunk::default()
    });
    if let (Some(first), Some(id)) = (pieces.first_mut(), message.id()) {
        first.id = Some(id.into());
    }
    pieces
}
