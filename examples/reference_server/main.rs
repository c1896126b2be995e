//! A server of small graphs, one per feature of the Agent Server protocol: compatibility checks run
//! against it, and readers find an example of each feature.
//!
//! ```sh
//! cargo run --example reference_server -- --memory
//! curl -N localhost:2024/runs/stream -H 'content-type: application/json' -d '{
//!   "assistant_id": "agent", "stream_mode": ["messages-tuple", "values"],
//!   "input": {"messages": [{"role": "user", "content": "tool: 2 3"}]}}'
//! ```
//!
//! The graphs name their channels by hand, because each mirrors a Python graph key by key, down
//! to how Python writes a value as text. `chat_agent.rs` shows the typed form one would choose.

use std::process::ExitCode;

use backstitch::Server;

mod chat;
mod flow;
mod interrupts;
mod parts;
mod runtime;

#[tokio::main]
async fn main() -> ExitCode {
    Server::new()
        .graph("agent", chat::agent())
        .graph("chatsub", chat::chatsub())
        .graph("router", flow::router())
        .graph("counter", flow::counter())
        .graph("approve", interrupts::approve())
        .graph("approve_many", interrupts::approve_many())
        .graph("subgraph", interrupts::subgraph())
        .graph("failing", runtime::failing())
        .graph("slow", runtime::slow())
        .graph("mapreduce", flow::mapreduce())
        .graph("ctx", runtime::ctx())
        .run()
        .await
}
