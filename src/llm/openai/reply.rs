//! Reads the events of a streamed reply as pieces of a message.

use async_openai::types::chat::{
    ChatCompletionMessageToolCallChunk, CompletionUsage, CreateChatCompletionStreamResponse,
};

use crate::{
    message::{AiChunk, ToolCallChunk},
    value,
    value::{Map, Value},
};

/// What was read of a reply so far.
#[derive(Default)]
pub(super) struct Reply {
    /// The model's name and why it stopped, once it did.
    done: Option<Map>,
    usage: Option<Value>,
}

impl Reply {
    /// The piece an event carries, if it has one for the reader.
    pub fn piece(&mut self, event: CreateChatCompletionStreamResponse) -> Option<AiChunk> {
        if let Some(usage) = event.usage {
            self.usage = Some(counts(&usage));
        }
        // The request is for one choice.
        let choice = event.choices.into_iter().next()?;
        if let Some(reason) = choice.finish_reason {
            let mut about = Map::from([("model_name", Value::from(event.model))]);
            // A plain enum always has a text form.
            if let Ok(reason) = value::to_value(&reason) {
                about.insert("finish_reason", reason);
            }
            self.done = Some(about);
        }
        let text = choice.delta.content.or(choice.delta.refusal);
        let calls = choice.delta.tool_calls.unwrap_or_default();
        if text.as_ref().is_none_or(String::is_empty) && calls.is_empty() {
            return None;
        }
        Some(AiChunk {
            content: text.map(Value::from).unwrap_or_default(),
            tool_call_chunks: calls.into_iter().map(call).collect(),
            ..AiChunk::default()
        })
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

fn call(chunk: ChatCompletionMessageToolCallChunk) -> ToolCallChunk {
    let function = chunk.function.unwrap_or_default();
    let text = |text: Option<String>| text.filter(|text| !text.is_empty()).map(Into::into);
    ToolCallChunk {
        name: text(function.name),
        args: function.arguments.unwrap_or_default(),
        id: text(chunk.id),
        index: Some(i64::from(chunk.index)),
    }
}

/// LangChain's names for what OpenAI counts.
fn counts(usage: &CompletionUsage) -> Value {
    value!({
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    })
}
