//! What tools return: content for the model, and commands to the graph.

use serde::Serialize;

use crate::{
    graph::{IntoOutput, Output},
    state::{State, Target},
    value::{self, Value},
};

/// The result of a tool: content for the model, an artifact that only the program reads, and what changes in
/// the graph.
///
/// ```
/// use backstitch::{llm::ToolOutput, prelude::*};
///
/// #[derive(State)]
/// struct Order {
///     #[state(messages)]
///     messages: Vec<Message>,
///     address: Option<String>,
/// }
///
/// /// Changes the address of the order.
/// #[tool]
/// async fn set_address(address: String) -> ToolOutput {
///     ToolOutput::new("The address is stored.").update(Order::update().address(address))
/// }
/// ```
#[derive(Debug)]
#[must_use = "an output does nothing until the tool returns it"]
pub struct ToolOutput {
    content: Value,
    artifact: Option<Value>,
    output: anyhow::Result<Output>,
}

impl ToolOutput {
    /// A result with this content: texts as they are, and lists of texts, images and files in the form of content of
    /// messages, such as `[{"type": "image", "base64": "…", "mime_type": "image/png"}]`; other values as JSON. A model
    /// that takes only texts from tools reads what was left out.
    pub fn new(content: impl Into<Value>) -> Self {
        Self {
            content: content.into(),
            artifact: None,
            output: Ok(Output::default()),
        }
    }

    /// Adds a value that is stored with the message and not shown to the model.
    pub fn artifact(mut self, artifact: impl Into<Value>) -> Self {
        self.artifact = Some(artifact.into());
        self
    }

    /// Adds an update of the graph's state, or a command with targets.
    pub fn update<S>(mut self, update: impl IntoOutput<S>) -> Self {
        self.output = self.output.and_then(|mut all| {
            let one = update.into_output()?;
            all.writes.extend(one.writes);
            all.goto.extend(one.goto);
            all.to_parent |= one.to_parent;
            Ok(all)
        });
        self
    }

    /// Adds what runs next, beside what follows the tools anyway.
    pub fn goto(mut self, target: impl Into<Target>) -> Self {
        let target = target.into();
        self.output = self.output.and_then(|mut all| {
            all.goto.push(target.try_into()?);
            Ok(all)
        });
        self
    }

    /// Addresses result, update and targets to the graph in which this one runs.
    pub fn to_parent(mut self) -> Self {
        if let Ok(output) = &mut self.output {
            output.to_parent = true;
        }
        self
    }

    /// The content for the model.
    pub fn content(&self) -> &Value {
        &self.content
    }

    pub(super) fn into_content(self) -> Value {
        self.content
    }

    /// The content as it is in a message, the artifact, and what changes in the graph.
    pub(super) fn into_parts(self) -> anyhow::Result<(Value, Option<Value>, Output)> {
        let content = match self.content {
            text @ Value::Str(_) => text,
            blocks if is_content(&blocks) => blocks,
            other => other.to_json().into(),
        };
        Ok((content, self.artifact, self.output?))
    }
}

/// Whether a value is content of a message, and not data that only looks like it. Without clients of models there is
/// nobody who reads any.
fn is_content(value: &Value) -> bool {
    #[cfg(feature = "openai")]
    let is_content = crate::llm::parts::is_content(value);
    #[cfg(not(feature = "openai"))]
    let is_content = {
        let _ = value;
        false
    };
    is_content
}

/// Anything that a tool may return: a value, or a [`ToolOutput`].
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    note = "it returns a text, any other type with `Serialize` (see `#[data]`), a `ToolOutput`, or a `Result` of one of these"
)]
pub trait IntoToolOutput {
    /// The result.
    ///
    /// # Errors
    /// A value that cannot be encoded.
    fn into_tool_output(self) -> anyhow::Result<ToolOutput>;
}

impl<T: Serialize> IntoToolOutput for T {
    fn into_tool_output(self) -> anyhow::Result<ToolOutput> {
        Ok(ToolOutput::new(value::to_value(&self)?))
    }
}

impl IntoToolOutput for ToolOutput {
    fn into_tool_output(self) -> anyhow::Result<ToolOutput> {
        Ok(self)
    }
}

/// A tool may return an update of a state alone: the model reads that it was made.
impl<S: State> IntoToolOutput for crate::state::Command<S> {
    fn into_tool_output(self) -> anyhow::Result<ToolOutput> {
        Ok(ToolOutput::new("Done.").update(self))
    }
}
