//! Reads the events of a streamed reply as pieces of a message.

use std::{collections::HashMap, sync::Arc};

use genai::chat::{ChatStreamEvent, ContentPart, StopReason, StreamEnd, ToolCall, Usage};

use super::provider::Provider;
use crate::{
    llm::blocks::Blocks,
    message::{AiChunk, ToolCallChunk},
    value::{Map, Value},
};

/// Where the signatures of Gemini's calls are in a message: the calls are taken back only with them.
pub(super) const SIGNATURES: &str = "__gemini_function_call_thought_signatures__";

/// What was read of a reply so far.
pub(super) struct Reply {
    provider: Provider,
    model: Arc<str>,
    blocks: Blocks,
    /// The positions of calls in the reply and the bytes of their arguments so far, by their ids.
    calls: HashMap<String, (i64, usize)>,
    count: i64,
    signatures: Map,
    done: bool,
}

impl Reply {
    pub fn new(provider: Provider, model: &Arc<str>) -> Self {
        Self {
            provider,
            model: model.clone(),
            blocks: Blocks::default(),
            calls: HashMap::new(),
            count: 0,
            signatures: Map::new(),
            done: false,
        }
    }

    /// Whether the model has reported its end.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Bytes that have come and are in no piece yet.
    pub fn unsent(&self) -> usize {
        self.blocks.unsent()
    }

    /// The pieces that an event carries.
    pub fn pieces(&mut self, event: ChatStreamEvent) -> Vec<AiChunk> {
        let mut pieces = vec![];
        if !matches!(
            event,
            ChatStreamEvent::ReasoningChunk(_)
                | ChatStreamEvent::ThoughtSignatureChunk(_)
                | ChatStreamEvent::Heartbeat
        ) {
            pieces.extend(self.blocks.end_of_reasoning());
        }
        match event {
            ChatStreamEvent::Start | ChatStreamEvent::Heartbeat => {}
            ChatStreamEvent::Chunk(chunk) => {
                if !chunk.content.is_empty() {
                    pieces.push(self.blocks.text(chunk.content));
                }
            }
            ChatStreamEvent::ReasoningChunk(chunk) => {
                if !chunk.content.is_empty() {
                    pieces.push(self.blocks.reasoning(chunk.content));
                }
            }
            ChatStreamEvent::ThoughtSignatureChunk(chunk) => {
                // Those of Gemini come with its calls too, and only there it wants them back.
                if self.provider == Provider::Anthropic {
                    self.blocks.sign(&chunk.content);
                }
            }
            ChatStreamEvent::ToolCallChunk(chunk) => pieces.push(self.call(chunk.tool_call)),
            ChatStreamEvent::End(end) => pieces.extend(self.end(end)),
        }
        pieces
    }

    fn call(&mut self, call: ToolCall) -> AiChunk {
        let chunk = if self.provider == Provider::Anthropic {
            self.grown(call)
        } else {
            self.whole(call)
        };
        AiChunk {
            tool_call_chunks: vec![chunk],
            ..AiChunk::default()
        }
    }

    /// A call whose arguments come as all of their text so far. With less text than before it is another call.
    fn grown(&mut self, call: ToolCall) -> ToolCallChunk {
        let text = call.fn_arguments.as_str().unwrap_or_default();
        let open = self.calls.get_mut(&call.call_id);
        let has_own_id = open.is_none() && !call.call_id.is_empty();
        if let Some((index, read)) = open
            && let Some(more) = text.get(*read..)
        {
            *read = text.len();
            return ToolCallChunk {
                args: more.to_owned(),
                index: Some(*index),
                ..ToolCallChunk::default()
            };
        }
        let index = self.next_index();
        self.calls.insert(call.call_id.clone(), (index, text.len()));
        let id = if has_own_id { call.call_id } else { new_id() };
        ToolCallChunk {
            name: Some(call.fn_name.into()),
            args: text.to_owned(),
            id: Some(id.into()),
            index: Some(index),
        }
    }

    /// A call that comes at once. Where the provider has no ids, or counts them anew in each event, it gets one.
    fn whole(&mut self, call: ToolCall) -> ToolCallChunk {
        let index = self.next_index();
        let is_own = !call.call_id.starts_with("call#") && !self.calls.contains_key(&call.call_id);
        let id = if is_own { call.call_id } else { new_id() };
        self.calls.insert(id.clone(), (index, 0));
        if let Some(signature) = call.thought_signatures.into_iter().flatten().next() {
            self.signatures.insert(id.as_str(), signature);
        }
        let args = match call.fn_arguments {
            serde_json::Value::Null => String::new(),
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        ToolCallChunk {
            name: Some(call.fn_name.into()),
            args,
            id: Some(id.into()),
            index: Some(index),
        }
    }

    fn next_index(&mut self) -> i64 {
        self.count += 1;
        self.count - 1
    }

    /// The end, unless the connection ended without the model: then there is no reason why it stopped.
    fn end(&mut self, end: StreamEnd) -> Vec<AiChunk> {
        // Ollama may leave out the reason; numbers come only with its end.
        let has_ended = self.provider == Provider::Ollama && end.captured_usage.is_some();
        if end.captured_stop_reason.is_none() && !has_ended {
            return vec![];
        }
        self.done = true;
        let mut pieces = vec![];
        // Reasoning that only the provider can read comes at the end, and must go back to it.
        for part in end.captured_content.into_iter().flatten() {
            if let ContentPart::Custom(part) = part {
                pieces.push(self.blocks.whole(Value::from_serde_json(part.data)));
            }
        }
        let key = match self.provider {
            Provider::Anthropic => "stop_reason",
            Provider::Gemini => "finish_reason",
            Provider::Ollama => "done_reason",
        };
        let mut additional = Map::new();
        if !self.signatures.is_empty() {
            let signatures = std::mem::take(&mut self.signatures);
            additional.insert(SIGNATURES, Value::map(signatures));
        }
        let mut metadata = Map::from([("model_name", Value::Str(self.model.clone()))]);
        if let Some(stop) = end.captured_stop_reason {
            metadata.insert(key, Value::str(raw(stop)));
        }
        pieces.push(AiChunk {
            response_metadata: metadata,
            usage_metadata: end.captured_usage.map(|usage| counts(&usage)),
            additional_kwargs: additional,
            last: true,
            ..AiChunk::default()
        });
        pieces
    }
}

/// The id of a call that has none of its own.
fn new_id() -> String {
    format!("call_{}", uuid::Uuid::new_v4().simple())
}

/// The provider's own word.
fn raw(reason: StopReason) -> String {
    match reason {
        StopReason::Completed(word)
        | StopReason::MaxTokens(word)
        | StopReason::ToolCall(word)
        | StopReason::ContentFilter(word)
        | StopReason::StopSequence(word)
        | StopReason::Other(word) => word,
    }
}

/// LangChain's names for what providers count. A number below zero is a sum that became too large: it is left out.
fn counts(usage: &Usage) -> Value {
    let known = |count: Option<i32>| count.filter(|count| *count >= 0).map(i64::from);
    let (input, output) = (known(usage.prompt_tokens), known(usage.completion_tokens));
    let sum = input.unwrap_or(0) + output.unwrap_or(0);
    let number = |count: Option<i64>| Value::from(count.unwrap_or(0));
    let mut out = Map::from([
        ("input_tokens", number(input)),
        ("output_tokens", number(output)),
        (
            "total_tokens",
            number(known(usage.total_tokens).or(Some(sum))),
        ),
    ]);
    let mut details = |name: &str, counts: [(&str, Option<i32>); 2]| {
        let counts = counts.map(|(key, count)| (key, known(count))).into_iter();
        let counts = counts.filter(|(_, count)| count.is_some());
        let mut map = Map::new();
        counts.for_each(|(key, count)| drop(map.insert(key, number(count))));
        if !map.is_empty() {
            out.insert(name, Value::map(map));
        }
    };
    if let Some(input) = &usage.prompt_tokens_details {
        let counts = [
            ("cache_read", input.cached_tokens),
            ("cache_creation", input.cache_creation_tokens),
        ];
        details("input_token_details", counts);
    }
    if let Some(output) = &usage.completion_tokens_details {
        let counts = [
            ("reasoning", output.reasoning_tokens),
            ("audio", output.audio_tokens),
        ];
        details("output_token_details", counts);
    }
    Value::map(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_with_less_text_than_before_is_another_one() {
        let mut reply = Reply::new(Provider::Anthropic, &"claude".into());
        let mut whole = AiChunk::default();
        for (id, args) in [
            ("a", ""),
            ("a", "{\"x\": 1"),
            ("a", "{\"x\": 1}"),
            ("a", ""),
            ("a", "{\"x\": 2}"),
            ("", "{}"),
            ("", ""),
            ("", "{\"x\": 3}"),
        ] {
            whole.push(&reply.call(ToolCall {
                call_id: id.to_owned(),
                fn_name: "add".to_owned(),
                fn_arguments: args.into(),
                thought_signatures: None,
            }));
        }
        let calls = whole.message().tool_calls();
        let args: Vec<_> = calls.iter().map(|call| call.args.to_json()).collect();
        assert_eq!(args, ["{\"x\":1}", "{\"x\":2}", "{}", "{\"x\":3}"]);
        let ids: std::collections::HashSet<_> = calls.iter().map(|call| &call.id).collect();
        assert_eq!(ids.len(), 4);
        assert!(calls.iter().all(|call| call.id.as_deref() != Some("")));
    }

    #[test]
    fn counts_below_zero_are_left_out() {
        let counts = counts(&Usage {
            prompt_tokens: Some(i32::MAX),
            completion_tokens: Some(1),
            total_tokens: Some(i32::MIN),
            ..Usage::default()
        });
        assert_eq!(counts["total_tokens"], i64::from(i32::MAX) + 1);
    }
}
