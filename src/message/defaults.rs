//! LangChain's default fields: left out where messages are stored, filled in where they are shown.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use super::coerce::coerce;
use crate::value::{Map, Value};

/// Whether a field has its default, so that it can be left out.
pub(super) fn is_default(kind: &str, key: &str, value: &Value) -> bool {
    match key {
        "name" | "id" => value.is_null(),
        "additional_kwargs" | "response_metadata" => {
            matches!(value, Value::Map(map) if map.is_empty())
        }
        "tool_calls" | "invalid_tool_calls" if kind == "ai" => match value {
            Value::List(items) => items.is_empty(),
            other => other.is_null(),
        },
        "usage_metadata" => kind == "ai" && value.is_null(),
        "artifact" | "tool_call_id" => kind == "tool" && value.is_null(),
        "status" => kind == "tool" && value.as_str() == Some("success"),
        _ => false,
    }
}

/// What all messages share that are shown: the names of the fields, and what is empty.
struct Shared {
    names: HashMap<&'static str, Arc<str>>,
    map: Value,
    list: Value,
    text: Value,
}

static SHARED: LazyLock<Shared> = LazyLock::new(|| Shared {
    names: NAMES.iter().map(|name| (*name, Arc::from(*name))).collect(),
    map: Value::map(Map::new()),
    list: Value::list(Vec::new()),
    text: "".into(),
});

const NAMES: [&str; 14] = [
    "content",
    "additional_kwargs",
    "response_metadata",
    "type",
    "name",
    "id",
    "tool_calls",
    "invalid_tool_calls",
    "usage_metadata",
    "tool_call_chunks",
    "chunk_position",
    "tool_call_id",
    "artifact",
    "status",
];

fn empty_map() -> Value {
    SHARED.map.clone()
}

fn empty_list() -> Value {
    SHARED.list.clone()
}

/// Messages as LangChain dumps them: every field of the type, in its order, unknown ones last.
///
/// Takes a message or a list; other values stay as they are.
pub fn with_defaults(value: &Value) -> Value {
    match value {
        Value::List(items) => Value::list(items.iter().map(with_defaults).collect()),
        Value::Map(_) => match coerce(value) {
            Ok(message) => message
                .as_map()
                .map_or_else(|| value.clone(), |map| dump(map, None)),
            Err(_) => value.clone(),
        },
        other => other.clone(),
    }
}

/// A piece of a model's message as LangChain dumps it, with `tool_call_chunks` and
/// `chunk_position`, under the type `AIMessageChunk`.
#[cfg(test)]
pub fn chunk_with_defaults(value: &Value) -> Value {
    match value {
        Value::Map(map) => dump(map, Some("AIMessageChunk")),
        other => other.clone(),
    }
}

fn dump(message: &Map, chunk: Option<&'static str>) -> Value {
    let kind = message
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut out = Map::with_capacity(12);
    let mut field = |key: &'static str, default: fn() -> Value| {
        let name = SHARED.names.get(key);
        let name = name.map_or_else(|| Arc::from(key), Arc::clone);
        out.insert(name, message.get(key).cloned().unwrap_or_else(default));
    };
    field("content", || SHARED.text.clone());
    field("additional_kwargs", empty_map);
    field("response_metadata", empty_map);
    field("type", Value::default);
    field("name", Value::default);
    field("id", Value::default);
    match kind {
        _ if chunk.is_some() => {
            field("tool_calls", empty_list);
            field("invalid_tool_calls", empty_list);
            field("usage_metadata", Value::default);
            field("tool_call_chunks", empty_list);
            field("chunk_position", Value::default);
        }
        "ai" => {
            field("tool_calls", empty_list);
            field("invalid_tool_calls", empty_list);
            field("usage_metadata", Value::default);
        }
        "tool" => {
            field("tool_call_id", Value::default);
            field("artifact", Value::default);
            field("status", || "success".into());
        }
        _ => {}
    }
    if let Some(kind) = chunk {
        out.insert("type", kind);
    }
    for (key, value) in message {
        if !out.contains_key(key) {
            out.insert(key.clone(), value.clone());
        }
    }
    Value::map(out)
}
