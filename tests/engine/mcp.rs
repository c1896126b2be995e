//! Tools of MCP servers in graphs: those of the official server, and servers that break the rules.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use backstitch::{
    Local, RunOptions, llm::mcp::Server, prelude::*, run::Input, value, value::Value,
};
use serde_json::{Value as Json, json};
use test_support::{programs, python::python};

mod liars;
mod official;

#[derive(State)]
struct Chat {
    #[state(messages)]
    messages: Vec<Message>,
}

fn pending_calls(chat: &Chat) -> Vec<Target> {
    let last = chat.messages.last();
    let calls = last.map(Message::tool_calls).unwrap_or_default();
    calls.iter().map(|call| goto("tools").with(call)).collect()
}

/// What a run gets that calls one tool: the status of the tool's message, and its text.
async fn call(tools: &[Arc<Tool>], name: &str, args: Json) -> (String, String) {
    let graph = Graph::<Chat>::new()
        .node("ask", async |_: Chat| {})
        .node("tools", tool_node(tools.to_vec()))
        .edge(START, "ask")
        .route("ask", pending_calls, ["tools", END])
        .build()
        .unwrap();
    let message = Message::ai("").calling(name, Value::from_serde_json(args));
    let input = value!({"messages": [message]});
    let run = Local::run_once(&graph, Input::Value(input), RunOptions::default());
    let finished = run.await;
    finished.result.unwrap();
    let messages = finished.values["messages"].as_list().unwrap();
    let last = messages.last().unwrap().to_json_value();
    let text = |key: &str| match &last[key] {
        Json::Array(parts) => Json::from(parts.as_slice()).to_string(),
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    (text("status"), text("content"))
}

/// The result of a tool that works.
async fn called(tools: &[Arc<Tool>], name: &str, args: Json) -> String {
    let (status, text) = call(tools, name, args).await;
    assert_ne!(status, "error", "{text}");
    text
}

/// What a model is told of a tool that fails; the run goes on.
async fn failed(tools: &[Arc<Tool>], name: &str, args: Json) -> String {
    let (status, text) = call(tools, name, args).await;
    assert_eq!(status, "error", "{text}");
    text
}

/// The server that this script is on its standard input and output.
fn liar(way: &str) -> Server {
    let script = programs::repository().join("tests/python/mcp_liar.py");
    let script = script.to_str().unwrap().to_owned();
    Server::command("python3")
        .inherit("PATH")
        .args([script, way.to_owned()])
}

/// A server over HTTP, in a process of its own that ends with the test.
struct Web {
    process: Child,
    url: String,
}

impl Web {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        let stdout = process.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        Self { process, url }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Waits for what is true in the end.
async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    for _ in 0..600 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never within 30 s: {what}");
}
