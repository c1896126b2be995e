//! Messages with content blocks, the form of the event-streaming protocol, and back to the classic
//! form.
//!
//! In the classic form the content of a model's message is a text or a list of parts, and the tools
//! that it calls are listed beside it. With content blocks everything that the model produced is in
//! `content`, in its order, and each block says what it is.

use crate::value::{Map, Value};

/// The mark of a message whose content is blocks.
const VERSION: (&str, &str) = ("output_version", "v1");

/// Types that blocks have in the protocol. Other parts are wrapped.
const BLOCKS: &[&str] = &[
    "text",
    "reasoning",
    "image",
    "audio",
    "video",
    "file",
    "text-plain",
    "non_standard",
    "tool_call",
    "tool_call_chunk",
    "invalid_tool_call",
    "server_tool_call",
    "server_tool_call_chunk",
    "server_tool_result",
];

/// Whether a value is a message as LangChain dumps it, with all of its fields.
pub(crate) fn is_dumped(value: &Value) -> bool {
    let Value::Map(map) = value else { return false };
    let has_map = |key: &str| matches!(map.get(key), Some(Value::Map(_)));
    let kind = map.get("type").and_then(Value::as_str);
    kind.is_some()
        && map.contains_key("content")
        && has_map("additional_kwargs")
        && has_map("response_metadata")
}

/// A dumped message without the fields that have nothing in them. The content of a model's message
/// becomes blocks if `blocks` says so.
pub(crate) fn to_protocol(message: &Map, blocks: bool) -> Map {
    let kind = message.get("type").and_then(Value::as_str);
    let (is_ai, is_tool) = (kind == Some("ai"), kind == Some("tool"));
    let mut out = Map::with_capacity(8);
    for key in ["type", "content", "id", "name"] {
        if let Some(value) = message.get(key).filter(|value| !value.is_null()) {
            out.insert(key, value.clone());
        }
    }
    if is_ai && blocks {
        out.insert("content", Value::list(content_blocks(message)));
        let metadata = message.get("response_metadata").and_then(Value::as_map);
        let mut metadata = metadata.cloned().unwrap_or_default();
        metadata.insert(VERSION.0, VERSION.1);
        out.insert("response_metadata", Value::map(metadata));
    }
    for (key, value) in message {
        let stays = match &**key {
            // A tool's message has all of its own fields.
            "artifact" | "status" if is_tool => true,
            _ => !is_empty(value),
        };
        if stays && !out.contains_key(key) {
            out.insert(key.clone(), value.clone());
        }
    }
    if is_ai && let Some(calls) = out.get_mut("tool_calls").and_then(Value::make_list_mut) {
        for call in calls {
            if let Some(call) = call.make_map_mut() {
                call.insert("type", "tool_call");
            }
        }
    }
    out
}

/// A message whose content is blocks, in the classic form; any other stays as it is.
pub(crate) fn to_classic(message: &Map) -> Map {
    let metadata = message.get("response_metadata").and_then(Value::as_map);
    let is_marked = metadata.is_some_and(|map| {
        let version = map.get(VERSION.0).and_then(Value::as_str);
        version == Some(VERSION.1)
    });
    let blocks = message.get("content").and_then(Value::as_list);
    let (true, Some(blocks)) = (is_marked, blocks) else {
        return message.clone();
    };
    let mut out = message.clone();
    let (mut parts, mut calls, mut invalid) = (vec![], vec![], vec![]);
    for block in blocks {
        match type_of(block) {
            Some("tool_call") => calls.push(without_index(block)),
            Some("invalid_tool_call") => invalid.push(without_index(block)),
            _ => parts.push(part_of_block(block)),
        }
    }
    for (key, found) in [("tool_calls", calls), ("invalid_tool_calls", invalid)] {
        let has_own = out.get(key).is_some_and(|own| !is_empty(own));
        if !has_own && !found.is_empty() {
            out.insert(key, Value::list(found));
        }
    }
    let content = match (&*parts, blocks) {
        ([], _) => Value::str(""),
        // A text that was no list has the index of its block; the parts of a list have none.
        ([part], [block, ..]) if block.get("index").is_some() && is_plain_text(part) => {
            part.get("text").cloned().unwrap_or_default()
        }
        _ => Value::list(parts),
    };
    out.insert("content", content);
    if let Some(metadata) = out
        .get_mut("response_metadata")
        .and_then(Value::make_map_mut)
    {
        metadata.remove(VERSION.0);
    }
    out
}

/// The blocks of a model's message: its content, then its calls of tools.
pub(crate) fn content_blocks(message: &Map) -> Vec<Value> {
    let mut blocks = match message.get("content") {
        Some(Value::Str(text)) if text.is_empty() => vec![],
        Some(Value::Str(text)) => {
            let text = [("type", "text".into()), ("text", Value::Str(text.clone()))];
            let mut block = Map::from(text);
            block.insert("index", 0_i64);
            vec![Value::map(block)]
        }
        Some(Value::List(parts)) => parts.iter().map(block_of_part).collect(),
        _ => vec![],
    };
    let is_marked = |kind: &str| blocks.iter().any(|block| type_of(block) == Some(kind));
    let (has_calls, has_invalid) = (is_marked("tool_call"), is_marked("invalid_tool_call"));
    let list = |key: &str| message.get(key).and_then(Value::as_list);
    if !has_calls {
        let calls = list("tool_calls").unwrap_or_default();
        blocks.extend(calls.iter().map(|call| as_block(call, "tool_call")));
    }
    if !has_invalid {
        let calls = list("invalid_tool_calls").unwrap_or_default();
        blocks.extend(calls.iter().map(|call| as_block(call, "invalid_tool_call")));
    }
    blocks
}

/// A part of a classic content as a block.
pub(crate) fn block_of_part(part: &Value) -> Value {
    match part {
        Value::Str(text) => Value::map(Map::from([
            ("type", "text".into()),
            ("text", Value::Str(text.clone())),
            // A bare text in a list: what the way back makes of it.
            ("extras", Value::map(Map::from([("bare", true.into())]))),
        ])),
        Value::Map(map) => match type_of(part) {
            Some("thinking") => {
                let mut extras = (**map).clone();
                let thought = extras.remove("thinking").unwrap_or_else(|| "".into());
                Value::map(Map::from([
                    ("type", "reasoning".into()),
                    ("reasoning", thought),
                    ("extras", Value::map(extras)),
                ]))
            }
            Some(kind) if BLOCKS.contains(&kind) => part.clone(),
            _ => wrapped(part),
        },
        other => wrapped(other),
    }
}

/// A block as a part of a classic content.
fn part_of_block(block: &Value) -> Value {
    let extras = block.get("extras").and_then(Value::as_map);
    let extra = |key: &str| extras.and_then(|extras| extras.get(key));
    match type_of(block) {
        Some("non_standard") => block.get("value").cloned().unwrap_or_default(),
        Some("text") if extra("bare") == Some(&Value::Bool(true)) => {
            block.get("text").cloned().unwrap_or_default()
        }
        Some("reasoning") if extra("type").and_then(Value::as_str) == Some("thinking") => {
            let mut part = Map::from([("type", "thinking".into())]);
            part.insert("thinking", block.get("reasoning").cloned());
            part.extend(extras.cloned().unwrap_or_default());
            Value::map(part)
        }
        _ => block.clone(),
    }
}

fn wrapped(part: &Value) -> Value {
    Value::map(Map::from([
        ("type", "non_standard".into()),
        ("value", part.clone()),
    ]))
}

fn as_block(call: &Value, kind: &str) -> Value {
    let mut block = Map::from([("type", kind.into())]);
    for key in ["id", "name", "args"] {
        block.insert(key, call.get(key).cloned());
    }
    if kind == "invalid_tool_call" {
        block.insert("error", call.get("error").cloned());
    }
    Value::map(block)
}

fn without_index(block: &Value) -> Value {
    let mut block = block.clone();
    if let Some(map) = block.make_map_mut() {
        map.remove("index");
    }
    block
}

fn is_plain_text(part: &Value) -> bool {
    let fields = part.as_map().map_or(0, Map::len);
    type_of(part) == Some("text") && fields == 3 && part.get("text").is_some()
}

fn type_of(value: &Value) -> Option<&str> {
    value.get("type")?.as_str()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Map(map) => map.is_empty(),
        Value::List(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{message::with_defaults, value};

    fn protocol(stored: &Value) -> Value {
        let dumped = with_defaults(stored);
        assert!(is_dumped(&dumped));
        Value::map(to_protocol(dumped.as_map().unwrap(), true))
    }

    #[test]
    fn messages_look_as_the_official_server_shows_them() {
        for (stored, shown) in [
            (
                value!({"type": "human", "content": "hi", "id": "h1"}),
                value!({"type": "human", "content": "hi", "id": "h1"}),
            ),
            (
                value!({"type": "ai", "content": "tool said 5", "id": "a1"}),
                value!({"type": "ai", "content": [{"type": "text", "text": "tool said 5", "index": 0}],
                    "id": "a1", "response_metadata": {"output_version": "v1"}}),
            ),
            (
                value!({"type": "ai", "content": "", "id": "a1", "tool_calls": [
                    {"name": "add", "args": {"a": 2, "b": 3}, "id": "call_1"}]}),
                value!({"type": "ai", "content": [
                        {"type": "tool_call", "id": "call_1", "name": "add", "args": {"a": 2, "b": 3}}],
                    "id": "a1", "response_metadata": {"output_version": "v1"},
                    "tool_calls": [
                        {"type": "tool_call", "name": "add", "args": {"a": 2, "b": 3}, "id": "call_1"}]}),
            ),
            (
                value!({"type": "tool", "content": "5", "id": "t1", "name": "add", "tool_call_id": "call_1"}),
                value!({"type": "tool", "content": "5", "id": "t1", "name": "add",
                    "tool_call_id": "call_1", "status": "success", "artifact": null}),
            ),
        ] {
            let mut shown = shown;
            let mut seen = protocol(&stored);
            for value in [&mut shown, &mut seen] {
                value.make_map_mut().unwrap().sort_keys();
            }
            assert_eq!(seen, shown);
        }
    }

    #[test]
    fn a_classic_run_shows_the_content_as_it_is() {
        let dumped = with_defaults(&value!({"type": "ai", "content": "echo: hi", "id": "a"}));
        let shown = Value::map(to_protocol(dumped.as_map().unwrap(), false));
        assert_eq!(
            shown,
            value!({"type": "ai", "content": "echo: hi", "id": "a"})
        );
    }

    #[test]
    fn an_object_that_is_no_message_is_told_from_one() {
        assert!(!is_dumped(&value!({"type": "human", "content": "x"})));
        assert!(!is_dumped(&value!("text")));
    }

    fn part() -> impl Strategy<Value = Value> {
        prop_oneof![
            "[a-z ]{0,6}".prop_map(|text| value!({"type": "text", "text": text})),
            "[a-z ]{0,6}".prop_map(Value::str),
            "[a-z]{1,6}"
                .prop_map(|text| value!({"type": "thinking", "thinking": text, "signature": "s"})),
            "[a-z]{1,6}".prop_map(|text| value!({"type": "reasoning", "reasoning": text})),
            "[a-z]{1,6}".prop_map(|url| value!({"type": "image_url", "image_url": {"url": url}})),
            Just(value!({"type": "image", "url": "http://x/y.png", "mime_type": "image/png"})),
            Just(value!({"no": "type"})),
        ]
    }

    fn content() -> impl Strategy<Value = Value> {
        prop_oneof![
            "[a-z ]{0,12}".prop_map(Value::str),
            proptest::collection::vec(part(), 1..4).prop_map(Value::list),
        ]
    }

    proptest! {
        #[test]
        fn blocks_lead_back_to_the_message(content in content(), calls in 0_usize..3) {
            let calls: Vec<Value> = (0..calls)
                .map(|at| value!({"name": "add", "args": {"a": (at as i64)},
                    "id": (format!("call_{at}")), "type": "tool_call"}))
                .collect();
            let stored = value!({"type": "ai", "content": content, "id": "a1", "tool_calls": (Value::list(calls))});
            let dumped = with_defaults(&stored);
            let shown = to_protocol(dumped.as_map().unwrap(), true);
            let back = Value::map(to_classic(&shown));
            prop_assert_eq!(with_defaults(&back).to_json(), dumped.to_json());
        }
    }
}
