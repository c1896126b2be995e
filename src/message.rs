//! Chat messages: a lossless view on a [`Value`] map, and LangGraph's rules for accepting,
//! merging and showing them.
//!
//! The stored form has no fields that equal LangChain's defaults: `{type, content, id, ...}`.
//! Those are filled in where a response needs them. Fields and roles that are unknown
//! to this program stay as they are.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::value::{Map, Value};

pub(crate) mod blocks;
mod chunk;
mod coerce;
mod defaults;
mod id_length;
mod ids;
mod merge;
mod schema;
mod sum;

pub(crate) use sum::Sum;

pub use chunk::{AiChunk, ToolCallChunk};
#[cfg(test)]
pub(crate) use coerce::coerce_list;
pub(crate) use coerce::{coerce, ids_in, is_id};
#[cfg(test)]
pub(crate) use defaults::chunk_with_defaults;
pub(crate) use defaults::with_defaults;
#[cfg(feature = "server")]
pub(crate) use id_length::{ID_MAX, set_most_of_new_id};
pub(crate) use id_length::{ID_SETTING, is_too_long, most_of_new_id};
pub(crate) use ids::Ids;
pub(crate) use merge::{add, add_known, mint_ids};

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
    /// `id` is longer than it may be or has a control character in it.
    #[error(
        "\"id\" of a message has at most {} characters ({ID_SETTING}), none of them a control character",
        most_of_new_id()
    )]
    IdForm,
    /// A removal without the id of a message.
    #[error("a message of type \"remove\" needs the id of the message to remove")]
    RemoveWithoutId,
    /// A tool call without a name, or with arguments that are no JSON object.
    #[error("tool call {index} of a message is malformed: {reason}")]
    ToolCall {
        /// Its position in the message's list, from 0.
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
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Self::NotAMessage(_) => "NotImplementedError",
            _ => "ValueError",
        }
    }
}

/// The kind of speaker of a message.
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

/// A model's request to call a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Links the tool's result to the call; models always set it.
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

/// A chat message, stored as a map so that no unknown field is lost.
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

    /// The message of a person: a text, or a list of content parts.
    pub fn human(content: impl Into<Value>) -> Self {
        Self::new("human", content)
    }

    /// The message of a model.
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

    /// The message with this id; a message with the id of an older one replaces that.
    pub fn with_id(self, id: impl Into<Arc<str>>) -> Self {
        self.with_field("id", id.into())
    }

    /// The message with the name of the speaker.
    pub fn with_name(self, name: impl Into<Arc<str>>) -> Self {
        self.with_field("name", name.into())
    }

    /// The message with a further field of any name.
    pub fn with_field(mut self, key: &str, value: impl Into<Value>) -> Self {
        if let Some(map) = self.value.make_map_mut() {
            map.insert(key, value);
        }
        self
    }

    /// The message with an additional tool call, under a new call id.
    pub fn calling(self, name: impl Into<Arc<str>>, args: impl Into<Value>) -> Self {
        let id = format!("call_{}", uuid::Uuid::new_v4().simple());
        self.with_tool_call(ToolCall {
            id: Some(id.into()),
            name: name.into(),
            args: args.into(),
        })
    }

    /// The message with this additional tool call.
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

    /// The message's id, which is minted at the latest when a write is accepted.
    pub fn id(&self) -> Option<&str> {
        self.get("id")?.as_str()
    }

    /// The name of the speaker.
    pub fn name(&self) -> Option<&str> {
        self.get("name")?.as_str()
    }

    /// The kind of speaker.
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
        Self::text_of(&self.value)
    }

    /// The text of the content of a message, or of a piece of one, in stored form.
    pub(crate) fn text_of(message: &Value) -> String {
        match message.get("content") {
            Some(Value::Str(text)) => text.to_string(),
            Some(Value::List(parts)) => parts.iter().filter_map(part_text).collect(),
            _ => String::new(),
        }
    }

    /// The tool calls that a model requests.
    pub fn tool_calls(&self) -> Vec<ToolCall> {
        let calls = self
            .get("tool_calls")
            .and_then(Value::as_list)
            .unwrap_or_default();
        calls.iter().filter_map(ToolCall::of).collect()
    }

    /// The id of the tool call whose result a tool's message is.
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
