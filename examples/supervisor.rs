//! A supervisor: an agent whose tools are other agents. Each worker begins with its task alone, and the supervisor
//! reads its last message.
//!
//! ```sh
//! cargo run --example supervisor
//! curl -sN localhost:2024/runs/wait -H 'content-type: application/json' -d '{"assistant_id": "team",
//!   "input": {"messages": [{"role": "user", "content": "What do 12 tickets to Bergen cost?"}]}}'
//! ```

use std::{process::ExitCode, sync::Arc};

use backstitch::{Server, graph::Invalid, prelude::*, value};

/// The workers, which are graphs like any other.
struct Workers {
    prices: Arc<Compiled>,
    numbers: Arc<Compiled>,
}

/// Finds out what something costs.
#[tool]
async fn find_price(
    /// What to find out, in one sentence.
    task: String,
    workers: Dep<Workers>,
    ctx: Ctx,
) -> Result<String> {
    work(&ctx, &workers.prices, task).await
}

/// Calculates.
#[tool]
async fn calculate(
    /// What to calculate, in one sentence.
    task: String,
    workers: Dep<Workers>,
    ctx: Ctx,
) -> Result<String> {
    work(&ctx, &workers.numbers, task).await
}

async fn work(ctx: &Ctx, worker: &Arc<Compiled>, task: String) -> Result<String> {
    let input = value!({"messages": [Message::human(task)]});
    let values: Value = ctx.call(worker, input).await?;
    let last = values["messages"].as_list().and_then(<[Value]>::last);
    let last = last.ok_or_else(|| anyhow::anyhow!("the worker has not replied"))?;
    Ok(Message::try_from(last)?.text())
}

/// Looks up the price of a ticket.
#[tool]
async fn ticket(to: String) -> String {
    format!("a ticket to {to} costs 349 kr")
}

/// Multiplies two numbers.
#[tool]
async fn multiply(a: i64, b: i64) -> Result<i64> {
    a.checked_mul(b).ok_or_else(|| anyhow::anyhow!("too large"))
}

/// Replies in the order of a script; a real model goes here: `openai::Client::from_env()?`.
fn scripted<const N: usize>(replies: [Message; N]) -> ScriptedModel {
    ScriptedModel::replying(replies)
}

fn team() -> Result<Arc<Compiled>, Invalid> {
    let prices = agent(scripted([
        Message::ai("").calling("ticket", json!({"to": "Bergen"})),
        Message::ai("A ticket costs 349 kr."),
    ]));
    let numbers = agent(scripted([
        Message::ai("").calling("multiply", json!({"a": 12, "b": 349})),
        Message::ai("12 times 349 is 4188."),
    ]));
    let workers = Workers {
        prices: prices.name("prices").tools([ticket()]).build()?,
        numbers: numbers.name("numbers").tools([multiply()]).build()?,
    };
    let supervisor = scripted([
        Message::ai("").calling(
            "find_price",
            json!({"task": "What does a ticket to Bergen cost?"}),
        ),
        Message::ai("").calling("calculate", json!({"task": "What is 12 times 349?"})),
        Message::ai("12 tickets to Bergen cost 4188 kr."),
    ]);
    agent(supervisor)
        .name("supervisor")
        .prompt("You lead workers. Give each a task that it understands without the conversation.")
        .tools([find_price(), calculate()])
        .provide(Arc::new(workers))
        .build()
}

#[tokio::main]
async fn main() -> ExitCode {
    Server::new().graph("team", team()).run().await
}
