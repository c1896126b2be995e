//! Reads the events of a streamed reply as pieces of a message.

use std::{collections::HashMap, sync::Arc};

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
    #[serde(default, deserialize_with = "or_default")]
    model: String,
    #[serde(default, deserialize_with = "or_default")]
    choices: Vec<Choice>,
    /// Read number by number: a reply does not fail because of a count that no server should send.
    usage: Option<Json>,
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
    content: Option<Content>,
    refusal: Option<String>,
    /// What the model thinks, at servers that show it; some send it under both names.
    reasoning: Option<String>,
    reasoning_content: Option<String>,
    #[serde(deserialize_with = "or_default")]
    tool_calls: Vec<Call>,
}

/// A text, or parts of which some are what the model thinks (Mistral).
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

/// Of a part without either nothing is shown, as of a reference.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ContentPart {
    text: Option<String>,
    thinking: Vec<ContentPart>,
}

#[derive(Deserialize)]
struct Call {
    #[serde(default, deserialize_with = "or_default")]
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
    calls: Calls,
}

/// The calls of a reply so far.
#[derive(Default)]
struct Calls {
    /// How many there are.
    count: i64,
    /// The one that each index of the server stands for now, and its id.
    open: HashMap<i64, (i64, Option<Arc<str>>)>,
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
            self.usage = counts(&usage).or(self.usage.take());
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
        let delta = choice.delta;
        let (content, thoughts) = delta.content.map(Content::read).unwrap_or_default();
        let reasoning = [delta.reasoning, delta.reasoning_content, thoughts];
        if let Some(reasoning) = reasoning.into_iter().find_map(text) {
            pieces.push(self.blocks.reasoning(reasoning));
        }
        if let Some(text) = text(content).or(text(delta.refusal)) {
            pieces.push(self.blocks.text(text));
        }
        if !delta.tool_calls.is_empty() {
            let calls = delta.tool_calls.into_iter();
            pieces.push(AiChunk {
                tool_call_chunks: calls.map(|piece| self.calls.piece(piece)).collect(),
                ..AiChunk::default()
            });
        }
        Ok(pieces)
    }

    /// Whether the model has reported its end. Some servers send an empty reason with every piece.
    pub fn is_done(&self) -> bool {
        let reason = self
            .done
            .as_ref()
            .and_then(|done| done.get("finish_reason"));
        reason
            .and_then(Value::as_str)
            .is_some_and(|reason| !reason.is_empty())
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

impl Content {
    /// What the model says, and what it thinks.
    fn read(self) -> (Option<String>, Option<String>) {
        let parts = match self {
            Self::Text(text) => return (Some(text), None),
            Self::Parts(parts) => parts,
        };
        let (mut text, mut thoughts) = (String::new(), String::new());
        for part in parts {
            text.extend(part.text);
            thoughts.extend(part.thinking.into_iter().filter_map(|part| part.text));
        }
        (Some(text), Some(thoughts))
    }
}

/// The failure that a server at `base` reports where its reply was expected.
pub(super) fn failed(base: &str, error: &Json) -> Error {
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

impl Calls {
    /// A piece of a call. Some servers leave out the index, or give each call the same: then another id is another call.
    fn piece(&mut self, piece: Call) -> ToolCallChunk {
        let text = |text: Option<String>| text.filter(|text| !text.is_empty()).map(Arc::from);
        let id: Option<Arc<str>> = text(piece.id);
        let is_new = self
            .open
            .get(&piece.index)
            .is_none_or(|(_, open)| open.is_some() && id.is_some() && *open != id);
        if is_new {
            self.open.insert(piece.index, (self.count, None));
            self.count += 1;
        }
        let (index, open) = self.open.entry(piece.index).or_default();
        if open.is_none() {
            open.clone_from(&id);
        }
        ToolCallChunk {
            name: text(piece.function.name),
            args: piece.function.arguments.unwrap_or_default(),
            id,
            index: Some(*index),
        }
    }
}

/// LangChain's names for what OpenAI counts; none if this is no group of counts.
fn counts(usage: &Json) -> Option<Value> {
    let usage = usage.as_object()?;
    let total = |name: &str| Value::from(usage.get(name).and_then(count).unwrap_or(0));
    let mut out = Map::from([
        ("input_tokens", total("prompt_tokens")),
        ("output_tokens", total("completion_tokens")),
        ("total_tokens", total("total_tokens")),
    ]);
    for (group, name, details, detail) in [
        (
            "input_token_details",
            "cache_read",
            "prompt_tokens_details",
            "cached_tokens",
        ),
        (
            "output_token_details",
            "reasoning",
            "completion_tokens_details",
            "reasoning_tokens",
        ),
    ] {
        let found = usage.get(details).and_then(|details| details.get(detail));
        if let Some(count) = found.and_then(count) {
            out.insert(group, Value::map(Map::from([(name, count.into())])));
        }
    }
    Some(Value::map(out))
}

/// A count, which some servers write as a fraction. What is no possible count is as if it were left out.
#[expect(clippy::cast_possible_truncation, reason = "it was compared before")]
fn count(number: &Json) -> Option<i64> {
    /// Above it fractions are no longer exact.
    const MOST: f64 = 9_007_199_254_740_992.0;
    let fraction = || number.as_f64().filter(|count| (0.0..=MOST).contains(count));
    match number.as_i64() {
        Some(count) => Some(count).filter(|count| *count >= 0),
        None => fraction().map(|count| count as i64),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(events: &[Json]) -> AiChunk {
        let (mut reply, mut whole) = (Reply::default(), AiChunk::default());
        for event in events {
            let event = serde_json::from_value(event.clone()).expect("an event");
            for piece in reply.pieces("test", event).expect("pieces") {
                whole.push(&piece);
            }
        }
        reply.end().iter().for_each(|piece| whole.push(piece));
        whole
    }

    fn delta(delta: &Json) -> Json {
        json!({"choices": [{"delta": delta}]})
    }

    #[test]
    fn reasoning_is_read_under_either_name_and_under_both() {
        for (first, second) in [
            (json!("why"), json!(null)),
            (json!(null), json!("why")),
            (json!("why"), json!("why")),
            (json!(""), json!("why")),
        ] {
            let both = delta(&json!({"reasoning": first, "reasoning_content": second}));
            let part = &read(&[both]).content[0];
            assert_eq!(part["reasoning"], "why");
        }
        let none = delta(&json!({"reasoning": null, "reasoning_content": null, "content": "x"}));
        assert_eq!(read(&[none]).message().text(), "x");
    }

    #[test]
    fn a_strange_count_of_tokens_does_not_fail_the_reply() {
        let end = json!({"model": null, "choices": [{"delta": {}, "finish_reason": "stop"}]});
        for (usage, expected) in [
            (json!(null), None),
            (json!("many"), None),
            (json!({"prompt_tokens": null}), Some(0)),
            (json!({"prompt_tokens": 12.0}), Some(12)),
            (json!({"prompt_tokens": u64::MAX}), Some(0)),
            (json!({"prompt_tokens": 1e300}), Some(0)),
            (json!({"prompt_tokens": -1}), Some(0)),
            (
                json!({"prompt_tokens": 3, "prompt_tokens_details": []}),
                Some(3),
            ),
        ] {
            let whole = read(&[end.clone(), json!({"choices": [], "usage": usage})]);
            assert!(whole.last, "{usage}");
            let count = whole
                .usage_metadata
                .map(|counts| counts["input_tokens"].clone());
            assert_eq!(count, expected.map(Value::from), "{usage}");
        }
    }

    #[test]
    fn another_id_is_another_call_where_the_index_is_the_same() {
        let piece = |id: Option<&str>, args: &str| {
            delta(&json!({"tool_calls": [
                {"id": id, "function": {"name": id.map(|_| "add"), "arguments": args}},
            ]}))
        };
        let whole = read(&[
            piece(Some("a"), "{\"a\""),
            piece(Some("a"), ": 1"),
            piece(None, "}"),
            piece(Some("b"), "{\"b\""),
            piece(Some(""), ": 2}"),
        ]);
        let calls = whole.message().tool_calls();
        let calls: Vec<_> = calls
            .iter()
            .map(|call| (call.id.as_deref(), call.args.to_json()))
            .collect();
        assert_eq!(
            calls,
            [
                (Some("a"), "{\"a\":1}".to_owned()),
                (Some("b"), "{\"b\":2}".to_owned())
            ]
        );
    }
}
