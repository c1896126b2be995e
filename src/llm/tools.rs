//! Functions that models may call, and the node that calls them.

use std::{future::Future, sync::Arc};

use anyhow::Context;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::{
    error::{Raised, one_line},
    extract::{Arg, Ctx, FromTask, Rejection, Report, Requires, ToolRun},
    graph::{IntoOutput, Output},
    message::{Message, ToolCall},
    state::{self, merge},
    value::{self, Map, Value},
};

/// The channel of the conversation.
const MESSAGES: &str = "messages";

type Function = dyn Fn(&Value, Ctx) -> BoxFuture<'static, anyhow::Result<Value>> + Send + Sync;

/// A function that a model may call.
pub struct Tool {
    name: Arc<str>,
    description: String,
    parameters: serde_json::Value,
    function: Box<Function>,
}

/// Turns an async function into a tool. Models see `name`, the JSON schema of the arguments and,
/// as the tool's description, the doc comment of the arguments' type.
///
/// ```
/// use backstitch::prelude::*;
///
/// /// Looks up the weather in a city.
/// #[derive(Deserialize, JsonSchema)]
/// struct Weather {
///     /// Its name in English.
///     city: String,
/// }
///
/// async fn weather(args: Weather, _: Ctx) -> Result<String> {
///     Ok(format!("21 °C and clear in {}", args.city))
/// }
///
/// let weather = tool("weather", weather);
/// assert_eq!(weather.description(), "Looks up the weather in a city.");
/// assert_eq!(weather.parameters()["properties"]["city"]["type"], "string");
/// ```
pub fn tool<Args, Out, Fut>(
    name: impl Into<Arc<str>>,
    function: impl Fn(Args, Ctx) -> Fut + Send + Sync + 'static,
) -> Arc<Tool>
where
    Args: DeserializeOwned + JsonSchema,
    Out: Serialize,
    Fut: Future<Output = anyhow::Result<Out>> + Send + 'static,
{
    let mut parameters = schemars::schema_for!(Args).to_value();
    let mut description = String::new();
    if let Some(schema) = parameters.as_object_mut() {
        if let Some(serde_json::Value::String(text)) = schema.remove("description") {
            description = text;
        }
        schema.remove("$schema");
        schema.remove("title");
        // Some servers require the field, and a type without fields has none.
        schema.entry("properties").or_insert_with(|| json!({}));
    }
    let function = move |args: &Value, ctx: Ctx| -> BoxFuture<'static, anyhow::Result<Value>> {
        match value::from_value(args) {
            Ok(args) => {
                let work = function(args, ctx);
                Box::pin(async move { Ok(value::to_value(&work.await?)?) })
            }
            Err(error) => Box::pin(async move { Err(error).context("the arguments do not fit") }),
        }
    };
    Arc::new(Tool {
        name: name.into(),
        description,
        parameters,
        function: Box::new(function),
    })
}

impl Tool {
    /// A tool whose schema is known only while the program runs.
    #[cfg(feature = "mcp")]
    pub(super) fn from_parts(
        name: impl Into<Arc<str>>,
        description: String,
        parameters: serde_json::Value,
        function: Box<Function>,
    ) -> Self {
        Self {
            name: name.into(),
            description,
            parameters,
            function,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it does; empty without a description.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// JSON schema of its arguments.
    pub fn parameters(&self) -> &serde_json::Value {
        &self.parameters
    }

    /// Calls it. Subscribers of `events` see the call and its result.
    ///
    /// # Errors
    /// Arguments of another shape, and what the function itself returns.
    pub async fn call(&self, args: &Value, ctx: Ctx) -> anyhow::Result<Value> {
        let run = self.start(args, None, &ctx);
        let result = (self.function)(args, ctx.clone()).await;
        match &result {
            Ok(output) => ctx.report(Report::ToolEnd(run, output.clone())),
            Err(error) => ctx.report(Report::ToolError(run, shown(error))),
        }
        result
    }

    /// Reports that it is called.
    fn start(&self, args: &Value, call: Option<Arc<str>>, ctx: &Ctx) -> Arc<ToolRun> {
        let run = Arc::new(ToolRun {
            id: uuid::Uuid::now_v7(),
            name: self.name.clone(),
            input: args.clone(),
            call,
        });
        ctx.report(Report::ToolStart(run.clone()));
        run
    }
}

/// The parameter of a [`tool_node`]: the tool call that started its task, `goto("tools").with(call)`.
pub struct Call(ToolCall);

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

/// The result of a [`tool_node`]: a tool's message for the channel `messages`.
pub struct ToolResult(Message);

impl<S> IntoOutput<S> for ToolResult {
    fn into_output(self) -> anyhow::Result<Output> {
        let results = Value::list(vec![self.0.into()]);
        Ok(Output::update([(MESSAGES, results)]))
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
/// # let tools = vec![];
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
pub fn tool_node(
    tools: impl IntoIterator<Item = Arc<Tool>>,
) -> impl Fn(Call, Ctx) -> BoxFuture<'static, ToolResult> + Send + Sync + 'static {
    let tools: Arc<[Arc<Tool>]> = tools.into_iter().collect();
    move |Call(call), ctx| {
        let tools = tools.clone();
        Box::pin(async move { ToolResult(run_tool(&tools, &call, ctx).await) })
    }
}

/// Runs the tool that a model requested and returns the message with its result, for nodes that call
/// several tools in one task; [`tool_node`] runs each in a task of its own.
///
/// It does not fail: what goes wrong is the result, as with a [`tool_node`].
pub async fn run_tool(tools: &[Arc<Tool>], call: &ToolCall, ctx: Ctx) -> Message {
    let id = call.id.clone().unwrap_or_default();
    let message = |content: Value| Message::tool(content, id.clone()).with_name(call.name.clone());
    let failed = |error: &anyhow::Error| {
        tracing::debug!(tool = %call.name, error = format!("{error:#}"), "a tool failed");
        message(format!("Error: {error:#}").into()).with_field("status", "error")
    };
    let Some(tool) = tools.iter().find(|tool| tool.name == call.name) else {
        let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
        return failed(&anyhow::anyhow!(
            "there is no tool `{}`, only: {}",
            call.name,
            names.join(", ")
        ));
    };
    let run = tool.start(&call.args, Some(id.clone()), &ctx);
    match (tool.function)(&call.args, ctx.clone()).await {
        Ok(output) => {
            let message = message(match output {
                text @ Value::Str(_) => text,
                other => other.to_json().into(),
            });
            ctx.report(Report::ToolEnd(run, message.clone().into()));
            message
        }
        Err(error) => {
            ctx.report(Report::ToolError(run, shown(&error)));
            failed(&error)
        }
    }
}

/// Class and message of an error, as clients see them.
fn shown(error: &anyhow::Error) -> Value {
    let (class, message) = match error.downcast_ref::<Raised>() {
        Some(raised) => (raised.class.clone(), raised.message.clone()),
        None => ("ToolError".to_owned(), one_line(error)),
    };
    Value::map(Map::from([
        ("error", class.into()),
        ("message", message.into()),
    ]))
}

#[cfg(test)]
mod tests;
