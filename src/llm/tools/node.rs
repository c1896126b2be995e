//! The node that runs tool calls.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{Tool, ToolOutput, definition::Unusable, shown};
use crate::{
    extract::{Arg, Ctx, FromTask, Rejection, Report, Requires},
    graph::{Handler, IntoOutput, Output},
    message::{Message, ToolCall},
    state::{self, merge},
    value::Value,
};

/// The channel of the conversation.
const MESSAGES: &str = "messages";

/// The tool call that started a task, `goto("tools").with(call)`, as a parameter of nodes and tools.
#[derive(Clone, Debug)]
pub struct Call(pub ToolCall);

impl FromTask for Call {
    fn requires(requires: &mut Requires) {
        Arg::<ToolCall>::requires(requires);
        let messages = state::Channel::new::<Vec<Message>>(MESSAGES, merge::messages());
        requires.channels.push(messages);
    }

    fn from_task(ctx: &Ctx) -> Result<Self, Rejection> {
        Arg::from_task(ctx).map(|Arg(call)| Self(call))
    }
}

/// The result of a tool call: a tool's message for the channel `messages`, and what the tool changes in the graph.
#[derive(Debug)]
pub struct ToolResult {
    message: Message,
    output: Output,
}

impl ToolResult {
    /// The message of a tool.
    pub fn new(message: Message) -> Self {
        Self {
            message,
            output: Output::default(),
        }
    }

    /// The tool's message.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The tool's message; what the tool changes in the graph is dropped.
    pub fn into_message(self) -> Message {
        self.message
    }

    /// The result with another message.
    #[must_use]
    pub fn with_message(mut self, message: Message) -> Self {
        self.message = message;
        self
    }
}

impl<S> IntoOutput<S> for ToolResult {
    fn into_output(self) -> anyhow::Result<Output> {
        let mut output = self.output;
        // After the tool's own update: one that passes a conversation on ends with the call.
        let results = Value::list(vec![self.message.into()]);
        output.writes.push((MESSAGES.into(), results));
        Ok(output)
    }
}

/// A node that runs one tool call and adds the result to the channel `messages`. Fan out to it,
/// one task per call:
///
/// ```
/// # use backstitch::prelude::*;
/// # #[derive(State)]
/// # struct Chat {
/// #     #[state(messages)]
/// #     messages: Vec<Message>,
/// # }
/// fn pending_calls(chat: &Chat) -> Vec<Target> {
///     let calls = chat.messages.last().map(Message::tool_calls).unwrap_or_default();
///     if calls.is_empty() {
///         return vec![goto(END)];
///     }
///     calls.iter().map(|call| goto("tools").with(call)).collect()
/// }
/// # async fn agent(_: Chat) {}
/// # let tools: Vec<std::sync::Arc<Tool>> = vec![];
/// Graph::<Chat>::new()
///     .node("agent", agent)
///     .node("tools", tool_node(tools))
///     .edge(START, "agent")
///     .route("agent", pending_calls, ["tools", END])
///     .edge("tools", "agent")
///     .build()?;
/// # Ok::<_, backstitch::graph::Invalid>(())
/// ```
///
/// A tool that fails, is unknown or cannot read its arguments does not fail the run: the model
/// gets the error's text as the result and can do better. Tools may use their [`Ctx`] as nodes
/// do, for events, durable steps and interrupts.
pub fn tool_node(tools: impl IntoIterator<Item = Arc<Tool>>) -> ToolNode {
    ToolNode {
        tools: tools.into_iter().collect(),
    }
}

/// The node of [`tool_node`].
#[derive(Clone)]
pub struct ToolNode {
    tools: Arc<[Arc<Tool>]>,
}

/// Marks the tool node among the functions that are nodes.
#[doc(hidden)]
pub enum ByTools {}

impl<S> Handler<S, ByTools> for ToolNode {
    fn requires(&self, requires: &mut Requires) {
        Call::requires(requires);
        for (index, tool) in self.tools.iter().enumerate() {
            tool.requires(requires);
            if self.tools[..index]
                .iter()
                .any(|other| other.name == tool.name)
            {
                requires.duplicate_tools.push(tool.name.clone());
            }
        }
    }

    fn call(&self, ctx: &Ctx) -> BoxFuture<'static, anyhow::Result<Output>> {
        let (tools, ctx) = (self.tools.clone(), ctx.clone());
        Box::pin(async move {
            let Call(call) = Call::from_task(&ctx)?;
            let result = run_tool(&tools, &call, ctx).await;
            <ToolResult as IntoOutput<S>>::into_output(result)
        })
    }
}

/// Runs the tool that a model requested and returns its result, for nodes that do more than a
/// [`tool_node`].
///
/// It does not fail: what goes wrong is the result, as with a [`tool_node`].
pub async fn run_tool(tools: &[Arc<Tool>], call: &ToolCall, ctx: Ctx) -> ToolResult {
    match try_tool(tools, call, ctx).await {
        Ok(result) => result,
        Err(error) => failure(call, &error),
    }
}

/// The message that tells a model of a call that failed.
pub(crate) fn failure(call: &ToolCall, error: &anyhow::Error) -> ToolResult {
    tracing::debug!(tool = %call.name, error = format!("{error:#}"), "a tool failed");
    ToolResult::new(error_message(call, format!("Error: {error:#}")))
}

/// The message in place of the result of a call that failed or did not run.
pub(crate) fn error_message(call: &ToolCall, text: impl Into<String>) -> Message {
    message(call, text.into()).with_field("status", "error")
}

/// A tool's message with this content.
pub(crate) fn message(call: &ToolCall, content: impl Into<Value>) -> Message {
    let id = call.id.clone().unwrap_or_default();
    Message::tool(content, id).with_name(call.name.clone())
}

/// As [`run_tool`], with the error of the tool.
pub(crate) async fn try_tool(
    tools: &[Arc<Tool>],
    call: &ToolCall,
    ctx: Ctx,
) -> anyhow::Result<ToolResult> {
    let Some(tool) = tools.iter().find(|tool| tool.name == call.name) else {
        let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
        return Err(Unusable(format!(
            "there is no tool `{}`, only: {}",
            call.name,
            names.join(", ")
        ))
        .into());
    };
    let id = call.id.clone().unwrap_or_default();
    let run = tool.start(&call.args, Some(id), &ctx);
    let result = (tool.function)(&call.args, ctx.clone()).await;
    match result.and_then(ToolOutput::into_parts) {
        Ok((content, artifact, output)) => {
            let mut message = message(call, content);
            if let Some(artifact) = artifact {
                message = message.with_field("artifact", artifact);
            }
            ctx.report(Report::ToolEnd(run, message.clone().into()));
            Ok(ToolResult { message, output })
        }
        Err(error) => {
            ctx.report(Report::ToolError(run, shown(&error)));
            Err(error)
        }
    }
}
