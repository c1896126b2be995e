//! Pieces of a streamed model message, and their sum.

use std::sync::Arc;

use super::{Message, ToolCall};
use crate::value::{Map, Value};

/// A piece of a tool call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolCallChunk {
    /// The tool; comes with the first piece.
    pub name: Option<Arc<str>>,
    /// A piece of the arguments' JSON text.
    pub args: String,
    /// The call's id; comes with the first piece.
    pub id: Option<Arc<str>>,
    /// Which call of the message the piece belongs to, unless its id is another; without one it is a call of its own.
    pub index: Option<i64>,
}

/// A piece of a model's message; pieces add up to the whole with [`AiChunk::push`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AiChunk {
    /// The id that all pieces and the whole message share.
    pub id: Option<Arc<str>>,
    /// The name of the speaker.
    pub name: Option<Arc<str>>,
    /// Content: a text, or a list of parts. Null counts as an empty text.
    pub content: Value,
    /// Pieces of tool calls.
    pub tool_call_chunks: Vec<ToolCallChunk>,
    /// What the model reports about the use of tokens.
    pub usage_metadata: Option<Value>,
    /// What else the model reports, such as its name or why it stopped.
    pub response_metadata: Map,
    /// Provider-specific additions.
    pub additional_kwargs: Map,
    /// This is the last piece.
    pub last: bool,
}

impl AiChunk {
    /// A piece of text.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        AiChunk {
            content: Value::Str(text.into()),
            ..Self::default()
        }
    }

    /// The piece with this message id.
    pub fn with_id(self, id: impl Into<Arc<str>>) -> Self {
        AiChunk {
            id: Some(id.into()),
            ..self
        }
    }

    /// Appends a later piece.
    pub fn push(&mut self, piece: &AiChunk) {
        push_content(&mut self.content, &piece.content);
        self.push_rest(piece);
    }

    /// [`push`](Self::push) without the content.
    pub(super) fn push_rest(&mut self, piece: &AiChunk) {
        if self.id.is_none() {
            self.id.clone_from(&piece.id);
        }
        if self.name.is_none() {
            self.name.clone_from(&piece.name);
        }
        for chunk in &piece.tool_call_chunks {
            self.push_call(chunk);
        }
        match (&mut self.usage_metadata, &piece.usage_metadata) {
            (Some(sum), Some(more)) => add_numbers(sum, more),
            (sum @ None, Some(more)) => *sum = Some(more.clone()),
            (_, None) => {}
        }
        self.response_metadata
            .extend(owned(&piece.response_metadata));
        self.additional_kwargs
            .extend(owned(&piece.additional_kwargs));
        self.last |= piece.last;
    }

    fn push_call(&mut self, piece: &ToolCallChunk) {
        let open = piece.index.and_then(|index| {
            let mut calls = self.tool_call_chunks.iter_mut();
            calls.rfind(|call| call.index == Some(index))
        });
        // Another id is another call, whatever the index says.
        let open =
            open.filter(|call| call.id.is_none() || piece.id.is_none() || call.id == piece.id);
        match open {
            Some(call) => {
                if call.name.is_none() {
                    call.name.clone_from(&piece.name);
                }
                if call.id.is_none() {
                    call.id.clone_from(&piece.id);
                }
                call.args.push_str(&piece.args);
            }
            None => self.tool_call_chunks.push(piece.clone()),
        }
    }

    /// The whole message of the pieces so far. Calls whose arguments are no JSON object are
    /// listed under `invalid_tool_calls` with their text.
    pub fn message(&self) -> Message {
        let content = match &self.content {
            Value::Null => Value::from(""),
            content => content.clone(),
        };
        let mut message = Message::ai(content);
        if let Some(id) = &self.id {
            message = message.with_id(id.clone());
        }
        if let Some(name) = &self.name {
            message = message.with_name(name.clone());
        }
        let (calls, invalid) = self.calls();
        for call in calls {
            message = message.with_tool_call(call);
        }
        if !invalid.is_empty() {
            message = message.with_field("invalid_tool_calls", Value::list(invalid));
        }
        if let Some(usage) = &self.usage_metadata {
            message = message.with_field("usage_metadata", usage.clone());
        }
        for (key, map) in [
            ("response_metadata", &self.response_metadata),
            ("additional_kwargs", &self.additional_kwargs),
        ] {
            if !map.is_empty() {
                message = message.with_field(key, map.clone());
            }
        }
        message
    }

    /// This piece as a message of type `AIMessageChunk`, non-default fields only;
    /// what LangChain adds to it is filled in where it is shown. Tool calls are
    /// shown as far as the piece alone can be read.
    pub fn to_value(&self) -> Value {
        let mut out = Value::from(self.message());
        if let Some(map) = out.make_map_mut() {
            map.insert("type", "AIMessageChunk");
            if !self.tool_call_chunks.is_empty() {
                let chunks = self.tool_call_chunks.iter().map(ToolCallChunk::to_value);
                map.insert("tool_call_chunks", Value::list(chunks.collect()));
            }
            if self.last {
                map.insert("chunk_position", "last");
            }
        }
        out
    }

    /// Complete calls, and what cannot be read as one.
    fn calls(&self) -> (Vec<ToolCall>, Vec<Value>) {
        let mut calls = Vec::new();
        let mut invalid = Vec::new();
        for chunk in &self.tool_call_chunks {
            match chunk.call() {
                Ok(call) => calls.push(call),
                Err(error) => invalid.push(Value::map(Map::from([
                    ("name", chunk.name.clone().into()),
                    ("args", chunk.args.as_str().into()),
                    ("id", chunk.id.clone().into()),
                    ("error", error.into()),
                    ("type", "invalid_tool_call".into()),
                ]))),
            }
        }
        (calls, invalid)
    }
}

impl ToolCallChunk {
    fn call(&self) -> Result<ToolCall, String> {
        let name = self.name.clone().ok_or("the call has no name")?;
        let args = if self.args.trim().is_empty() {
            Value::map(Map::new())
        } else {
            Value::from_json_slice(self.args.as_bytes()).map_err(|e| e.to_string())?
        };
        match args {
            Value::Map(_) => Ok(ToolCall {
                id: self.id.clone(),
                name,
                args,
            }),
            other => Err(format!(
                "the arguments are a {}, not an object",
                other.type_name()
            )),
        }
    }

    fn to_value(&self) -> Value {
        Value::map(Map::from([
            ("name", self.name.clone().into()),
            ("args", self.args.as_str().into()),
            ("id", self.id.clone().into()),
            ("index", self.index.into()),
            ("type", "tool_call_chunk".into()),
        ]))
    }
}

fn owned(map: &Map) -> impl Iterator<Item = (Arc<str>, Value)> + '_ {
    map.iter().map(|(k, v)| (k.clone(), v.clone()))
}

/// Text is joined to text; once there are parts, everything becomes a part. Parts with the same
/// `index` are pieces of one part.
pub(super) fn push_content(sum: &mut Value, piece: &Value) {
    match (&mut *sum, piece) {
        (_, Value::Null) => {}
        (Value::Null, piece) => *sum = piece.clone(),
        (Value::Str(text), Value::Str(more)) => {
            if !more.is_empty() {
                *text = format!("{text}{more}").into();
            }
        }
        (Value::Str(text), Value::List(parts)) => {
            let mut all = Vec::with_capacity(parts.len() + 1);
            if !text.is_empty() {
                all.push(text_part(text));
            }
            all.extend(parts.iter().cloned());
            *sum = Value::list(all);
        }
        (Value::List(_), Value::Str(text)) if text.is_empty() => {}
        (Value::List(_), Value::Str(text)) => push_part(sum, &text_part(text)),
        (Value::List(_), Value::List(parts)) => {
            for part in parts.iter() {
                push_part(sum, part);
            }
        }
        (_, piece) => *sum = piece.clone(),
    }
}

fn text_part(text: &Arc<str>) -> Value {
    Value::map(Map::from([
        ("type", "text".into()),
        ("text", Value::Str(text.clone())),
    ]))
}

fn push_part(parts: &mut Value, piece: &Value) {
    let Some(parts) = parts.make_list_mut() else {
        return;
    };
    let index = piece.get("index").filter(|index| !index.is_null());
    let open = index.and_then(|index| parts.iter_mut().find(|p| p.get("index") == Some(index)));
    match (open.and_then(Value::make_map_mut), piece.as_map()) {
        (Some(open), Some(piece)) => {
            for (key, value) in piece {
                match (open.get_mut(key), value) {
                    (Some(Value::Str(old)), Value::Str(more))
                        if !matches!(&**key, "type" | "id" | "index") =>
                    {
                        *old = format!("{old}{more}").into();
                    }
                    (Some(_), _) => {}
                    (None, value) => {
                        open.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        _ => parts.push(piece.clone()),
    }
}

/// Adds up token counts, however deeply they are grouped.
fn add_numbers(sum: &mut Value, more: &Value) {
    match (&mut *sum, more) {
        (Value::Int(a), Value::Int(b)) => *a = a.saturating_add(*b),
        (Value::Map(_), Value::Map(more)) => {
            let Some(sum) = sum.make_map_mut() else {
                return;
            };
            for (key, value) in more.iter() {
                match sum.get_mut(key) {
                    Some(old) => add_numbers(old, value),
                    None => {
                        sum.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        _ => *sum = more.clone(),
    }
}
