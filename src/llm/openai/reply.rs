//! Reads the events of a streamed reply as pieces of a message.

use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;

use crate::{
    llm::{Error, blocks::Blocks, connection::reason},
    message::{AiChunk, ToolCallChunk},
    value::{Map, Value},
};

/// An event of a streamed reply. Servers differ in what they leave out, and some have fields that OpenAI has not.
#[derive(Deserialize)]
pub(super) struct Event {
    #[serde(default)]
    model: String,
    #[serde(default, deserialize_with = "or_default")]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    /// What went wrong after the reply had begun.
    error: Option<Json>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default, deserialize_with = "or_default")]
    delta: Delta,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Delta {
    content: Option<String>,
    refusal: Option<String>,
    /// What the model thinks, at servers that show it.
    #[serde(alias = "reasoning_content")]
    reasoning: Option<String>,
    #[serde(deserialize_with = "or_default")]
    tool_calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Call {
    #[serde(default)]
    index: i64,
    id: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    function: Function,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Function {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: i64,
    #[serde(default)]
    completion_tokens: i64,
    #[serde(default)]
    total_tokens: i64,
    prompt_tokens_details: Option<Details>,
    completion_tokens_details: Option<Details>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: Option<i64>,
    reasoning_tokens: Option<i64>,
}

/// Null is what is left out.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    source: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(source)?.unwrap_or_default())
}

/// What was read of a reply so far.
#[derive(Default)]
pub(super) struct Reply {
    /// The model's name and why it stopped, once it did.
    done: Option<Map>,
    usage: Option<Value>,
    blocks: Blocks,
}

impl Reply {
    /// The pieces an event carries.
    ///
    /// # Errors
    /// The event says that the server at `base` failed.
    pub fn pieces(&mut self, base: &str, event: Event) -> Result<Vec<AiChunk>, Error> {
        if let Some(error) = event.error.filter(|error| !error.is_null()) {
            return Err(failed(base, &error));
        }
        if let Some(usage) = event.usage {
            self.usage = Some(counts(&usage));
        }
        // The request is for one choice.
        let Some(choice) = event.choices.into_iter().next() else {
            return Ok(vec![]);
        };
        if let Some(reason) = choice.finish_reason {
            self.done = Some(Map::from([
                ("model_name", Value::from(event.model)),
                ("finish_reason", Value::from(reason)),
            ]));
        }
        let mut pieces = vec![];
        let text = |text: Option<String>| text.filter(|text| !text.is_empty());
        if let Some(reasoning) = text(choice.delta.reasoning) {
            pieces.push(self.blocks.reasoning(reasoning));
        }
        if let Some(text) = text(choice.delta.content).or(text(choice.delta.refusal)) {
            pieces.push(self.blocks.text(text));
        }
        let calls = choice.delta.tool_calls;
        if !calls.is_empty() {
            pieces.push(AiChunk {
                tool_call_chunks: calls.into_iter().map(call).collect(),
                ..AiChunk::default()
            });
        }
        Ok(pieces)
    }

    /// The last piece; none if the model never reported its end.
    pub fn end(self) -> Option<AiChunk> {
        Some(AiChunk {
            response_metadata: self.done?,
            usage_metadata: self.usage,
            last: true,
            ..AiChunk::default()
        })
    }
}

fn failed(base: &str, error: &Json) -> Error {
    let at = base.to_owned();
    let reason = reason(&error.to_string());
    match error.get("code").and_then(Json::as_u64).map(u16::try_from) {
        Some(Ok(status)) => Error::Refused {
            at,
            status,
            reason,
            retry_after: None,
        },
        _ => Error::Broken { at, reason },
    }
}

fn call(chunk: Call) -> ToolCallChunk {
    let text = |text: Option<String>| text.filter(|text| !text.is_empty()).map(Into::into);
    ToolCallChunk {
        name: text(chunk.function.name),
        args: chunk.function.arguments.unwrap_or_default(),
        id: text(chunk.id),
        index: Some(chunk.index),
    }
}

/// LangChain's names for what OpenAI counts.
fn counts(usage: &Usage) -> Value {
    let mut out = Map::from([
        ("input_tokens", Value::from(usage.prompt_tokens)),
        ("output_tokens", usage.completion_tokens.into()),
        ("total_tokens", usage.total_tokens.into()),
    ]);
    let input = usage.prompt_tokens_details.as_ref();
    let output = usage.completion_tokens_details.as_ref();
    for (group, name, count) in [
        (
            "input_token_details",
            "cache_read",
            input.and_then(|all| all.cached_tokens),
        ),
        (
            "output_token_details",
            "reasoning",
            output.and_then(|all| all.reasoning_tokens),
        ),
    ] {
        if let Some(count) = count {
            out.insert(group, Value::map(Map::from([(name, count.into())])));
        }
    }
    Value::map(out)
}
