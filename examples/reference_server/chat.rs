//! The graphs of messages: `agent` streams a model and calls a tool, `chatsub` runs it as a subgraph.

use std::{sync::Arc, time::Duration};

use backstitch::{
    graph::{Compiled, Output},
    message::{AiChunk, Role, ToolCall, ToolCallChunk},
    prelude::*,
    value,
};
use futures::{StreamExt as _, stream};

use crate::parts::{Built, Form, repr, state, text, to};

pub fn agent() -> Built {
    state(&[("messages", Form::Messages)])
        .node("model", model)
        .node("tools", tools)
        .edge(START, "model")
        .route(
            "model",
            "tools_condition",
            |state| {
                let last = state.get("messages").and_then(|all| all.as_list()?.last());
                let calls = last.and_then(|last| last.get("tool_calls")?.as_list());
                let calls_tools = calls.is_some_and(|calls| !calls.is_empty());
                Ok(vec![to(if calls_tools { "tools" } else { END })])
            },
            Some([("tools", "tools"), (END, END)]),
        )
        .edge("tools", "model")
        .build()
}

pub fn chatsub() -> Result<Arc<Compiled>> {
    Ok(state(&[("messages", Form::Messages)])
        .subgraph("inner", agent()?)
        .edge(START, "inner")
        .build()?)
}

fn last_message(ctx: &Ctx) -> Result<Message> {
    let messages = &ctx.input()["messages"];
    match messages.as_list().and_then(<[_]>::last) {
        Some(last) => Ok(last.try_into()?),
        None => Err(Raised::new("IndexError", "list index out of range").into()),
    }
}

/// Streams `echo: <text>` word by word; for `tool: a b` it calls the `add` tool first.
async fn model(ctx: Ctx) -> Result<Output> {
    let last = last_message(&ctx)?;
    let content = text(last.content());
    let mut pieces = match content.strip_prefix("tool:") {
        _ if last.role() == Role::Tool => words(&format!("tool said {content}")),
        Some(numbers) => vec![add_call(&numbers_of(numbers)?)],
        None => words(&format!("echo: {content}")),
    };
    pieces.push(AiChunk {
        last: true,
        ..AiChunk::text("")
    });
    pieces[0].id = Some(format!("lc_run--{}", uuid::Uuid::now_v7()).into());
    let pace = pace();
    let reply = stream::iter(pieces).then(async |piece| {
        tokio::time::sleep(pace).await;
        Ok(piece)
    });
    let reply = ctx.stream(Box::pin(reply)).await?;
    Ok(Output::update([("messages", value!([Value::from(reply)]))]))
}

/// What the model waits before each word: nothing, unless somebody wants to watch them come.
fn pace() -> Duration {
    let milliseconds = std::env::var("WORD_PAUSE_MS").ok();
    let milliseconds = milliseconds.and_then(|text| text.parse().ok());
    Duration::from_millis(milliseconds.unwrap_or(0))
}

fn words(text: &str) -> Vec<AiChunk> {
    let words = text.split(' ').enumerate();
    words
        .map(|(i, word)| match i {
            0 => AiChunk::text(word),
            _ => AiChunk::text(format!(" {word}")),
        })
        .collect()
}

fn numbers_of(text: &str) -> Result<[i64; 2]> {
    let raised = |message: String| Raised::new("ValueError", message);
    let mut numbers = Vec::new();
    for word in text.split_whitespace() {
        let number = word.parse::<i64>().map_err(|_| {
            let word = repr(&value!(word));
            raised(format!("invalid literal for int() with base 10: {word}"))
        })?;
        numbers.push(number);
    }
    let found = numbers.len();
    Ok(numbers.try_into().map_err(|_| match found {
        0 | 1 => raised(format!(
            "not enough values to unpack (expected 2, got {found})"
        )),
        _ => raised("too many values to unpack (expected 2)".to_owned()),
    })?)
}

fn add_call([a, b]: &[i64; 2]) -> AiChunk {
    AiChunk {
        tool_call_chunks: vec![ToolCallChunk {
            name: Some("add".into()),
            args: format!("{{\"a\": {a}, \"b\": {b}}}"),
            id: Some("call_1".into()),
            index: Some(0),
        }],
        ..AiChunk::text("")
    }
}

/// Runs all tool calls of the last message.
async fn tools(ctx: Ctx) -> Result<Output> {
    let calls = last_message(&ctx)?.tool_calls();
    let results: Value = calls.iter().map(add).collect();
    Ok(Output::update([("messages", results)]))
}

fn add(call: &ToolCall) -> Value {
    let result = |content: String| {
        Message::tool(content, call.id.clone().unwrap_or_default()).with_name(call.name.clone())
    };
    let failed = |content: String| result(content).with_field("status", "error");
    let number = |key: &str| call.args[key].as_i64();
    let message = match (&*call.name, number("a"), number("b")) {
        ("add", Some(a), Some(b)) => result((i128::from(a) + i128::from(b)).to_string()),
        ("add", ..) => failed(format!(
            "Error invoking tool 'add' with kwargs {}: a and b must be integers",
            repr(&call.args)
        )),
        (name, ..) => failed(format!(
            "Error: {name} is not a valid tool, try one of [add]."
        )),
    };
    message.into()
}
