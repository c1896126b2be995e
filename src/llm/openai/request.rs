//! Messages and tools in the form OpenAI's chat completions take them.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::{
    llm::{
        CallOptions, Error, Reasoning, Tool, ToolChoice,
        parts::{Kind, Media, Part, Source, parts, text_only},
    },
    message::{Message, Role},
    value::Value,
};

/// The request for a streamed reply. As JSON, since servers differ in what they take: what is not set is left out.
///
/// # Errors
/// A message that has no form there.
pub(super) fn request(
    model: &str,
    messages: &[Message],
    tools: &[Arc<Tool>],
    options: &CallOptions,
) -> Result<Json, Error> {
    let forms = messages
        .iter()
        .enumerate()
        .map(|(index, source)| message(source).map_err(|reason| Error::Message { index, reason }));
    let messages = forms.collect::<Result<Vec<Json>, Error>>()?;
    let mut request = fields(options, !tools.is_empty());
    request["model"] = model.into();
    request["messages"] = messages.into();
    request["stream"] = true.into();
    request["stream_options"] = json!({"include_usage": true});
    if !tools.is_empty() {
        request["tools"] = tools.iter().map(|tool| function(tool)).collect();
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
    set(
        "temperature",
        options.decimal_temperature().map(|t| json!(t)),
    );
    set(
        "max_completion_tokens",
        options.max_tokens.map(|n| json!(n)),
    );
    set("seed", options.seed.map(|seed| json!(seed)));
    set(
        "stop",
        (!options.stop.is_empty()).then(|| json!(options.stop)),
    );
    let effort = options.reasoning.map(|reasoning| match reasoning {
        Reasoning::Low => "low",
        Reasoning::Medium => "medium",
        Reasoning::High => "high",
    });
    set("reasoning_effort", effort.map(Json::from));
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
    let content = message.content();
    let mut out = match message.role() {
        Role::Human => json!({"role": "user", "content": human(content)?}),
        Role::Ai => assistant(message),
        Role::System => {
            let mark = message
                .get("additional_kwargs")
                .map(|more| &more["__openai_role__"]);
            let developer = mark.is_some_and(|mark| *mark == "developer");
            json!({"role": if developer { "developer" } else { "system" }, "content": text_only(content)?})
        }
        Role::Tool => {
            let id = message
                .tool_call_id()
                .ok_or("it does not say which call it answers")?;
            let text = text_only(content)?;
            return Ok(json!({"role": "tool", "content": text, "tool_call_id": id}));
        }
        Role::Function => json!({"role": "function", "content": text_only(content)?}),
        Role::Chat => {
            let role = message
                .get("role")
                .and_then(Value::as_str)
                .unwrap_or_default();
            json!({"role": role, "content": text_only(content)?})
        }
        Role::Remove => return Err("it is an order to remove one".to_owned()),
        Role::Other(kind) => return Err(format!("its type `{kind}` is unknown")),
    };
    if let Some(name) = message.name() {
        out["name"] = name.into();
    }
    Ok(out)
}

/// Reasoning is not taken back.
fn assistant(message: &Message) -> Json {
    let text = message.text();
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
fn human(content: &Value) -> Result<Json, String> {
    if let Some(text) = content.as_str() {
        return Ok(text.into());
    }
    let all = parts(content)?.into_iter().map(|part| match part {
        Part::Text(text) => Ok(json!({"type": "text", "text": text})),
        Part::Media(media) => form(media),
        Part::Reasoning { .. } => Err("reasoning is a model's".to_owned()),
        // Servers of others have further parts.
        Part::Other(part) => Ok(part.to_json_value()),
    });
    all.collect()
}

fn form(media: Media) -> Result<Json, String> {
    // Bytes that are not what they claim are found here and not by the provider.
    media.as_text()?;
    let data = |mime: Option<&str>, data: &str| -> Result<String, String> {
        let mime = mime.ok_or("its part has no `mime_type`")?;
        Ok(format!("data:{mime};base64,{data}"))
    };
    match (media.kind, &media.source) {
        (Kind::Image, Source::Url(url)) => {
            Ok(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        (Kind::Image, Source::Base64(bytes)) => {
            let url = data(media.mime.as_deref(), bytes)?;
            Ok(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        (Kind::File, Source::Base64(bytes)) => {
            let name = media.name.as_deref().unwrap_or("file");
            let data = data(media.mime.as_deref(), bytes)?;
            Ok(json!({"type": "file", "file": {"filename": name, "file_data": data}}))
        }
        (Kind::File, Source::Id(id)) => Ok(json!({"type": "file", "file": {"file_id": id}})),
        (Kind::Audio, Source::Base64(data)) => {
            let format = match media.mime.as_deref() {
                Some("audio/wav" | "audio/x-wav") => "wav",
                Some("audio/mp3" | "audio/mpeg") => "mp3",
                _ => return Err("OpenAI takes audio as `audio/wav` or `audio/mpeg`".to_owned()),
            };
            Ok(json!({"type": "input_audio", "input_audio": {"data": data, "format": format}}))
        }
        (Kind::Video, _) => Err("OpenAI does not take a video".to_owned()),
        (kind, Source::Url(_)) => Err(format!(
            "OpenAI does not fetch {}: it takes its `base64`",
            kind.name()
        )),
        (kind, Source::Id(_)) => Err(format!("OpenAI does not take {} by its id", kind.name())),
    }
}
