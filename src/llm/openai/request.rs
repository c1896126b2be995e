//! Messages and tools in the form OpenAI's chat completions take them.

use std::sync::Arc;

use async_openai::types::chat::CreateChatCompletionRequest;
use serde_json::{Value as Json, json};

use crate::{
    llm::{CallOptions, Error, Tool, ToolChoice},
    message::{Message, Role},
    value::Value,
};

/// The request for a streamed reply.
///
/// # Errors
/// A message that has no form there.
pub(super) fn request(
    model: &str,
    messages: &[Message],
    tools: &[Arc<Tool>],
    options: &CallOptions,
) -> Result<CreateChatCompletionRequest, Error> {
    let mut request = CreateChatCompletionRequest {
        model: model.to_owned(),
        ..Default::default()
    };
    for (index, source) in messages.iter().enumerate() {
        let failed = |reason| Error::Message { index, reason };
        let form = message(source).map_err(failed)?;
        let form = serde_json::from_value(form).map_err(|error| failed(error.to_string()))?;
        request.messages.push(form);
    }
    let unsendable = |error: serde_json::Error| Error::Request(error.to_string());
    let usage = serde_json::from_value(json!({"include_usage": true}));
    request.stream_options = Some(usage.map_err(unsendable)?);
    if !tools.is_empty() {
        let tools: Json = tools.iter().map(|tool| function(tool)).collect();
        request.tools = Some(serde_json::from_value(tools).map_err(unsendable)?);
    }
    // As JSON, since servers differ in what they take: what is not set is left out.
    let set = |request: CreateChatCompletionRequest, fields: Json| {
        let mut all = serde_json::to_value(request)?;
        if let (Some(all), Json::Object(fields)) = (all.as_object_mut(), fields) {
            all.extend(fields);
        }
        serde_json::from_value(all)
    };
    let fields = fields(options, !tools.is_empty());
    if fields.as_object().is_some_and(|fields| !fields.is_empty()) {
        request = set(request, fields).map_err(unsendable)?;
    }
    Ok(request)
}

/// The fields of the request that options set.
fn fields(options: &CallOptions, tools: bool) -> Json {
    let mut fields = serde_json::Map::new();
    let mut set = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    set("temperature", options.temperature.map(|t| json!(t)));
    set(
        "max_completion_tokens",
        options.max_tokens.map(|n| json!(n)),
    );
    set("seed", options.seed.map(|seed| json!(seed)));
    set(
        "stop",
        (!options.stop.is_empty()).then(|| json!(options.stop)),
    );
    let choice = match &options.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!("none")),
        ToolChoice::Any => Some(json!("required")),
        ToolChoice::Tool(name) => Some(json!({"type": "function", "function": {"name": &**name}})),
    };
    // Servers refuse a choice among no tools.
    set("tool_choice", choice.filter(|_| tools));
    let schema = options.schema.as_ref().map(|reply| {
        json!({
            "type": "json_schema",
            "json_schema": {"name": &*reply.name, "schema": reply.schema},
        })
    });
    set("response_format", schema);
    Json::Object(fields)
}

fn function(tool: &Tool) -> Json {
    json!({
        "type": "function",
        "function": {
            "name": tool.name(),
            "description": tool.description(),
            "parameters": tool.parameters(),
        },
    })
}

fn message(message: &Message) -> Result<Json, String> {
    let text = message.text();
    let mut out = match message.role() {
        Role::Human => json!({"role": "user", "content": parts(message.content())}),
        Role::Ai => assistant(message, text),
        Role::System => {
            let mark = message
                .get("additional_kwargs")
                .map(|more| &more["__openai_role__"]);
            let developer = mark.is_some_and(|mark| *mark == "developer");
            json!({"role": if developer { "developer" } else { "system" }, "content": text})
        }
        Role::Tool => {
            let id = message
                .tool_call_id()
                .ok_or("it does not say which call it answers")?;
            return Ok(json!({"role": "tool", "content": text, "tool_call_id": id}));
        }
        Role::Function => json!({"role": "function", "content": text}),
        Role::Chat => {
            let role = message
                .get("role")
                .and_then(Value::as_str)
                .unwrap_or_default();
            json!({"role": role, "content": text})
        }
        Role::Remove => return Err("it is an order to remove one".to_owned()),
        Role::Other(kind) => return Err(format!("its type `{kind}` is unknown")),
    };
    if let Some(name) = message.name() {
        out["name"] = name.into();
    }
    Ok(out)
}

fn assistant(message: &Message, text: String) -> Json {
    let function = |id: &str, name: &str, arguments: &str| {
        json!({
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        })
    };
    let calls = message.tool_calls();
    let calls = calls.iter().map(|call| {
        let id = call.id.as_deref().unwrap_or_default();
        function(id, &call.name, &call.args.to_json())
    });
    // Calls with arguments that could not be read have results too, which need them here.
    let invalid = message.get("invalid_tool_calls").and_then(Value::as_list);
    let invalid = invalid.unwrap_or_default().iter().map(|call| {
        let text = |key: &str| call.get(key).and_then(Value::as_str).unwrap_or_default();
        function(text("id"), text("name"), text("args"))
    });
    let calls: Vec<Json> = calls.chain(invalid).collect();
    match (text.is_empty(), calls.is_empty()) {
        (_, true) => json!({"role": "assistant", "content": text}),
        (true, false) => json!({"role": "assistant", "tool_calls": calls}),
        (false, false) => json!({"role": "assistant", "content": text, "tool_calls": calls}),
    }
}

/// The message of a person may contain images and files; texts among them are parts too.
fn parts(content: &Value) -> Json {
    match content.as_list() {
        Some(parts) => parts
            .iter()
            .map(|part| match part.as_str() {
                Some(text) => json!({"type": "text", "text": text}),
                None => part.to_json_value(),
            })
            .collect(),
        None => content.to_json_value(),
    }
}
