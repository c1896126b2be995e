//! Encodes chat messages for the modes `messages-tuple` and `messages`.

use std::sync::Arc;

use super::Encoder;
use crate::{
    engine::event::TaskInfo,
    message::{AiChunk, ToolCallChunk},
    stream::{
        buffer::Buffer,
        frame::{list, text},
        mode::Mode,
        shape,
    },
    value::{Map, Value},
};

/// Most tasks whose encoded metadata is cached; beyond that all of it is encoded anew.
const TASKS: usize = 256;

/// The encoded `metadata` of the messages of one task.
pub struct Metadata {
    chunk: Box<[u8]>,
    whole: Box<[u8]>,
}

impl Encoder {
    pub(super) fn message(
        &mut self,
        frames: &mut Buffer,
        ns: &str,
        message: &Value,
        whole: bool,
        task: &Arc<TaskInfo>,
    ) {
        if self.origin.modes.has(Mode::MessagesTuple) {
            let metadata = self.metadata(ns, whole, task);
            frames.push(Mode::MessagesTuple.into(), "messages", ns, |out| {
                out.push(b'[');
                if whole {
                    shape::message(out, message);
                } else {
                    shape::chunk(out, message);
                }
                out.push(b',');
                out.extend_from_slice(metadata);
                out.push(b']');
            });
        } else if self.origin.modes.has(Mode::Messages) {
            self.grown(frames, ns, message, whole, task);
        }
    }

    /// Writes a message as far as it has grown, after its metadata if it is new.
    fn grown(
        &mut self,
        frames: &mut Buffer,
        ns: &str,
        message: &Value,
        whole: bool,
        task: &Arc<TaskInfo>,
    ) {
        let id = id_of(message);
        if self.announced.insert(id.clone()) {
            let metadata = self.metadata(ns, whole, task);
            frames.push(Mode::Messages.into(), "messages/metadata", "", |out| {
                out.push(b'{');
                text(out, &id);
                out.extend_from_slice(b":{\"metadata\":");
                out.extend_from_slice(metadata);
                out.extend_from_slice(b"}}");
            });
        }
        let (event, shown) = if whole {
            self.growing.remove(&id);
            ("messages/complete", message.clone())
        } else {
            ("messages/partial", self.grow(message))
        };
        frames.push(Mode::Messages.into(), event, "", |out| {
            list(out, [&shown], shape::message);
        });
    }

    /// Adds a piece to its message.
    pub(super) fn add(&mut self, piece: &Value) {
        let id = id_of(piece);
        let piece = chunk_of(piece);
        if piece.last {
            self.growing.remove(&id);
        } else {
            self.growing.entry(id).or_default().push(&piece);
        }
    }

    /// Adds a piece to its message and returns the message so far.
    fn grow(&mut self, piece: &Value) -> Value {
        let id = id_of(piece);
        let piece = chunk_of(piece);
        let last = piece.last;
        let sum = self.growing.entry(id.clone()).or_default();
        sum.push(&piece);
        let shown = sum.message().into();
        if last {
            self.growing.remove(&id);
        }
        shown
    }

    fn metadata(&mut self, ns: &str, whole: bool, task: &TaskInfo) -> &[u8] {
        if self.tasks.len() >= TASKS && !self.tasks.contains_key(&task.id) {
            self.tasks.clear();
        }
        if !self.tasks.contains_key(&task.id) {
            let mut out = vec![b'{'];
            self.task_metadata(&mut out, task);
            let mut chunk = out.clone();
            // Inside another graph a piece names the graph that its model runs in, else its task.
            let around = if ns.is_empty() { &*task.ns } else { ns };
            chunk.extend_from_slice(b",\"checkpoint_ns\":");
            text(&mut chunk, around);
            chunk.push(b'}');
            // A whole message that a node returned names the graph around it, if there is one.
            let whole = if ns.is_empty() {
                out.push(b'}');
                out
            } else {
                chunk.clone()
            };
            let metadata = Metadata {
                chunk: chunk.into(),
                whole: whole.into(),
            };
            self.tasks.insert(task.id, metadata);
        }
        let found = self.tasks.get(&task.id);
        found.map_or(
            b"{}",
            |ready| if whole { &ready.whole } else { &ready.chunk },
        )
    }

    /// Writes the fields of a task's metadata, without braces.
    pub(super) fn task_metadata(&self, out: &mut Vec<u8>, task: &TaskInfo) {
        out.extend_from_slice(&self.shared);
        out.extend_from_slice(b",\"thread_id\":");
        super::plain(out, self.origin.thread);
        if !self.tags.is_empty() {
            out.extend_from_slice(b",\"tags\":");
            list(out, &self.tags, |out, tag| text(out, tag));
        }
        super::callback::task_fields(out, task);
    }
}

fn id_of(message: &Value) -> Arc<str> {
    match message.get("id") {
        Some(Value::Str(id)) => id.clone(),
        _ => "".into(),
    }
}

/// Reads a piece from its stored form.
fn chunk_of(value: &Value) -> AiChunk {
    let str_of = |value: &Value, key| match value.get(key) {
        Some(Value::Str(text)) => Some(text.clone()),
        _ => None,
    };
    let map_of = |key| value.get(key).and_then(Value::as_map).cloned();
    let pieces = value.get("tool_call_chunks").and_then(Value::as_list);
    AiChunk {
        id: str_of(value, "id"),
        name: str_of(value, "name"),
        content: value.get("content").cloned().unwrap_or_default(),
        tool_call_chunks: pieces
            .unwrap_or_default()
            .iter()
            .map(|piece| ToolCallChunk {
                name: str_of(piece, "name"),
                args: str_of(piece, "args").map_or_else(String::new, |args| args.to_string()),
                id: str_of(piece, "id"),
                index: piece.get("index").and_then(Value::as_i64),
            })
            .collect(),
        usage_metadata: value
            .get("usage_metadata")
            .filter(|usage| !usage.is_null())
            .cloned(),
        response_metadata: map_of("response_metadata").unwrap_or_else(Map::new),
        additional_kwargs: map_of("additional_kwargs").unwrap_or_else(Map::new),
        last: value.get("chunk_position").and_then(Value::as_str) == Some("last"),
    }
}
