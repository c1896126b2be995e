//! The server that integration tests start when they need a graph that misbehaves.

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

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let fault = Graph::<Fault>::new()
        .node("good", good)
        .node("bad", bad)
        .edge(START, "good")
        .edge("good", "bad")
        .route("bad", stray, ["good", END])
        .build();
    Server::new().graph("fault", fault).run().await
}
