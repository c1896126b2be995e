//! The server that integration tests start when they need graphs that misbehave.

use std::io::Write;

use backstitch::{Server, prelude::*};

/// Does as it is told in `how`, after one node that works.
#[derive(State)]
struct Fault {
    how: Option<String>,
    /// Anything a client wants to see again.
    note: Option<Value>,
    #[state(append)]
    done: Vec<String>,
}

async fn good() -> Update<Fault> {
    Fault::update().done("good")
}

async fn bad(state: Fault) -> Result<Command<Fault>> {
    let done = Command::from(Fault::update().done("bad"));
    match state.how.as_deref() {
        Some("panic") => panic!("this node panics on purpose"),
        Some("error") => Err(backstitch::error::Raised::new("ValueError", "no luck").into()),
        Some("endless") => Ok(done.goto("bad")),
        _ => Ok(done),
    }
}

fn stray(state: &Fault) -> &'static str {
    match state.how.as_deref() {
        Some("astray") => "nowhere",
        _ => END,
    }
}

/// Two nodes at once: one adds a line to the file `trace` and ends, the other waits until somebody
/// makes the file `gate`.
#[derive(State)]
struct Pair {
    gate: Option<String>,
    trace: Option<String>,
    #[state(append)]
    done: Vec<String>,
}

async fn quick(state: Pair) -> Result<Update<Pair>> {
    let mut trace = std::fs::File::options()
        .create(true)
        .append(true)
        .open(state.trace.unwrap_or_default())?;
    writeln!(trace, "quick")?;
    Ok(Pair::update().done("quick"))
}

async fn stuck(state: Pair) -> Update<Pair> {
    let gate = state.gate.unwrap_or_default();
    while !std::path::Path::new(&gate).exists() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    Pair::update().done("stuck")
}

/// A conversation whose answer to `wait` never comes.
#[derive(State)]
struct Talk {
    #[state(messages)]
    messages: Vec<Message>,
}

async fn answer(state: Talk) -> Update<Talk> {
    let said = state.messages.last().map(Message::text).unwrap_or_default();
    if said == "wait" {
        std::future::pending::<()>().await;
    }
    Talk::update().messages(Message::ai(format!("so: {said}")))
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let fault = Graph::<Fault>::new()
        .node("good", good)
        .node("bad", bad)
        .edge(START, "good")
        .edge("good", "bad")
        .route("bad", stray, ["good", END])
        .build();
    let pair = Graph::<Pair>::new()
        .node("quick", quick)
        .node("stuck", stuck)
        .edge(START, "quick")
        .edge(START, "stuck")
        .build();
    let talk = Graph::<Talk>::new()
        .node("answer", answer)
        .edge(START, "answer")
        .build();
    Server::new()
        .graph("talk", talk)
        .graph("fault", fault)
        .graph("pair", pair)
        .run()
        .await
}
