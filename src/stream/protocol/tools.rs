//! Calls of tools: what a model requested, and what came of it.

use std::{collections::HashMap, sync::Arc};

use super::messages::CalledTool;
use crate::{
    message::blocks::to_protocol,
    value,
    value::{Map, Value},
};

/// Most calls without a result that are remembered.
const MOST: usize = 10_000;

/// The calls of a run that have no result yet.
#[derive(Default)]
pub struct Tools {
    called: HashMap<Arc<str>, CalledTool>,
}

impl Tools {
    /// A model requested calls.
    pub fn request(&mut self, calls: Vec<CalledTool>) {
        if self.called.len() + calls.len() > MOST {
            self.called.clear();
        }
        let by_id = calls.into_iter().map(|call| (call.id.clone(), call));
        self.called.extend(by_id);
    }

    /// The events of a message that is the result of a call: the call, then its result.
    pub fn result(&mut self, message: &Map) -> Vec<Value> {
        let text = |key: &str| match message.get(key) {
            Some(Value::Str(text)) => Some(text.clone()),
            _ => None,
        };
        let (Some("tool"), Some(id)) = (
            message.get("type").and_then(Value::as_str),
            text("tool_call_id"),
        ) else {
            return vec![];
        };
        let called = self.called.remove(&id);
        let name = called.as_ref().map(|call| call.name.clone());
        let name = name.or_else(|| text("name")).unwrap_or_default();
        let input = called.map(|call| call.input);
        let mut begin = Map::from([
            ("event", "tool-started".into()),
            ("tool_call_id", Value::Str(id.clone())),
            ("tool_name", Value::Str(name)),
        ]);
        if let Some(input) = input {
            begin.insert("input", input);
        }
        let end = if text("status").as_deref() == Some("error") {
            let content = message.get("content").cloned().unwrap_or_default();
            let why = match &content {
                Value::Str(text) => text.clone(),
                other => other.to_json().into(),
            };
            value!({"event": "tool-error", "tool_call_id": (Value::Str(id)), "message": (Value::Str(why))})
        } else {
            let output = Value::map(to_protocol(message, false));
            value!({"event": "tool-finished", "tool_call_id": (Value::Str(id)), "output": output})
        };
        vec![Value::map(begin), end]
    }
}
