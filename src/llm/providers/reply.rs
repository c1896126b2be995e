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

    /// A call whose arguments come as all of their text so far.
    fn grown(&mut self, call: ToolCall) -> ToolCallChunk {
        let text = call.fn_arguments.as_str().unwrap_or_default();
        if let Some((index, read)) = self.calls.get_mut(&call.call_id) {
            let more = text.get(*read..).unwrap_or_default().to_owned();
            *read = text.len();
            return ToolCallChunk {
                args: more,
                index: Some(*index),
                ..ToolCallChunk::default()
            };
        }
        let index = self.next_index();
        self.calls.insert(call.call_id.clone(), (index, text.len()));
        ToolCallChunk {
            name: Some(call.fn_name.into()),
            args: text.to_owned(),
            id: Some(call.call_id.into()),
            index: Some(index),
        }
    }

    /// A call that comes at once. Where the provider has no ids, or counts them anew in each event, it gets one.
    fn whole(&mut self, call: ToolCall) -> ToolCallChunk {
        let index = self.next_index();
        let is_own = !call.call_id.starts_with("call#") && !self.calls.contains_key(&call.call_id);
        let id = if is_own {
            call.call_id
        } else {
            format!("call_{}", uuid::Uuid::new_v4().simple())
        };
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
        let Some(stop) = end.captured_stop_reason else {
            return vec![];
        };
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
        pieces.push(AiChunk {
            response_metadata: Map::from([
                ("model_name", Value::Str(self.model.clone())),
                (key, Value::str(raw(stop))),
            ]),
            usage_metadata: end.captured_usage.map(|usage| counts(&usage)),
            additional_kwargs: additional,
            last: true,
            ..AiChunk::default()
        });
        pieces
    }
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

/// LangChain's names for what providers count.
fn counts(usage: &Usage) -> Value {
    let (input, output) = (usage.prompt_tokens, usage.completion_tokens);
    let sum = || input.unwrap_or(0).saturating_add(output.unwrap_or(0));
    let number = |count: Option<i32>| Value::from(i64::from(count.unwrap_or(0)));
    let mut out = Map::from([
        ("input_tokens", number(input)),
        ("output_tokens", number(output)),
        (
            "total_tokens",
            number(usage.total_tokens.or_else(|| Some(sum()))),
        ),
    ]);
    let mut details = |name: &str, counts: [(&str, Option<i32>); 2]| {
        let counts = counts.into_iter().filter(|(_, count)| count.is_some());
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
