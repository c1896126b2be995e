//! Functions that models may call, and the node that calls them.

use std::{future::Future, sync::Arc};

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{
    error::{Raised, one_line},
    extract::{Ctx, Report, Requires, ToolRun},
    value::{Map, Value},
};

pub(crate) mod definition;
pub(crate) mod node;
mod output;

pub use definition::ToolDefinition;
pub use node::{Call, ToolNode, ToolResult, run_tool, tool_node};
pub use output::{IntoToolOutput, ToolOutput};

type Function = dyn Fn(&Value, Ctx) -> BoxFuture<'static, anyhow::Result<ToolOutput>> + Send + Sync;
type Check = dyn Fn(&Value) -> anyhow::Result<()> + Send + Sync;

/// A function that a model may call: `#[tool]` makes one of an async function, [`tool`] of a closure.
pub struct Tool {
    name: Arc<str>,
    description: String,
    parameters: serde_json::Value,
    function: Box<Function>,
    /// Whether arguments fit, where that is known before the call.
    check: Option<Box<Check>>,
    /// What the tool requires of the graph.
    requires: fn(&mut Requires),
    return_direct: bool,
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
    Args: DeserializeOwned + JsonSchema + Send + 'static,
    Out: IntoToolOutput,
    Fut: Future<Output = anyhow::Result<Out>> + Send + 'static,
{
    let function = move |args: Args, ctx: Ctx| {
        let work = function(args, ctx);
        async move { work.await?.into_tool_output() }
    };
    ToolDefinition::new(name).build(function)
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
            check: None,
            requires: |_| {},
            return_direct: false,
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

    /// Whether an agent ends with its result instead of calling the model with it.
    pub fn is_return_direct(&self) -> bool {
        self.return_direct
    }

    /// Checks arguments without calling the tool. Those of tools at MCP servers are checked there.
    ///
    /// # Errors
    /// They do not fit the parameters.
    pub fn check(&self, args: &Value) -> anyhow::Result<()> {
        match &self.check {
            Some(check) => check(args),
            None => Ok(()),
        }
    }

    /// Adds what it requires of the graph in which it runs.
    pub(super) fn requires(&self, requires: &mut Requires) {
        (self.requires)(requires);
    }

    /// Calls it and returns the content of its result. Subscribers of `events` see the call and its result.
    ///
    /// # Errors
    /// Arguments of another shape, and what the function itself returns.
    pub async fn call(&self, args: &Value, ctx: Ctx) -> anyhow::Result<Value> {
        let run = self.start(args, None, &ctx);
        let result = (self.function)(args, ctx.clone()).await;
        match &result {
            Ok(output) => ctx.report(Report::ToolEnd(run, output.content().clone())),
            Err(error) => ctx.report(Report::ToolError(run, shown(error))),
        }
        Ok(result?.into_content())
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
