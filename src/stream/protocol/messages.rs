//! Messages as they grow: the pieces of a model's reply become the events of its content blocks.

use std::{collections::HashMap, sync::Arc};

use indexmap::IndexMap;

use super::event::Namespace;
use crate::{
    message::{
        AiChunk,
        blocks::{block_of_part, content_blocks},
    },
    value,
    value::{Map, Value},
};

/// What identifies a block while its message grows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// The text of a content that is no list.
    Text,
    /// A part of a content that is a list, by its type and its position or its own index.
    Part(Arc<str>, String),
    /// A call of a tool, by its index or its id.
    Call(String),
}

/// A message that is not complete.
struct Growing {
    /// The task that its model runs in.
    task: Arc<str>,
    /// The node of the task.
    node: Option<Arc<str>>,
    blocks: IndexMap<Key, Block>,
    /// Usage and metadata, summed up.
    sum: AiChunk,
}

/// An event of a message: the graph and the node it comes from, and its data.
pub struct MessageEvent {
    /// The graph.
    pub ns: Namespace,
    /// The node.
    pub node: Option<Arc<str>>,
    /// Its data.
    pub data: Value,
}

/// A call of a tool in a message that is complete.
pub struct CalledTool {
    /// Links the result to the call.
    pub id: Arc<str>,
    /// The tool.
    pub name: Arc<str>,
    /// Its arguments.
    pub input: Value,
}

/// The messages of a run.
#[derive(Default)]
pub struct Messages {
    /// Those that grow, by graph and id.
    growing: IndexMap<(Namespace, Arc<str>), Growing>,
    /// How many grow in each graph.
    together: HashMap<Namespace, usize>,
    /// Calls of tools in messages that have been completed since they were last taken.
    calls: Vec<CalledTool>,
}

impl Messages {
    /// The events of a piece, or of a whole message, which comes from a task.
    pub fn push(&mut self, ns: &Namespace, message: &Map, metadata: &Value) -> Vec<MessageEvent> {
        let text_of = |value: &Value, key: &str| match value.get(key) {
            Some(Value::Str(text)) => Some(text.clone()),
            _ => None,
        };
        let kind = message.get("type").and_then(Value::as_str);
        let is_piece = kind == Some("AIMessageChunk");
        let role = match kind {
            Some("AIMessageChunk") => "ai",
            Some(role @ ("ai" | "human" | "system")) => role,
            _ => return vec![],
        };
        let id = match message.get("id") {
            Some(Value::Str(id)) => id.clone(),
            _ => "".into(),
        };
        let key = (ns.clone(), id.clone());
        let mut found = vec![];
        if !self.growing.contains_key(&key) {
            let around = text_of(metadata, "langgraph_checkpoint_ns").unwrap_or_default();
            let task = around.rsplit_once(':').map_or("", |(_, task)| task);
            self.growing.insert(
                key.clone(),
                Growing {
                    task: task.into(),
                    node: text_of(metadata, "langgraph_node"),
                    blocks: IndexMap::new(),
                    sum: AiChunk::default(),
                },
            );
            *self.together.entry(ns.clone()).or_default() += 1;
            let mut data = Map::from([
                ("event", "message-start".into()),
                ("role", role.into()),
                ("id", Value::Str(id)),
            ]);
            let about = about(message);
            if !about.is_empty() {
                data.insert("metadata", Value::map(about));
            }
            self.emit(&key, data, &mut found);
        }
        let blocks = if is_piece {
            blocks_of_piece(message)
        } else {
            blocks_of_whole(message)
        };
        for (block_key, block) in blocks {
            self.grow(&key, block_key, block, &mut found);
        }
        if let Some(growing) = self.growing.get_mut(&key) {
            let map = |key: &str| message.get(key).and_then(Value::as_map).cloned();
            let usage = message.get("usage_metadata");
            growing.sum.push(&AiChunk {
                usage_metadata: usage.filter(|usage| !usage.is_null()).cloned(),
                response_metadata: map("response_metadata").unwrap_or_default(),
                ..AiChunk::default()
            });
        }
        let position = message.get("chunk_position").and_then(Value::as_str);
        if !is_piece || position == Some("last") {
            self.finish(&key, &mut found);
        }
        found
    }

    /// Completes the messages of a task that has ended; those of a failed one end with an error.
    pub fn end_task(&mut self, task: &str, error: Option<&str>) -> Vec<MessageEvent> {
        let of_task = |(_, growing): &(&(Namespace, Arc<str>), &Growing)| *growing.task == *task;
        let keys: Vec<_> = self
            .growing
            .iter()
            .filter(of_task)
            .map(|(key, _)| key.clone())
            .collect();
        self.end(keys, error)
    }

    /// Ends all messages that are not complete: no more of them comes.
    pub fn end_all(&mut self, error: &str) -> Vec<MessageEvent> {
        let keys = self.growing.keys().cloned().collect();
        self.end(keys, Some(error))
    }

    /// The calls of tools in messages that have been completed since the last time.
    pub fn take_calls(&mut self) -> Vec<CalledTool> {
        std::mem::take(&mut self.calls)
    }

    fn end(&mut self, keys: Vec<(Namespace, Arc<str>)>, error: Option<&str>) -> Vec<MessageEvent> {
        let mut found = vec![];
        for key in keys {
            match error {
                None => self.finish(&key, &mut found),
                Some(error) => {
                    let data = [("event", "error".into()), ("message", error.into())];
                    self.emit(&key, data.into(), &mut found);
                    self.forget(&key);
                }
            }
        }
        found
    }

    /// Adds a piece to its block, and emits the beginning of the block and what is new of it.
    fn grow(
        &mut self,
        key: &(Namespace, Arc<str>),
        block_key: Key,
        piece: Map,
        found: &mut Vec<MessageEvent>,
    ) {
        let Some(growing) = self.growing.get_mut(key) else {
            return;
        };
        let is_new = !growing.blocks.contains_key(&block_key);
        let entry = growing.blocks.entry(block_key);
        let index = entry.index();
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        let delta = delta(&piece);
        let begin = is_new.then(|| skeleton(&piece, index));
        match entry {
            indexmap::map::Entry::Occupied(mut entry) => entry.get_mut().add(&piece),
            indexmap::map::Entry::Vacant(entry) => drop(entry.insert(Block::begin(piece))),
        }
        if let Some(content) = begin {
            let data = event("content-block-start", index, "content", content);
            self.emit(key, data, found);
        }
        if let Some(delta) = delta {
            let data = event("content-block-delta", index, "delta", delta);
            self.emit(key, data, found);
        }
    }

    fn finish(&mut self, key: &(Namespace, Arc<str>), found: &mut Vec<MessageEvent>) {
        let Some(growing) = self.growing.get_mut(key) else {
            return;
        };
        let blocks = std::mem::take(&mut growing.blocks);
        let sum = std::mem::take(&mut growing.sum);
        for (index, block) in (0..).zip(blocks.into_values()) {
            let content = block.finished();
            if content.get("type").and_then(Value::as_str) == Some("tool_call")
                && let (Some(Value::Str(id)), Some(Value::Str(name))) =
                    (content.get("id"), content.get("name"))
            {
                self.calls.push(CalledTool {
                    id: id.clone(),
                    name: name.clone(),
                    input: content.get("args").cloned().unwrap_or_default(),
                });
            }
            let data = event("content-block-finish", index, "content", content);
            self.emit(key, data, found);
        }
        let mut data = Map::from([("event", "message-finish".into())]);
        if let Some(usage) = sum.usage_metadata {
            data.insert("usage", usage);
        }
        if !sum.response_metadata.is_empty() {
            data.insert("metadata", Value::map(sum.response_metadata));
        }
        self.emit(key, data, found);
        self.forget(key);
    }

    fn forget(&mut self, key: &(Namespace, Arc<str>)) {
        if self.growing.swap_remove(key).is_some()
            && let Some(together) = self.together.get_mut(&key.0)
        {
            *together -= 1;
            if *together == 0 {
                self.together.remove(&key.0);
            }
        }
    }

    /// Where several messages of one graph grow at the same time, each event names its message.
    fn emit(&self, key: &(Namespace, Arc<str>), mut data: Map, found: &mut Vec<MessageEvent>) {
        let together = self.together.get(&key.0);
        if together.is_some_and(|together| *together > 1) && !data.contains_key("id") {
            data.insert("message_id", Value::Str(key.1.clone()));
        }
        found.push(MessageEvent {
            ns: key.0.clone(),
            node: self
                .growing
                .get(key)
                .and_then(|growing| growing.node.clone()),
            data: Value::map(data),
        });
    }
}

/// What a message says of its model.
fn about(message: &Map) -> Map {
    let metadata = message.get("response_metadata").and_then(Value::as_map);
    let names = [("model_provider", "provider"), ("model_name", "model")];
    let found = names.iter().filter_map(|(from, to)| {
        let value = metadata?.get(from)?;
        Some((Arc::from(*to), value.clone()))
    });
    found.collect()
}

/// The pieces of blocks in a piece of a message.
fn blocks_of_piece(message: &Map) -> Vec<(Key, Map)> {
    let mut blocks = vec![];
    match message.get("content") {
        Some(Value::Str(text)) if !text.is_empty() => {
            let block = [("type", "text".into()), ("text", Value::Str(text.clone()))];
            blocks.push((Key::Text, block.into()));
        }
        Some(Value::List(parts)) => blocks.extend(parts.iter().enumerate().filter_map(of_part)),
        _ => {}
    }
    let calls = message.get("tool_call_chunks").and_then(Value::as_list);
    for (at, call) in calls.unwrap_or_default().iter().enumerate() {
        let key = match (call.get("index"), call.get("id")) {
            (Some(index), _) if !index.is_null() => index.to_json(),
            (_, Some(id)) if !id.is_null() => id.to_json(),
            _ => format!("#{at}"),
        };
        let mut block = Map::from([("type", "tool_call_chunk".into())]);
        for field in ["id", "name", "args"] {
            block.insert(field, call.get(field).cloned());
        }
        blocks.push((Key::Call(key), block));
    }
    blocks
}

/// The blocks of a message that came at once.
fn blocks_of_whole(message: &Map) -> Vec<(Key, Map)> {
    let blocks = content_blocks(message);
    let keyed = blocks.into_iter().enumerate().filter_map(|(at, block)| {
        let mut block = block.as_map()?.clone();
        block.remove("index");
        Some((Key::Part("".into(), at.to_string()), block))
    });
    keyed.collect()
}

fn of_part((at, part): (usize, &Value)) -> Option<(Key, Map)> {
    let (mut part, mut own) = (part.clone(), None);
    if let Some(map) = part.make_map_mut() {
        own = map.remove("index");
    }
    let block = block_of_part(&part).as_map()?.clone();
    let kind = match block.get("type") {
        Some(Value::Str(kind)) => kind.clone(),
        _ => "".into(),
    };
    let key = match own {
        // A provider that numbers its parts keeps the number from piece to piece.
        Some(index) => Key::Part("".into(), index.to_json()),
        None => Key::Part(kind, at.to_string()),
    };
    Some((key, block))
}

/// The text that grows in blocks of a type.
fn growing_field(block: &Map) -> Option<&'static str> {
    match block.get("type").and_then(Value::as_str)? {
        "text" => Some("text"),
        "reasoning" => Some("reasoning"),
        "tool_call_chunk" | "server_tool_call_chunk" => Some("args"),
        _ => None,
    }
}

/// A block as its beginning shows it: without what grows, and without what makes it large.
fn skeleton(block: &Map, index: i64) -> Value {
    let mut begin = block.clone();
    match growing_field(block) {
        Some(field) => {
            begin.insert(field, "");
            if field == "args" {
                begin.insert("index", index);
            }
        }
        None => {
            begin.retain(|key, _| !matches!(&**key, "data" | "base64" | "output"));
            for large in ["args", "value"] {
                if begin.contains_key(large) {
                    begin.insert(large, Value::map(Map::new()));
                }
            }
        }
    }
    Value::map(begin)
}

/// What a piece adds to its block; nothing for a block that comes at once.
fn delta(piece: &Map) -> Option<Value> {
    let field = growing_field(piece)?;
    let text = piece.get(field).and_then(Value::as_str);
    let text = Value::str(text.filter(|text| !text.is_empty())?);
    Some(match field {
        "text" => value!({"type": "text-delta", "text": text}),
        "reasoning" => value!({"type": "reasoning-delta", "reasoning": text}),
        _ => value!({"type": "tool-call-delta", "args": text}),
    })
}

/// A block as far as it has grown. What is new of its text is apart from the rest, so that a long text is not
/// copied with each piece.
struct Block {
    fields: Map,
    /// The field that `more` belongs to.
    growing: Option<&'static str>,
    more: String,
}

impl Block {
    fn begin(piece: Map) -> Self {
        Self {
            growing: growing_field(&piece),
            fields: piece,
            more: String::new(),
        }
    }

    /// Adds a later piece: the text grows, other fields are replaced.
    fn add(&mut self, piece: &Map) {
        let growing = growing_field(piece);
        if growing != self.growing {
            self.join();
            self.growing = growing;
        }
        for (key, value) in piece {
            if value.is_null() {
                continue;
            }
            if Some(&**key) == growing
                && let (Some(Value::Str(_)), Value::Str(more)) = (self.fields.get(key), value)
            {
                self.more.push_str(more);
            } else {
                if Some(&**key) == growing {
                    self.join();
                }
                self.fields.insert(key.clone(), value.clone());
            }
        }
    }

    fn join(&mut self) {
        if let Some(field) = self.growing
            && let Some(Value::Str(text)) = self.fields.get(field)
            && !self.more.is_empty()
        {
            let text = format!("{text}{}", self.more);
            self.fields.insert(field, text);
        }
        self.more.clear();
    }

    /// The block that is complete: the arguments of a call are parsed.
    fn finished(mut self) -> Value {
        self.join();
        let mut block = self.fields;
        if block.get("type").and_then(Value::as_str) != Some("tool_call_chunk") {
            return Value::map(block);
        }
        let text = block.get("args").and_then(Value::as_str).unwrap_or("");
        let text = if text.is_empty() { "{}" } else { text };
        match Value::from_json_slice(text.as_bytes()) {
            Ok(args @ Value::Map(_)) => {
                block.insert("type", "tool_call");
                block.insert("args", args);
            }
            _ => {
                block.insert("type", "invalid_tool_call");
                block.insert("error", "the arguments are no JSON object");
            }
        }
        Value::map(block)
    }
}

fn event(name: &str, index: i64, field: &str, content: Value) -> Map {
    Map::from([
        ("event", name.into()),
        ("index", index.into()),
        (field, content),
    ])
}
