//! Divides a whole reply into the pieces in which a model would have sent it.

use crate::{
    message::{AiChunk, Message, ToolCallChunk},
    value::{Map, Value},
};

/// Word by word, then the tool calls, then the end with what the model reports. The pieces add up to the message.
pub(super) fn pieces(message: &Message) -> Vec<AiChunk> {
    let mut pieces: Vec<AiChunk> = match message.content() {
        Value::List(parts) => parts.iter().flat_map(part).collect(),
        content => words(content.as_str().unwrap_or_default())
            .map(AiChunk::text)
            .collect(),
    };
    pieces.extend(calls(message).into_iter().map(|call| AiChunk {
        tool_call_chunks: vec![call],
        ..AiChunk::default()
    }));
    let map = |key: &str| message.get(key).and_then(Value::as_map).cloned();
    pieces.push(AiChunk {
        usage_metadata: message.get("usage_metadata").cloned(),
        response_metadata: map("response_metadata").unwrap_or_default(),
        additional_kwargs: map("additional_kwargs").unwrap_or_default(),
        name: message.name().map(Into::into),
        last: true,
        ..AiChunk::default()
    });
    if let (Some(first), Some(id)) = (pieces.first_mut(), message.id()) {
        first.id = Some(id.into());
    }
    pieces
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}

/// A part with a position is joined from pieces of its text; any other comes at once.
fn part(part: &Value) -> Vec<AiChunk> {
    let piece = |part: Value| AiChunk {
        content: Value::list(vec![part]),
        ..AiChunk::default()
    };
    let key = part.get("type").and_then(Value::as_str);
    let key = key.filter(|kind| matches!(*kind, "text" | "reasoning"));
    let text = key.and_then(|key| Some((key, part.get(key)?.as_str()?)));
    let (Some(fields), Some((key, text)), Some(index)) = (part.as_map(), text, part.get("index"))
    else {
        return vec![piece(part.clone())];
    };
    let mut words = words(text);
    // The first piece has all other fields too.
    let mut first = fields.clone();
    first.insert(key, words.next().unwrap_or_default());
    let rest = words.map(|word| {
        piece(Value::map(Map::from([
            ("type", key.into()),
            (key, word.into()),
            ("index", index.clone()),
        ])))
    });
    let first = piece(Value::map(first));
    std::iter::once(first).chain(rest).collect()
}

/// The calls, and those whose arguments cannot be read.
fn calls(message: &Message) -> Vec<ToolCallChunk> {
    let calls = message.tool_calls();
    let calls = calls
        .into_iter()
        .map(|call| (Some(call.name), call.args.to_json(), call.id));
    let invalid = message.get("invalid_tool_calls").and_then(Value::as_list);
    let invalid = invalid.unwrap_or_default().iter().map(|call| {
        let text = |key: &str| call.get(key).and_then(Value::as_str);
        let args = text("args").unwrap_or_default().to_owned();
        (
            text("name").map(Into::into),
            args,
            text("id").map(Into::into),
        )
    });
    let all = (0i64..).zip(calls.chain(invalid));
    all.map(|(index, (name, args, id))| ToolCallChunk {
        name,
        args,
        id,
        index: Some(index),
    })
    .collect()
}
