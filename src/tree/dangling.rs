//! Whether a conversation ends in tool calls without results.

use crate::value::Value;

/// Whether the last message that is not a tool's is a model's and has a tool call without a
/// result. New human input is possible there, but a model may refuse the conversation.
pub fn has_open_calls(messages: &[Value]) -> bool {
    let text = |message: &Value, key: &str| {
        let text = message.get(key).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let mut results = Vec::new();
    for message in messages.iter().rev() {
        match &*text(message, "type") {
            "tool" => results.push(text(message, "tool_call_id")),
            "ai" => {
                let calls = message.get("tool_calls").and_then(Value::as_list);
                return calls
                    .unwrap_or_default()
                    .iter()
                    .any(|call| !results.contains(&text(call, "id")));
            }
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn calls_are_dangling_until_each_has_an_answer() {
        let human = value!({"type": "human", "content": "hi"});
        let ai = value!({"type": "ai", "tool_calls": [{"id": "a"}, {"id": "b"}]});
        let one = value!({"type": "tool", "tool_call_id": "a"});
        let two = value!({"type": "tool", "tool_call_id": "b"});
        let plain = value!({"type": "ai", "content": "done"});
        let dangles = |list: &[&Value]| {
            let list: Vec<Value> = list.iter().map(|value| (*value).clone()).collect();
            has_open_calls(&list)
        };
        assert!(dangles(&[&human, &ai]));
        assert!(dangles(&[&human, &ai, &one]));
        assert!(!dangles(&[&human, &ai, &one, &two]));
        assert!(!dangles(&[&human, &ai, &human]));
        assert!(!dangles(&[&human, &plain]));
        assert!(!dangles(&[]));
    }
}
