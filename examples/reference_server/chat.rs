//! The graphs of messages: `agent` streams a model and calls a tool, `chatsub` runs it as a subgraph.

use std::{sync::Arc, time::Duration};

use backstitch::{
    graph::{Compiled, Output},
    llm::{self, Tokens},
    message::{AiChunk, Role, ToolCallChunk},
    prelude::*,
    value,
};
use futures::{StreamExt as _, future::join_all, stream};

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

fn messages(ctx: &Ctx) -> Result<Vec<Message>> {
    let all = ctx.input()["messages"].as_list().unwrap_or_default();
    all.iter().map(|one| Ok(one.try_into()?)).collect()
}

fn no_message() -> anyhow::Error {
    Raised::new("IndexError", "list index out of range").into()
}

async fn model(ctx: Ctx) -> Result<Output> {
    let messages = messages(&ctx)?;
    let reply = ctx.chat(&EchoModel, &messages, &[]).await?;
    Ok(Output::update([("messages", value!([Value::from(reply)]))]))
}

/// Replies `echo: <text>` word by word; for `tool: a b` it calls the `add` tool first.
struct EchoModel;

impl ChatModel for EchoModel {
    fn stream(&self, messages: &[Message], _: &[Arc<Tool>]) -> Tokens {
        match reply(messages) {
            Ok(pieces) => {
                let pace = pace();
                Box::pin(stream::iter(pieces).then(move |piece| async move {
                    tokio::time::sleep(pace).await;
                    Ok(piece)
                }))
            }
            Err(error) => Box::pin(stream::iter([Err(error)])),
        }
    }

    fn name(&self) -> &str {
        "EchoModel"
    }

    fn provider(&self) -> Option<&str> {
        Some("echomodel")
    }
}

fn reply(messages: &[Message]) -> Result<Vec<AiChunk>> {
    let last = messages.last().ok_or_else(no_message)?;
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
    Ok(pieces)
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
    let messages = messages(&ctx)?;
    let tools = [tool("add", add)];
    let calls = messages.last().ok_or_else(no_message)?.tool_calls();
    let results = calls
        .iter()
        .map(|call| llm::run_tool(&tools, call, ctx.clone()));
    let results: Value = join_all(results)
        .await
        .into_iter()
        .map(|result| Value::from(result.into_message()))
        .collect();
    Ok(Output::update([("messages", results)]))
}

/// Add two integers.
#[derive(Deserialize, JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}

async fn add(Add { a, b }: Add, _: Ctx) -> Result<String> {
    Ok((i128::from(a) + i128::from(b)).to_string())
}
