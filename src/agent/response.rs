//! Structured responses: the tool or the schema by which a model returns one, and the check of what it returns.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    agent::progress::{CORRECTION, WRONG},
    llm::{ReplySchema, Tool, ToolDefinition, tools::node::message},
    message::{Message, ToolCall},
    state::{Channel, merge},
    value::{self, Value},
};

/// The channel of the response.
pub(super) const RESPONSE: &str = "structured_response";

type Read = dyn Fn(&Value) -> anyhow::Result<Value> + Send + Sync;

/// A response of one type.
pub(super) struct Response {
    /// The tool by which a model returns it, if it does not follow schemas.
    pub tool: Arc<Tool>,
    /// The channel of it.
    pub channel: Channel,
    read: Box<Read>,
}

/// What came of a reply.
pub(super) struct Outcome {
    /// Messages after the reply.
    pub messages: Vec<Message>,
    /// The response, if it was one.
    pub response: Option<Value>,
}

impl Response {
    /// A response of type `T`.
    pub fn new<T>() -> Self
    where
        T: Serialize + DeserializeOwned + JsonSchema + Send + 'static,
    {
        // It never runs: its calls are read.
        let definition = ToolDefinition::new(tool_name(&T::schema_name()));
        let tool = definition.build(|_: T, _| async { anyhow::bail!("a response is no call") });
        Self {
            tool,
            channel: Channel::new::<Option<T>>(RESPONSE, merge::replace()),
            read: Box::new(|value| Ok(value::to_value(&value::from_value::<T>(value)?)?)),
        }
    }

    /// The schema for models that follow one.
    pub fn schema(&self) -> ReplySchema {
        ReplySchema {
            name: self.tool.name().into(),
            schema: self.tool.parameters().clone(),
        }
    }

    /// Reads the response among the calls of a reply; none if it has no call of it.
    pub fn of_calls(&self, calls: &[ToolCall]) -> Option<Outcome> {
        let name = self.tool.name();
        let calls: Vec<&ToolCall> = calls.iter().filter(|call| &*call.name == name).collect();
        let [call] = calls.as_slice() else {
            if calls.is_empty() {
                return None;
            }
            let text = format!(
                "{WRONG}`{name}` was called {} times. Call it once, with the whole response.",
                calls.len()
            );
            let messages = calls.iter().map(|call| message(call, text.clone()));
            return Some(Outcome {
                messages: messages.collect(),
                response: None,
            });
        };
        let (text, response) = match (self.read)(&call.args) {
            Ok(response) => (
                format!("The response is complete: {}", response.to_json()),
                Some(response),
            ),
            Err(error) => (format!("{WRONG}{}", wrong(&error)), None),
        };
        Some(Outcome {
            messages: vec![message(call, text)],
            response,
        })
    }

    /// Reads the response from the text of a reply.
    pub fn of_text(&self, text: &str) -> Outcome {
        let read = Value::from_json_slice(text.as_bytes());
        let read = read
            .map_err(anyhow::Error::from)
            .and_then(|value| (self.read)(&value));
        match read {
            Ok(response) => Outcome {
                messages: Vec::new(),
                response: Some(response),
            },
            Err(error) => Outcome {
                messages: vec![Message::human(wrong(&error)).with_name(CORRECTION)],
                response: None,
            },
        }
    }
}

fn wrong(error: &anyhow::Error) -> String {
    format!("the response does not fit its schema: {error:#}. Correct it.")
}

/// The name of a type in the form that models take.
fn tool_name(name: &str) -> String {
    let fits = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    };
    name.chars().map(fits).take(64).collect()
}
