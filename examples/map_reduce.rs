//! Map and reduce: split a topic, write one joke per part in parallel, pick the best in a
//! subgraph.
//!
//! ```sh
//! cargo run --example map_reduce -- --memory
//! ```
//!
//! Then, in another terminal: the result, every step on the way (the subgraph's too), and the
//! graph as a drawing.
//!
//! ```sh
//! curl -s localhost:2024/runs/wait -H 'content-type: application/json' \
//!   -d '{"assistant_id": "jokes", "input": {"topic": "a llama"}}'
//! curl -sN localhost:2024/runs/stream -H 'content-type: application/json' \
//!   -d '{"assistant_id": "jokes", "input": {"topic": "a llama"},
//!        "stream_mode": ["updates", "custom"], "stream_subgraphs": true}'
//! curl -s localhost:2024/assistants/search -H 'content-type: application/json' -d '{}'
//! ```

use std::{process::ExitCode, sync::Arc, time::Duration};

use backstitch::{Server, graph::Compiled, prelude::*};

#[derive(State)]
struct Jokes {
    topic: String,
    parts: Vec<String>,
    /// Parallel tasks may write at once: their items are put together.
    #[state(append)]
    jokes: Vec<Joke>,
    best: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Joke {
    about: String,
    text: String,
}

/// A view: a node that needs one channel of four names one channel.
#[derive(State)]
struct Topic {
    topic: String,
}

async fn split(Topic { topic }: Topic) -> Update<Jokes> {
    let parts = ["life", "work", "love"].map(|part| format!("{part} of {topic}"));
    Jokes::update().parts(parts.to_vec())
}

#[derive(State)]
struct Parts {
    parts: Vec<String>,
}

/// The map: one task per part, each with a part of its own.
fn each_part(state: &Parts) -> Vec<Target> {
    let parts = state.parts.iter();
    parts.map(|part| goto("write").with(part)).collect()
}

async fn write(Arg(about): Arg<String>, ctx: Ctx) -> Result<Update<Jokes>> {
    ctx.emit(json!({"writing": about}));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let text = format!("Something funny about the {about}.");
    Ok(Jokes::update().jokes(Joke { about, text }))
}

/// The subgraph's own state: channels of the same name are shared with the graph around it.
#[derive(State)]
struct Judging {
    jokes: Vec<Joke>,
    best: Option<String>,
}

async fn judge(state: Judging) -> Update<Judging> {
    let longest = state.jokes.into_iter().max_by_key(|joke| joke.text.len());
    Judging::update().best(longest.map(|joke| joke.text).or(state.best))
}

fn graph() -> Result<Arc<Compiled>> {
    let judging = Graph::<Judging>::new()
        .node("judge", judge)
        .edge(START, "judge")
        // Only this comes back; the jokes would be appended a second time.
        .output(["best"])
        .build()?;
    Ok(Graph::<Jokes>::new()
        .node("split", split)
        .node("write", write)
        .subgraph("judging", judging)
        .edge(START, "split")
        .route("split", each_part, ["write"])
        .edge("write", "judging")
        .edge("judging", END)
        .build()?)
}

#[tokio::main]
async fn main() -> ExitCode {
    Server::new().graph("jokes", graph()).run().await
}
