//! The bundled server: demo graphs behind the Agent Server protocol.

use backstitch::{Server, prelude::*};

#[derive(State)]
struct Counter {
    #[state(merge = add)]
    count: i64,
    #[state(append)]
    log: Vec<String>,
}

fn add(old: i64, new: i64) -> i64 {
    old + new
}

async fn first() -> Update<Counter> {
    Counter::update().count(1i64).log("first")
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let graph = Graph::<Counter>::new()
        .node("first", first)
        .edge(START, "first")
        .build();
    Server::new().graph("counter", graph).run().await
}
