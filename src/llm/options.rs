//! Options of a call of a chat model, and calls whose reply is not streamed to clients.

use std::{sync::Arc, time::Duration};

use futures::TryStreamExt;

use super::{ChatModel, Tool};
use crate::message::{Message, Sum};

/// Whether a model calls tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model chooses.
    #[default]
    Auto,
    /// The model calls no tool.
    None,
    /// The model calls at least one tool.
    Any,
    /// The model calls this tool.
    Tool(Arc<str>),
}

/// How much a model reasons before it replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// A little.
    Low,
    /// Some.
    Medium,
    /// A lot.
    High,
}

/// A JSON schema that a whole reply follows.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplySchema {
    /// Its name, for the provider.
    pub name: Arc<str>,
    /// The schema.
    pub schema: serde_json::Value,
}

/// Options of a call. What is not set is the provider's default; a model that cannot do what is set ignores it or
/// fails, as its provider does.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "options do nothing until a model is called with them"]
pub struct CallOptions {
    /// How much chance there is in a reply.
    pub temperature: Option<f32>,
    /// The longest reply, in tokens.
    pub max_tokens: Option<u32>,
    /// Texts at which the reply ends.
    pub stop: Vec<String>,
    /// The seed of what is random.
    pub seed: Option<i64>,
    /// How much the model reasons, and that it shows its reasoning where it can.
    pub reasoning: Option<Reasoning>,
    /// Whether tools are called.
    pub tool_choice: ToolChoice,
    /// The schema of a reply that calls no tools.
    pub schema: Option<ReplySchema>,
    /// How long the model may take to begin its reply.
    pub begin_within: Option<Duration>,
    /// How long the model may be silent once it has begun.
    pub silence: Option<Duration>,
}

impl CallOptions {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// How much chance there is in a reply.
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// The temperature as the number that people read: 0.2 as 64 bits is not 0.20000000298.
    #[cfg(any(feature = "models", feature = "openai"))]
    pub(in crate::llm) fn decimal_temperature(&self) -> Option<f64> {
        let decimal = |number: f32| number.to_string().parse().unwrap_or(f64::from(number));
        self.temperature.map(decimal)
    }

    /// The longest reply, in tokens.
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// A text at which the reply ends; several may be set.
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stop.push(text.into());
        self
    }

    /// The seed of what is random.
    pub fn seed(mut self, seed: i64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How much the model reasons, and that it shows its reasoning where it can.
    pub fn reasoning(mut self, reasoning: Reasoning) -> Self {
        self.reasoning = Some(reasoning);
        self
    }

    /// Whether tools are called.
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.tool_choice = choice;
        self
    }

    /// The schema of a reply that calls no tools, and its name for the provider.
    ///
    /// ```
    /// use backstitch::{llm::CallOptions, prelude::*};
    ///
    /// let city = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    /// let options = CallOptions::new().temperature(0.0).schema("City", city);
    /// ```
    pub fn schema(mut self, name: impl Into<Arc<str>>, schema: serde_json::Value) -> Self {
        let name = name.into();
        self.schema = Some(ReplySchema { name, schema });
        self
    }

    /// How long the model may take to begin its reply; else as its client says.
    pub fn begin_within(mut self, limit: Duration) -> Self {
        self.begin_within = Some(limit);
        self
    }

    /// How long the model may be silent once it has begun to reply; else as its client says.
    pub fn silence(mut self, limit: Duration) -> Self {
        self.silence = Some(limit);
        self
    }
}

/// Calls a model and returns its whole reply, of which no client gets pieces.
///
/// # Errors
/// The model's error, or a reply without a piece.
pub async fn complete<M: ChatModel + ?Sized>(
    model: &M,
    messages: &[Message],
    tools: &[Arc<Tool>],
    options: &CallOptions,
) -> anyhow::Result<Message> {
    let mut pieces = model.stream_with(messages, tools, options);
    let mut whole: Option<Sum> = None;
    while let Some(piece) = pieces.try_next().await? {
        match &mut whole {
            Some(whole) => whole.push(&piece),
            None => whole = Some(Sum::of(&piece)),
        }
    }
    let mut whole = whole.ok_or_else(|| anyhow::anyhow!("the model sent nothing"))?;
    Ok(whole.message())
}
