//! Texts that stored values have very often, each of which is stored as its number.

use std::{collections::HashMap, sync::LazyLock};

/// What the channels by which branches start nodes are called begin with.
pub(super) const BRANCH: &str = "branch:to:";

/// The words by number. Stored: never reorder, new ones go to the end. The first 62 take one byte
/// as the name of a channel, the first 125 as the name of a field.
const WORDS: [&str; 73] = [
    // Channels and nodes that the engine names.
    "__start__",
    "__input__",
    "__interrupt__",
    "__resume__",
    "__error__",
    "__scheduled__",
    "__step__",
    "__pregel_tasks",
    "__previous__",
    "__end__",
    "__return__",
    // Channels of chats and agents.
    "messages",
    "structured_response",
    "remaining_steps",
    "agent",
    "tools",
    "model",
    // Fields of messages.
    "type",
    "content",
    "id",
    "role",
    "name",
    "text",
    "tool_calls",
    "tool_call_id",
    "args",
    "tool_call",
    "artifact",
    "status",
    "additional_kwargs",
    "response_metadata",
    "usage_metadata",
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "input_token_details",
    "output_token_details",
    "finish_reason",
    "model_name",
    "arguments",
    "function",
    "index",
    "example",
    "invalid_tool_calls",
    "citations",
    "source",
    "url",
    "title",
    "data",
    "value",
    // Roles and other words that fields of messages have.
    "human",
    "user",
    "ai",
    "assistant",
    "tool",
    "system",
    "remove",
    "success",
    "error",
    "stop",
    "tool_use",
    "end_turn",
    "image_url",
    "reasoning",
    // Fields of requests.
    "updates",
    "values",
    "custom",
    "async",
    "graph_id",
    "assistant_id",
    "thread_id",
    "run_id",
    "user_id",
];

/// Longer texts are no words.
const LONGEST: usize = 20;

static NUMBERS: LazyLock<HashMap<&str, u64>> =
    LazyLock::new(|| WORDS.into_iter().zip(0..).collect());

/// The number of a word.
pub(super) fn number(text: &str) -> Option<u64> {
    if text.len() > LONGEST {
        return None;
    }
    NUMBERS.get(text).copied()
}

/// The word of a number.
pub(super) fn word(number: u64) -> Option<&'static str> {
    let number = usize::try_from(number).ok()?;
    WORDS.get(number).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_one_number_and_none_is_longer_than_the_longest() {
        assert_eq!(NUMBERS.len(), WORDS.len());
        let longest = WORDS.iter().map(|word| word.len()).max();
        assert_eq!(longest, Some(LONGEST));
        for (number, word) in (0..).zip(WORDS) {
            assert_eq!(super::number(word), Some(number));
            assert_eq!(super::word(number), Some(word));
        }
        assert_eq!(super::number("another"), None);
        assert_eq!(super::word(73), None);
    }
}
