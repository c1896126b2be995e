//! Messages, tools and options in the form that the library for these providers takes.

use std::sync::Arc;

use genai::chat::{
    ChatMessage, ChatOptions, ChatRequest, ContentPart, JsonSpec, MessageContent, ReasoningEffort,
    ToolCall, ToolChoice as Choice, ToolResponse,
};
use serde_json::{Value as Json, json};

use super::{media, provider::Provider, reply::SIGNATURES, schema::schema_for};
use crate::{
    llm::{
        CallOptions, Error, Reasoning, Tool, ToolChoice,
        parts::{Part, parts, text_only},
    },
    message::{Message, Role},
    value::Value,
};

/// The request for a reply.
///
/// # Errors
/// A message that has no form there.
pub(super) fn request(
    provider: Provider,
    messages: &[Message],
    tools: &[Arc<Tool>],
    options: &CallOptions,
) -> Result<ChatRequest, Error> {
    let mut all: Vec<ChatMessage> = Vec::with_capacity(messages.len());
    let mut after_result = false;
    for (index, source) in messages.iter().enumerate() {
        let failed = |reason| Error::Message { index, reason };
        let Some(form) = message(provider, source).map_err(failed)? else {
            continue;
        };
        let is_result = source.role() == Role::Tool;
        // Anthropic wants the results of calls that were made at once in one message.
        let joins = is_result && after_result && provider == Provider::Anthropic;
        match all.last_mut().filter(|_| joins) {
            Some(last) => last.content.extend(form.content),
            None => all.push(form),
        }
        after_result = is_result;
    }
    let request = ChatRequest::new(all);
    // Ollama has no word for this choice.
    let without = provider == Provider::Ollama && options.tool_choice == ToolChoice::None;
    if tools.is_empty() || without {
        return Ok(request);
    }
    let tools = tools.iter().map(|tool| {
        genai::chat::Tool::new(tool.name().to_owned())
            .with_description(tool.description())
            .with_schema(tool.parameters().clone())
    });
    Ok(request.with_tools(tools.collect::<Vec<_>>()))
}

/// The options of a call, and the headers of the request.
///
/// # Errors
/// A seed that providers do not take.
pub(super) fn options(
    provider: Provider,
    tools: &[Arc<Tool>],
    options: &CallOptions,
    traceparent: Option<Arc<str>>,
) -> Result<ChatOptions, Error> {
    // Gemini refuses to show the reasoning of models that do not reason.
    let shows = provider != Provider::Gemini || options.reasoning.is_some();
    let mut out = ChatOptions::default()
        .with_capture_usage(true)
        .with_capture_reasoning_content(shows);
    out.temperature = options.decimal_temperature();
    out.max_tokens = options.max_tokens;
    out.stop_sequences.clone_from(&options.stop);
    let seed = options.seed.map(u64::try_from).transpose();
    out.seed = seed.map_err(|_| Error::Request("a seed is not negative here".to_owned()))?;
    out.reasoning_effort = options.reasoning.map(|reasoning| match reasoning {
        Reasoning::Low => ReasoningEffort::Low,
        Reasoning::Medium => ReasoningEffort::Medium,
        Reasoning::High => ReasoningEffort::High,
    });
    out.tool_choice = match &options.tool_choice {
        _ if tools.is_empty() => None,
        ToolChoice::Auto => None,
        ToolChoice::None => Some(Choice::None),
        ToolChoice::Any => Some(Choice::Required),
        ToolChoice::Tool(name) => Some(Choice::tool(&**name)),
    };
    if let Some(reply) = &options.schema {
        out = out.with_response_format(JsonSpec::new(
            &*reply.name,
            schema_for(provider, reply.schema.clone()),
        ));
    }
    if let Some(header) = traceparent {
        out = out.with_extra_headers(("traceparent", header.to_string()));
    }
    Ok(out)
}

/// The form of a message; none if there is nothing in it.
fn message(provider: Provider, message: &Message) -> Result<Option<ChatMessage>, String> {
    let content = message.content();
    let form = match message.role() {
        Role::Human => ChatMessage::user(human(provider, content)?),
        Role::Ai => ChatMessage::assistant(assistant(provider, message)?),
        Role::System => ChatMessage::system(text_only(content)?),
        Role::Tool => ChatMessage::tool(result(provider, message)?),
        Role::Function => return Err("its type `function` has no form there".to_owned()),
        Role::Chat => return Err("a role of its own has no form there".to_owned()),
        Role::Remove => return Err("it is an order to remove one".to_owned()),
        Role::Other(kind) => return Err(format!("its type `{kind}` is unknown")),
    };
    Ok((!form.content.is_empty()).then_some(form))
}

fn human(provider: Provider, content: &Value) -> Result<MessageContent, String> {
    let mut out = vec![];
    for part in parts(content)? {
        match part {
            // Anthropic refuses empty texts.
            Part::Text(text) if text.is_empty() => {}
            Part::Text(text) => out.push(ContentPart::from_text(text)),
            Part::Reasoning { .. } => {}
            Part::Media(media) => out.push(media::form(provider, media)?),
            Part::Other(part) => return Err(unknown(&part)),
        }
    }
    Ok(MessageContent::from_parts(out))
}

fn unknown(part: &Value) -> String {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or("none");
    format!("its part of type `{kind}` has no form there")
}

fn assistant(provider: Provider, message: &Message) -> Result<MessageContent, String> {
    let mut out = vec![];
    for part in parts(message.content())? {
        match part {
            Part::Text(text) if text.is_empty() => {}
            Part::Text(text) => out.push(ContentPart::from_text(text)),
            // Only signed reasoning goes back, and only to the one who signed it.
            Part::Reasoning {
                text,
                signature: Some(signature),
            } if provider == Provider::Anthropic => {
                out.push(ContentPart::ThoughtSignature(signature));
                out.push(ContentPart::ReasoningContent(text));
            }
            Part::Other(part) if is_redacted(&part) => {
                if provider == Provider::Anthropic {
                    let mut part = part.to_json_value();
                    if let Some(part) = part.as_object_mut() {
                        part.remove("index");
                    }
                    out.push(ContentPart::from_custom(part, None));
                }
            }
            // What other models have made, such as an image, is not taken back.
            Part::Reasoning { .. } | Part::Media(_) | Part::Other(_) => {}
        }
    }
    let signatures = message
        .get("additional_kwargs")
        .and_then(|more| more.get(SIGNATURES));
    for call in message.tool_calls() {
        let id = call.id.as_deref().unwrap_or_default();
        let signature = signatures
            .and_then(|all| all.get(id))
            .and_then(Value::as_str);
        let signature = signature.filter(|_| provider == Provider::Gemini);
        out.push(ContentPart::ToolCall(ToolCall {
            call_id: id.to_owned(),
            fn_name: call.name.to_string(),
            fn_arguments: call.args.to_json_value(),
            thought_signatures: signature.map(|signature| vec![signature.to_owned()]),
        }));
    }
    // Calls with arguments that could not be read have results too, which need them here; arguments are objects.
    let invalid = message.get("invalid_tool_calls").and_then(Value::as_list);
    for call in invalid.unwrap_or_default() {
        let text = |key: &str| call.get(key).and_then(Value::as_str).unwrap_or_default();
        out.push(ContentPart::ToolCall(ToolCall {
            call_id: text("id").to_owned(),
            fn_name: text("name").to_owned(),
            fn_arguments: json!({"unreadable": text("args")}),
            thought_signatures: None,
        }));
    }
    Ok(MessageContent::from_parts(out))
}

fn is_redacted(part: &Value) -> bool {
    part.get("type").and_then(Value::as_str) == Some("redacted_thinking")
}

fn result(provider: Provider, message: &Message) -> Result<MessageContent, String> {
    let id = message
        .tool_call_id()
        .ok_or("it does not say which call it belongs to")?;
    let part = if provider == Provider::Anthropic {
        let failed = message.get("status").and_then(Value::as_str) == Some("error");
        let mut block = json!({
            "type": "tool_result",
            "tool_use_id": id,
            "content": media::result(message.content())?,
        });
        if failed {
            block["is_error"] = Json::Bool(true);
        }
        ContentPart::from_custom(block, None)
    } else {
        let response = ToolResponse::new(id, text_only(message.content())?);
        ContentPart::ToolResponse(match message.name() {
            Some(name) => response.with_fn_name(name),
            None => response,
        })
    };
    Ok(MessageContent::from_parts(vec![part]))
}
