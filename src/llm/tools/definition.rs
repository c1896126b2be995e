//! Tools from functions: schemas, checks of arguments, and what a tool requires of its graph.

use std::{future::Future, sync::Arc};

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Tool, ToolOutput};
use crate::{
    extract::{Ctx, Requires},
    value::{self, Value},
};

/// A tool without its function. `#[tool]` writes this; see [`tool`](super::tool) for closures.
#[must_use = "a definition is no tool until it has a function"]
pub struct ToolDefinition {
    name: Arc<str>,
    description: Option<String>,
    requires: fn(&mut Requires),
    return_direct: bool,
}

impl ToolDefinition {
    /// A tool of this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            description: None,
            requires: |_| {},
            return_direct: false,
        }
    }

    /// What it does, for the model; without it the doc comment of the arguments' type counts.
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// What it requires of the graph in which it runs.
    pub fn requires(mut self, requires: fn(&mut Requires)) -> Self {
        self.requires = requires;
        self
    }

    /// Ends an agent with the result of the tool: the model is not called with it.
    pub fn return_direct(mut self, ends: bool) -> Self {
        self.return_direct = ends;
        self
    }

    /// The tool that calls this function.
    pub fn build<Args, Fut>(
        self,
        function: impl Fn(Args, Ctx) -> Fut + Send + Sync + 'static,
    ) -> Arc<Tool>
    where
        Args: DeserializeOwned + JsonSchema + Send + 'static,
        Fut: Future<Output = anyhow::Result<ToolOutput>> + Send + 'static,
    {
        let (parameters, about) = schema::<Args>();
        let function =
            move |args: &Value, ctx: Ctx| -> BoxFuture<'static, anyhow::Result<ToolOutput>> {
                match arguments(args) {
                    Ok(args) => Box::pin(function(args, ctx)),
                    Err(error) => Box::pin(async move { Err(error) }),
                }
            };
        Arc::new(Tool {
            name: self.name,
            description: self.description.unwrap_or(about),
            parameters,
            function: Box::new(function),
            check: Some(Box::new(|args| arguments::<Args>(args).map(drop))),
            requires: self.requires,
            return_direct: self.return_direct,
        })
    }
}

fn arguments<Args: DeserializeOwned>(args: &Value) -> anyhow::Result<Args> {
    let read = value::from_value(args);
    read.map_err(|error| Unusable(format!("the arguments do not fit: {error}")).into())
}

/// Why a call does not reach its tool: models get such errors in any case.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unusable(pub String);

/// The schema of an object in the form that models take, and its description.
pub(crate) fn schema<T: JsonSchema>() -> (serde_json::Value, String) {
    let mut parameters = schemars::schema_for!(T).to_value();
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
    (parameters, description)
}
