//! Converts every form in which clients and nodes write a message into the stored form.

use std::sync::Arc;

use super::Error;
use super::defaults::is_default;
use super::id_length::{ID_MAX, has_more_than};
use crate::channel::as_overwrite;
use crate::value::{Map, Value};

/// One message-like value in stored form.
///
/// Accepted are a text (a human message), a `[role, content]` pair, and a map with `type` or
/// `role`: LangChain's own form, OpenAI's (`user`, `assistant`, `developer`, `tool_calls` with
/// `function` and JSON text) and chunks, which become whole messages. A value that is in
/// stored form already is shared, not copied. Ids are not minted here, see
/// [`mint_ids`](super::mint_ids).
///
/// # Errors
/// A part of the message is missing or of the wrong kind.
pub fn coerce(value: &Value) -> Result<Value, Error> {
    match value {
        Value::Map(map) => {
            let message = if is_stored_form(map) {
                value.clone()
            } else {
                normalise(map)?
            };
            match message.get("id").and_then(Value::as_str) {
                Some(id) if !is_id(id) => Err(Error::IdForm),
                _ => Ok(message),
            }
        }
        Value::Str(text) => Ok(from_parts("human", Value::Str(text.clone()))),
        Value::List(pair) => match pair.as_slice() {
            [Value::Str(role), content] => {
                let message = from_parts(role, content.clone());
                coerce(&message)
            }
            _ => Err(Error::NotAMessage("list")),
        },
        other => Err(Error::NotAMessage(other.type_name())),
    }
}

/// Whether a text may be the id of a message; one of a new message may have to be shorter, see
/// [`is_too_long`](super::is_too_long).
pub fn is_id(text: &str) -> bool {
    // Nearly all are, and each message of a conversation is looked at in each turn.
    if text.is_ascii() {
        return text.len() <= ID_MAX && !text.bytes().any(|byte| byte.is_ascii_control());
    }
    !has_more_than(text, ID_MAX) && !text.contains(char::is_control)
}

/// The ids of the messages of a write, which has one message or several in any form that [`coerce`] takes.
pub fn ids_in(write: &Value) -> impl Iterator<Item = &Arc<str>> {
    let messages = as_overwrite(write).unwrap_or(write);
    let messages = messages
        .as_list()
        .unwrap_or_else(|| std::slice::from_ref(messages));
    messages.iter().filter_map(|message| {
        let id = match message.get("id")? {
            // The name of a class, whose fields stand beside it.
            Value::List(_) => message.get("kwargs")?.get("id")?,
            id => id,
        };
        match id {
            Value::Str(id) => Some(id),
            _ => None,
        }
    })
}

/// Whether a message is in stored form and has an id.
pub(super) fn is_identified(message: &Value) -> bool {
    let Value::Map(map) = message else {
        return false;
    };
    matches!(map.get("id"), Some(Value::Str(_))) && is_stored_form(map)
}

/// A list of messages, or a single one, as a list in stored form.
///
/// # Errors
/// As [`coerce`], for the first value that is no message.
pub fn coerce_list(value: &Value) -> Result<Vec<Value>, Error> {
    match value {
        Value::List(items) => items.iter().map(coerce).collect(),
        single => Ok(vec![coerce(single)?]),
    }
}

fn from_parts(role: &str, content: Value) -> Value {
    Value::map(Map::from([
        ("type", Value::str(role)),
        ("content", content),
    ]))
}

/// The stored word for a word that clients use.
fn canonical(kind: &str) -> &str {
    match kind {
        "user" | "HumanMessageChunk" => "human",
        "assistant" | "AIMessageChunk" => "ai",
        "developer" | "SystemMessageChunk" => "system",
        "ToolMessageChunk" => "tool",
        "FunctionMessageChunk" => "function",
        "ChatMessageChunk" => "chat",
        "RemoveMessage" => "remove",
        other => other,
    }
}

fn is_stored_form(map: &Map) -> bool {
    let Some(Value::Str(kind)) = map.get("type") else {
        return false;
    };
    if canonical(kind) != &**kind || &**kind == "constructor" {
        return false;
    }
    let mut has_content = false;
    let mut has_id = false;
    for (key, value) in map {
        let fits = match &**key {
            "content" => {
                has_content = matches!(value, Value::Str(_) | Value::List(_));
                has_content
            }
            "id" => {
                has_id = matches!(value, Value::Str(_));
                has_id
            }
            "role" => &**kind == "chat",
            "tool_calls" => {
                !is_default(kind, key, value)
                    && value
                        .as_list()
                        .is_some_and(|calls| calls.iter().all(is_stored_call))
            }
            _ => !is_default(kind, key, value),
        };
        if !fits {
            return false;
        }
    }
    has_content && (has_id || &**kind != "remove")
}

fn is_stored_call(call: &Value) -> bool {
    call.as_map().is_some_and(|call| {
        call.len() == 4
            && matches!(call.get("name"), Some(Value::Str(_)))
            && matches!(call.get("args"), Some(Value::Map(_)))
            && matches!(call.get("id"), Some(Value::Str(_) | Value::Null))
            && call.get("type").and_then(Value::as_str) == Some("tool_call")
    })
}

fn normalise(map: &Map) -> Result<Value, Error> {
    if let Some(inner) = constructor(map) {
        return coerce(&inner);
    }
    let word = match (map.get("type"), map.get("role")) {
        (Some(Value::Str(kind)), _) if canonical(kind) == "chat" => kind,
        (_, Some(Value::Str(role))) => role,
        (Some(Value::Str(kind)), None | Some(Value::Null)) => kind,
        _ => return Err(Error::NoRole),
    };
    let kind = canonical(word);
    let is_chunk = word.ends_with("Chunk") && kind != &**word;
    let id = match map.get("id") {
        None | Some(Value::Null) => None,
        Some(Value::Str(id)) => Some(id.clone()),
        Some(Value::Int(id)) => Some(Arc::from(id.to_string())),
        Some(other) => return Err(Error::Id(other.type_name())),
    };
    if kind == "remove" && id.is_none() {
        return Err(Error::RemoveWithoutId);
    }

    let mut out = Map::with_capacity(map.len() + 1);
    out.insert("type", kind);
    out.insert("content", content(kind, map)?);
    if let Some(id) = id {
        out.insert("id", id);
    }
    for (key, value) in map {
        match &**key {
            "type" | "content" | "id" => {}
            "role" if kind != "chat" => {}
            "tool_call_chunks" | "chunk_position" if is_chunk => {}
            _ if is_default(kind, key, value) => {}
            "tool_calls" if kind == "ai" => {
                out.insert(key.clone(), tool_calls(value)?);
            }
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    if &**word == "developer" {
        mark_developer(&mut out);
    }
    Ok(Value::map(out))
}

fn content(kind: &str, map: &Map) -> Result<Value, Error> {
    match map.get("content") {
        Some(content @ (Value::Str(_) | Value::List(_))) => Ok(content.clone()),
        Some(Value::Null) => Ok("".into()),
        Some(other) => Err(Error::Content(other.type_name())),
        // A model that only calls tools may have no text, and a removal never has one.
        None if kind == "remove" || map.contains_key("tool_calls") => Ok("".into()),
        None => Err(Error::NoContent(kind.into())),
    }
}

/// OpenAI has the roles `developer` and `system`; LangChain stores the difference beside the role.
fn mark_developer(message: &mut Map) {
    const MARK: &str = "__openai_role__";
    match message
        .get_mut("additional_kwargs")
        .and_then(Value::make_map_mut)
    {
        Some(more) => {
            more.insert(MARK, "developer");
        }
        None => {
            let mark = Map::from([(MARK, Value::from("developer"))]);
            message.insert("additional_kwargs", mark);
        }
    }
}

/// The message inside LangChain's serialised form
/// `{"lc": 1, "type": "constructor", "id": [..., "HumanMessage"], "kwargs": {...}}`.
fn constructor(map: &Map) -> Option<Value> {
    if map.get("type")?.as_str()? != "constructor" {
        return None;
    }
    let class = map.get("id")?.as_list()?.last()?.as_str()?;
    let mut inner = map.get("kwargs")?.as_map()?.clone();
    if !inner.contains_key("type") {
        let kind = match class.strip_suffix("Chunk").unwrap_or(class) {
            "HumanMessage" => "human",
            "AIMessage" => "ai",
            "SystemMessage" => "system",
            "ToolMessage" => "tool",
            "FunctionMessage" => "function",
            "ChatMessage" => "chat",
            "RemoveMessage" => "remove",
            _ => return None,
        };
        inner.insert("type", kind);
    }
    Some(Value::map(inner))
}

fn tool_calls(calls: &Value) -> Result<Value, Error> {
    let Some(calls) = calls.as_list() else {
        return Err(Error::ToolCall {
            index: 0,
            reason: format!("\"tool_calls\" is a list, not a {}", calls.type_name()),
        });
    };
    calls
        .iter()
        .enumerate()
        .map(|(index, call)| tool_call(call).map_err(|reason| Error::ToolCall { index, reason }))
        .collect::<Result<Vec<Value>, Error>>()
        .map(Value::list)
}

fn tool_call(call: &Value) -> Result<Value, String> {
    if is_stored_call(call) {
        return Ok(call.clone());
    }
    let Some(map) = call.as_map() else {
        return Err(format!("it is an object, not a {}", call.type_name()));
    };
    // OpenAI nests name and arguments, LangChain has them at the top.
    let (source, args) = match map.get("function").and_then(Value::as_map) {
        Some(function) => (function, function.get("arguments")),
        None => (map, map.get("args")),
    };
    let name = match source.get("name") {
        Some(Value::Str(name)) => name.clone(),
        _ => return Err("it has no name".into()),
    };
    let args = match args {
        None | Some(Value::Null) => Value::map(Map::new()),
        Some(args @ Value::Map(_)) => args.clone(),
        Some(Value::Str(text)) if text.is_empty() => Value::map(Map::new()),
        Some(Value::Str(text)) => match Value::from_json_slice(text.as_bytes()) {
            Ok(args @ Value::Map(_)) => args,
            Ok(_) => return Err("its arguments are no JSON object".into()),
            Err(error) => return Err(format!("its arguments are {error}")),
        },
        Some(other) => return Err(format!("its arguments are a {}", other.type_name())),
    };
    let mut out = Map::from([
        ("name", Value::Str(name)),
        ("args", args),
        ("id", map.get("id").cloned().unwrap_or_default()),
        ("type", "tool_call".into()),
    ]);
    for (key, value) in map {
        if !matches!(&**key, "function" | "type") && !out.contains_key(key) {
            out.insert(key.clone(), value.clone());
        }
    }
    Ok(Value::map(out))
}
