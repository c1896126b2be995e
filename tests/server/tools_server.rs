//! The server that integration tests start when they need a graph with the tools of a child process.

use std::process::ExitCode;

use backstitch::{Server, llm::mcp, prelude::*};

#[derive(State)]
struct Chat {
    #[state(messages)]
    messages: Vec<Message>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let script = std::env::var("MCP_SCRIPT").unwrap_or_default();
    let way = std::env::var("MCP_WAY").unwrap_or_default();
    let program = mcp::Server::command("python3")
        .args([script, way])
        .inherit("PATH")
        .inherit("NOTES");
    let connection = match program.connect().await {
        Ok(connection) => connection,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let chat = Graph::<Chat>::new()
        .node("ask", async |_: Chat| {})
        .node("tools", tool_node(connection.tools()))
        .edge(START, "ask")
        .route("ask", calls, ["tools", END])
        .build();
    Server::new().graph("chat", chat).run().await
}

fn calls(chat: &Chat) -> Vec<Target> {
    let last = chat.messages.last();
    let calls = last.map(Message::tool_calls).unwrap_or_default();
    calls.iter().map(|call| goto("tools").with(call)).collect()
}
