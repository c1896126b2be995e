//! The tools that an MCP server offers, as tools of models.

use std::{collections::HashSet, sync::Arc};

use rmcp::model::CallToolRequestParams;
use serde_json::{Value as Json, json};

use super::{link::Link, outcome};
use crate::{
    extract::Ctx,
    llm::{Tool, ToolOutput},
    value::Value,
};

/// The longest name that models take.
const LONGEST_NAME: usize = 64;
/// The largest description and schema together, in bytes; a model reads all of them at each turn.
const LARGEST_TOOL: usize = 64 << 10;

/// The server's tools that a model can be offered; the others are logged.
pub(super) async fn tools(link: &Arc<Link>, prefix: &str) -> Result<Vec<Arc<Tool>>, String> {
    let mut tools = Vec::new();
    let mut names = HashSet::new();
    for offered in link.list().await? {
        let original = offered.name.to_string();
        match usable(offered, prefix, &mut names) {
            Ok((name, description, parameters)) => {
                let tool = tool(Arc::clone(link), original, name, description, parameters);
                tools.push(Arc::new(tool));
            }
            Err(why) => tracing::warn!(
                server = link.server(),
                tool = original,
                "left out a tool of the MCP server: {why}"
            ),
        }
    }
    Ok(tools)
}

/// Name, description and schema.
pub(super) type Usable = (String, String, Json);

/// What a model is told of a tool, or why it cannot be offered.
pub(super) fn usable(
    offered: rmcp::model::Tool,
    prefix: &str,
    names: &mut HashSet<String>,
) -> Result<Usable, &'static str> {
    let name: String = prefix
        .chars()
        .chain(offered.name.chars())
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => c,
            _ => '_',
        })
        .collect();
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Err("its name is empty or has more than 64 characters");
    }
    let mut parameters = Json::Object(offered.input_schema.as_ref().clone());
    if parameters.get("type").is_some_and(|kind| kind != "object") {
        return Err("its schema is not that of an object");
    }
    if let Some(schema) = parameters.as_object_mut() {
        schema.remove("$schema");
        schema.insert("type".to_owned(), json!("object"));
        if !schema.get("properties").is_some_and(Json::is_object) {
            schema.insert("properties".to_owned(), json!({}));
        }
    }
    let description = offered.description.unwrap_or_default().into_owned();
    if description.len() + parameters.to_string().len() > LARGEST_TOOL {
        return Err("its description and schema have more than 64 KiB");
    }
    if !names.insert(name.clone()) {
        return Err("another one has its name");
    }
    Ok((name, description, parameters))
}

fn tool(
    link: Arc<Link>,
    original: String,
    name: String,
    description: String,
    parameters: Json,
) -> Tool {
    let function = move |args: &Value, ctx: Ctx| {
        let link = Arc::clone(&link);
        let arguments = arguments(args);
        let mut params = CallToolRequestParams::new(original.clone());
        Box::pin(async move {
            params.arguments = arguments?;
            if let Some(traceparent) = ctx.traceparent() {
                let mut meta = rmcp::model::RequestMetaObject::default();
                meta.insert("traceparent".to_owned(), json!(&*traceparent));
                params.meta = Some(meta);
            }
            Ok(ToolOutput::new(outcome::value(link.call(params).await?)?))
        }) as futures::future::BoxFuture<'static, anyhow::Result<ToolOutput>>
    };
    Tool::from_parts(name, description, parameters, Box::new(function))
}

/// The arguments of a call: an object, or none.
fn arguments(args: &Value) -> anyhow::Result<Option<serde_json::Map<String, Json>>> {
    match args.to_json_value() {
        Json::Object(arguments) => Ok(Some(arguments)),
        Json::Null => Ok(None),
        _ => Err(anyhow::anyhow!("the arguments are not an object")),
    }
}
