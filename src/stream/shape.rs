//! Writes states as clients see them: message channels with LangChain's default fields.
//!
//! Written straight into the stream's buffer; equal to what
//! [`message::with_defaults`](crate::message::with_defaults) would build first.

use std::{collections::HashSet, sync::Arc};

use super::frame::text;
use crate::{
    engine::Interrupt,
    graph::{Body, Compiled},
    message,
    value::{Map, Value},
};

/// Names of the message channels of a graph and of all graphs inside it.
#[derive(Default)]
pub struct Channels(HashSet<Arc<str>>);

impl Channels {
    /// Collects the names.
    pub fn of(graph: &Arc<Compiled>) -> Self {
        let mut channels = Self::default();
        let (mut open, mut visited) = (vec![graph], HashSet::new());
        while let Some(graph) = open.pop() {
            if !visited.insert(Arc::as_ptr(graph)) {
                continue;
            }
            channels.0.extend(graph.messages.iter().cloned());
            for node in &graph.nodes {
                if let Body::Graph(inner) = &node.body {
                    open.push(inner);
                }
                open.extend(node.calls.iter().map(|(_, inner)| inner));
            }
        }
        channels
    }

    /// Writes a map of channels, and any other value as it is.
    pub fn write(&self, out: &mut Vec<u8>, state: &Value) {
        match state {
            Value::Map(map) if !self.0.is_empty() => {
                self.fields(out, map);
                out.push(b'}');
            }
            other => other.write_json(out),
        }
    }

    /// Writes the update of one task: a map of channels, or a list of such maps.
    pub fn write_update(&self, out: &mut Vec<u8>, update: &Value) {
        match update {
            Value::List(parts) if !self.0.is_empty() => {
                super::frame::list(out, parts.iter(), |out, part| self.write(out, part));
            }
            other => self.write(out, other),
        }
    }

    /// The state with open interrupts under `__interrupt__`; the interrupts alone if it is no map.
    pub fn write_interrupted(&self, out: &mut Vec<u8>, state: &Value, interrupts: &[Interrupt]) {
        match state {
            Value::Map(map) if !map.is_empty() => {
                self.fields(out, map);
                out.push(b',');
            }
            _ => out.push(b'{'),
        }
        out.extend_from_slice(b"\"__interrupt__\":");
        write_interrupts(out, interrupts);
        out.push(b'}');
    }

    /// `{` and the fields.
    fn fields(&self, out: &mut Vec<u8>, map: &Map) {
        out.push(b'{');
        for (index, (name, value)) in map.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            text(out, name);
            out.push(b':');
            if self.0.contains(name) {
                channel(out, value);
            } else {
                value.write_json(out);
            }
        }
    }
}

/// The value of a message channel: a message, a list of them, or several writes of these.
fn channel(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::List(items) => super::frame::list(out, items.iter(), channel),
        Value::Map(map) => match map.get("$writes") {
            Some(writes) if map.len() == 1 => {
                out.extend_from_slice(b"{\"$writes\":");
                channel(out, writes);
                out.push(b'}');
            }
            _ => message(out, value),
        },
        other => other.write_json(out),
    }
}

/// Open interrupts as a stream sends them.
pub fn write_interrupts(out: &mut Vec<u8>, interrupts: &[Interrupt]) {
    super::frame::list(out, interrupts, |out, interrupt| {
        out.extend_from_slice(b"{\"value\":");
        interrupt.value.write_json(out);
        out.extend_from_slice(b",\"id\":");
        text(out, &interrupt.id);
        out.extend_from_slice(b",\"response_schema\":null}");
    });
}

type Fields = &'static [(&'static str, &'static [u8])];

const HUMAN: Fields = &[
    ("content", b"\"\""),
    ("additional_kwargs", b"{}"),
    ("response_metadata", b"{}"),
    ("type", b"null"),
    ("name", b"null"),
    ("id", b"null"),
];
const AI: Fields = &[
    ("tool_calls", b"[]"),
    ("invalid_tool_calls", b"[]"),
    ("usage_metadata", b"null"),
];
const TOOL: Fields = &[
    ("tool_call_id", b"null"),
    ("artifact", b"null"),
    ("status", b"\"success\""),
];
const CHUNK: Fields = &[
    ("tool_calls", b"[]"),
    ("invalid_tool_calls", b"[]"),
    ("usage_metadata", b"null"),
    ("tool_call_chunks", b"[]"),
    ("chunk_position", b"null"),
];

/// Writes a whole message. A value that is not in stored form is coerced first.
pub fn message(out: &mut Vec<u8>, value: &Value) {
    let Value::Map(map) = value else {
        return value.write_json(out);
    };
    let more = match map.get("type").and_then(Value::as_str) {
        _ if !map.contains_key("content") => None,
        Some("human" | "system") => Some(&[] as Fields),
        Some("ai") => Some(AI),
        Some("tool") => Some(TOOL),
        _ => None,
    };
    match more {
        Some(more) => dump(out, map, more, None),
        None => message::with_defaults(value).write_json(out),
    }
}

/// Writes a piece of a model's message.
pub fn chunk(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Map(map) => dump(out, map, CHUNK, Some("AIMessageChunk")),
        other => other.write_json(out),
    }
}

fn dump(out: &mut Vec<u8>, map: &Map, more: Fields, kind: Option<&str>) {
    let mut shown = 0;
    for (index, (key, default)) in HUMAN.iter().chain(more).enumerate() {
        out.extend_from_slice(if index == 0 { b"{\"" } else { b",\"" });
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(b"\":");
        let value = map.get(key);
        shown += usize::from(value.is_some());
        match (kind, value) {
            (Some(kind), _) if *key == "type" => text(out, kind),
            (_, Some(value)) => value.write_json(out),
            (_, None) => out.extend_from_slice(default),
        }
    }
    if shown < map.len() {
        for (key, value) in map {
            if HUMAN.iter().chain(more).any(|(known, _)| *known == &**key) {
                continue;
            }
            out.push(b',');
            text(out, key);
            out.push(b':');
            value.write_json(out);
        }
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Value {
        let mut out = vec![];
        write(&mut out);
        Value::from_json_slice(&out).unwrap()
    }

    #[test]
    fn messages_are_written_as_they_would_be_built() {
        for stored in [
            value!({"type": "human", "content": "hi"}),
            value!({"type": "human", "content": "hi", "id": "1", "example": true}),
            value!({"type": "ai", "content": [{"type": "text", "text": "x"}], "name": "n"}),
            value!({"type": "tool", "content": "5", "tool_call_id": "c", "status": "error"}),
            value!({"type": "remove", "id": "1"}),
            value!({"type": "planet", "content": "x", "mass": 4}),
            value!({"role": "user", "content": "not in stored form"}),
            value!({"no": "message"}),
            value!("a text"),
            value!(7),
        ] {
            assert_eq!(
                written(|out| message(out, &stored)).to_json(),
                message::with_defaults(&stored).to_json()
            );
        }
        let piece = value!({"type": "ai", "content": "x", "chunk_position": "last", "odd": 1});
        assert_eq!(
            written(|out| chunk(out, &piece)).to_json(),
            message::chunk_with_defaults(&piece).to_json()
        );
    }

    #[test]
    fn only_message_channels_are_filled_in() {
        let channels = Channels(HashSet::from(["messages".into()]));
        let state = value!({"note": {"type": "human", "content": "x"}, "messages": []});
        assert_eq!(written(|out| channels.write(out, &state)), state);
        let twice = value!([
            {"messages": {"type": "human", "content": "x"}},
            {"messages": {"$writes": [[{"type": "ai", "content": "y"}]]}}
        ]);
        let shown = written(|out| channels.write_update(out, &twice));
        let list = shown.as_list().unwrap();
        let first = list[0].get("messages").unwrap();
        assert_eq!(first.get("name"), Some(&Value::Null));
        let inner = list[1].get("messages").unwrap().get("$writes").unwrap();
        let message = &inner.as_list().unwrap()[0].as_list().unwrap()[0];
        assert!(message.get("tool_calls").is_some());
    }

    #[test]
    fn questions_join_the_state_or_stand_alone() {
        let interrupts = [Interrupt {
            id: "1f".into(),
            value: value!("A?"),
        }];
        let list = value!([{"value": "A?", "id": "1f", "response_schema": null}]);
        for (state, expected) in [
            (
                value!({"a": 1}),
                value!({"a": 1, "__interrupt__": (list.clone())}),
            ),
            (value!({}), value!({"__interrupt__": (list.clone())})),
            (value!(3), value!({"__interrupt__": (list)})),
        ] {
            let channels = Channels::default();
            assert_eq!(
                written(|out| channels.write_interrupted(out, &state, &interrupts)),
                expected
            );
        }
    }
}
