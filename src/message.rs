//! Chat messages: a lossless view on a [`Value`] map, and LangGraph's rules for accepting,
//! merging and showing them.
//!
//! The stored form keeps only fields that say something: `{type, content, id, ...}` without
//! LangChain's defaults. [`with_defaults`] fills them in where an answer needs them. Fields and
//! roles that this program does not know are kept as they are.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::value::{Map, Value};

mod chunk;
mod coerce;
mod defaults;
mod merge;
mod schema;

pub use chunk::{AiChunk, ToolCallChunk};
pub(crate) use coerce::coerce;
#[cfg(test)]
pub(crate) use coerce::coerce_list;
#[cfg(test)]
pub(crate) use defaults::chunk_with_defaults;
pub(crate) use defaults::with_defaults;
pub(crate) use merge::{add, mint_ids};

/// The id of a removal that removes every message before it.
pub const REMOVE_ALL: &str = "__remove_all__";

/// Why a value is no message, or a list of messages cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither a text, a `[role, content]` pair nor a map.
    #[error("a message is a text, a [role, content] pair or an object, not a {0}")]
    NotAMessage(&'static str),
    /// A map without `type` and `role`, or with one that is no text.
    #[error("a message needs a text in \"type\" or \"role\"")]
    NoRole,
    /// A message without `content`.
    #[error("a message of type {0:?} needs \"content\"")]
    NoContent(Arc<str>),
    /// `content` is neither text nor a list of parts.
    #[error("\"content\" of a message is a text or a list of parts, not a {0}")]
    Content(&'static str),
    /// `id` is neither text nor an integer.
    #[error("\"id\" of a message is a text, not a {0}")]
    Id(&'static str),
    /// A removal that does not say what to remove.
    #[error("a message of type \"remove\" needs the id of the message to remove")]
    RemoveWithoutId,
    /// A tool call without a name, or with arguments that are no JSON object.
    #[error("tool call {index} of a message is malformed: {reason}")]
    ToolCall {
        /// Its place in the message's list, from 0.
        index: usize,
        /// What is wrong.
        reason: String,
    },
    /// A removal whose id no message has.
    #[error("cannot remove message {0:?}: no message has this id")]
    UnknownRemoval(Arc<str>),
    /// The current value of a message channel is no list.
    #[error("a message channel holds a list, not a {0}")]
    NotAList(&'static str),
}

impl Error {
    /// The exception class under which LangGraph reports this.
    pub fn class(&self) -> &'static str {
        match self {
            Self::NotAMessage(_) => "NotImplementedError",
            _ => "ValueError",
        }
    }
}

/// Who a message is from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Role {
    /// A person (`human`, also accepted as `user`).
    Human,
    /// A model (`ai`, also accepted as `assistant`).
    Ai,
    /// Instructions (`system`, also accepted as `developer`).
    System,
    /// The result of a tool call.
    Tool,
    /// The result of a call in the old function style.
    Function,
    /// Free roles, named in the field `role`.
    Chat,
    /// No message: an order to remove one.
    Remove,
    /// A type this program does not know.
    Other(Arc<str>),
}

impl Role {
    /// The role of a stored `type`.
    pub fn of(kind: &str) -> Self {
        match kind {
            "human" => Role::Human,
            "ai" => Role::Ai,
            "system" => Role::System,
            "tool" => Role::Tool,
            "function" => Role::Function,
            "chat" => Role::Chat,
            "remove" => Role::Remove,
            other => Role::Other(other.into()),
        }
    }

    /// The word stored in `type`.
    pub fn as_str(&self) -> &str {
        match self {
            Role::Human => "human",
            Role::Ai => "ai",
            Role::System => "system",
            Role::Tool => "tool",
            Role::Function => "function",
            Role::Chat => "chat",
            Role::Remove => "remove",
            Role::Other(kind) => kind,
        }
    }
}

/// A model's wish to call a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Ties the tool's answer to the call; models always give one.
    pub id: Option<Arc<str>>,
    /// The tool.
    pub name: Arc<str>,
    /// The arguments, an object.
    pub args: Value,
}

impl ToolCall {
    fn of(value: &Value) -> Option<Self> {
        let text = |key| match value.get(key) {
            Some(Value::Str(s)) => Some(s.clone()),
            _ => None,
        };
        Some(ToolCall {
            id: text("id"),
            name: text("name")?,
            args: value.get("args").cloned().unwrap_or_default(),
        })
    }

    pub(crate) fn to_value(&self) -> Value {
        Value::map(Map::from([
            ("name", Value::Str(self.name.clone())),
            ("args", self.args.clone()),
            ("id", self.id.clone().into()),
            ("type", "tool_call".into()),
        ]))
    }
}

/// A chat message, read from and kept as a map, so that nothing is lost on the way.
#[derive(Clone, PartialEq)]
pub struct Message {
    /// A map in stored form: `type` is text, `content` text or a list.
    value: Value,
}

impl Message {
    fn new(kind: &str, content: impl Into<Value>) -> Self {
        Message {
            value: Value::map(Map::from([
                ("type", kind.into()),
                ("content", content.into()),
            ])),
        }
    }

    /// What a person says: a text, or a list of content parts.
    pub fn human(content: impl Into<Value>) -> Self {
        Self::new("human", content)
    }

    /// What a model says.
    pub fn ai(content: impl Into<Value>) -> Self {
        Self::new("ai", content)
    }

    /// Instructions for the model.
    pub fn system(content: impl Into<Value>) -> Self {
        Self::new("system", content)
    }

    /// The result of the tool call with this id.
    pub fn tool(content: impl Into<Value>, tool_call_id: impl Into<Arc<str>>) -> Self {
        Self::new("tool", content).with_field("tool_call_id", tool_call_id.into())
    }

    /// Removes the message with this id.
    pub fn remove(id: impl Into<Arc<str>>) -> Self {
        Self::new("remove", "").with_id(id)
    }

    /// Removes all messages that came before.
    pub fn remove_all() -> Self {
        Self::remove(REMOVE_ALL)
    }

    /// The same message under this id; a message with a known id replaces the older one.
    pub fn with_id(self, id: impl Into<Arc<str>>) -> Self {
        self.with_field("id", id.into())
    }

    /// The same message with the name of who speaks.
    pub fn with_name(self, name: impl Into<Arc<str>>) -> Self {
        self.with_field("name", name.into())
    }

    /// The same message with a further field, known or not.
    pub fn with_field(mut self, key: &str, value: impl Into<Value>) -> Self {
        if let Some(map) = self.value.make_map_mut() {
            map.insert(key, value);
        }
        self
    }

    /// The same message with a tool call added, under a new call id.
    pub fn calling(self, name: impl Into<Arc<str>>, args: impl Into<Value>) -> Self {
        let id = format!("call_{}", uuid::Uuid::new_v4().simple());
        self.with_tool_call(ToolCall {
            id: Some(id.into()),
            name: name.into(),
            args: args.into(),
        })
    }

    /// The same message with this tool call added.
    pub fn with_tool_call(mut self, call: ToolCall) -> Self {
        if let Some(map) = self.value.make_map_mut() {
            match map.get_mut("tool_calls").and_then(Value::make_list_mut) {
                Some(calls) => calls.push(call.to_value()),
                None => {
                    map.insert("tool_calls", Value::list(vec![call.to_value()]));
                }
            }
        }
        self
    }

    /// The message's id; given at the latest when a write is accepted.
    pub fn id(&self) -> Option<&str> {
        self.get("id")?.as_str()
    }

    /// The name of who speaks.
    pub fn name(&self) -> Option<&str> {
        self.get("name")?.as_str()
    }

    /// Who the message is from.
    pub fn role(&self) -> Role {
        Role::of(self.get("type").and_then(Value::as_str).unwrap_or_default())
    }

    /// The content: a text or a list of parts.
    pub fn content(&self) -> &Value {
        static EMPTY: Value = Value::Null;
        self.get("content").unwrap_or(&EMPTY)
    }

    /// The text of the content: itself, or that of its text parts joined.
    pub fn text(&self) -> String {
        match self.content() {
            Value::Str(text) => text.to_string(),
            Value::List(parts) => parts.iter().filter_map(part_text).collect(),
            _ => String::new(),
        }
    }

    /// The tools a model wants to be called.
    pub fn tool_calls(&self) -> Vec<ToolCall> {
        let calls = self
            .get("tool_calls")
            .and_then(Value::as_list)
            .unwrap_or_default();
        calls.iter().filter_map(ToolCall::of).collect()
    }

    /// Which tool call a tool's message answers.
    pub fn tool_call_id(&self) -> Option<&str> {
        self.get("tool_call_id")?.as_str()
    }

    /// Any field of the stored form.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(key)
    }

    /// The stored form, a map.
    pub fn as_value(&self) -> &Value {
        &self.value
    }
}

fn part_text(part: &Value) -> Option<&str> {
    match part {
        Value::Str(text) => Some(text),
        Value::Map(map) if map.get("type")?.as_str() == Some("text") => map.get("text")?.as_str(),
        _ => None,
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message {}", self.value)
    }
}

impl From<Message> for Value {
    fn from(message: Message) -> Self {
        message.value
    }
}

impl From<&Message> for Value {
    fn from(message: &Message) -> Self {
        message.value.clone()
    }
}

impl TryFrom<&Value> for Message {
    type Error = Error;

    fn try_from(value: &Value) -> Result<Self, Error> {
        Ok(Message {
            value: coerce(value)?,
        })
    }
}

impl TryFrom<Value> for Message {
    type Error = Error;

    fn try_from(value: Value) -> Result<Self, Error> {
        Message::try_from(&value)
    }
}

/// In stored form, so that a call can be the argument of a task.
impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ToolCall {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        ToolCall::of(&value).ok_or_else(|| serde::de::Error::custom("a tool call needs a name"))
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Message::try_from(&value).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
