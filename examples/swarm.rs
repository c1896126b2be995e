//! A swarm: agents that hand a conversation over to each other. The next message goes to the one that spoke last.
//!
//! ```sh
//! cargo run --example swarm
//! curl -sN localhost:2024/runs/wait -H 'content-type: application/json' -d '{"assistant_id": "desk",
//!   "input": {"messages": [{"role": "user", "content": "My lamp is broken"}]}}'
//! ```

use std::{process::ExitCode, sync::Arc};

use backstitch::{
    Server,
    agent::{AgentState, hand_off},
    graph::Invalid,
    prelude::*,
};

/// Orders a repair.
#[tool]
async fn repair(thing: String) -> String {
    format!("a repair of the {thing} is ordered")
}

/// The agent that spoke last; a new conversation begins with the sales.
fn whose_turn(state: &AgentState) -> &'static str {
    let by_agent = |message: &&Message| message.role() == Role::Ai;
    let last = state.messages.iter().rev().find(by_agent);
    match last.and_then(Message::name) {
        Some("support") => "support",
        _ => "sales",
    }
}

/// Replies to what was said last; a real model goes here: `openai::Client::from_env()?`.
fn scripted(messages: &[Message], tools: &[Arc<Tool>]) -> Result<Message> {
    let text = messages.last().map(Message::text).unwrap_or_default();
    let has = |name: &str| tools.iter().any(|tool| tool.name() == name);
    Ok(if text.contains("broken") && has("transfer_to_support") {
        Message::ai("").calling("transfer_to_support", json!({}))
    } else if text.contains("takes over") {
        Message::ai("").calling("repair", json!({"thing": "lamp"}))
    } else if text.contains("buy") && has("transfer_to_sales") {
        Message::ai("").calling("transfer_to_sales", json!({}))
    } else {
        Message::ai(format!("Fine: {text}."))
    })
}

fn desk() -> Result<Arc<Compiled>, Invalid> {
    let sales = agent(ScriptedModel::new(scripted))
        .name("sales")
        .tools([hand_off("support", "For things that are broken.")])
        .build()?;
    let support = agent(ScriptedModel::new(scripted))
        .name("support")
        .tools([repair(), hand_off("sales", "For people who want to buy.")])
        .build()?;
    let to = |agent: &'static str| NodeOpts::new().destinations([agent]);
    Graph::<AgentState>::new()
        .subgraph_with("sales", sales, to("support"))
        .subgraph_with("support", support, to("sales"))
        .route(START, whose_turn, ["sales", "support"])
        .build()
}

#[tokio::main]
async fn main() -> ExitCode {
    Server::new().graph("desk", desk()).run().await
}
