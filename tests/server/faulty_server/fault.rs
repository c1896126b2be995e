//! A graph that fails, asks, never ends, or makes many or large supersteps.

use std::{sync::Arc, time::Duration};

use super::leave_trace;
use backstitch::{
    graph::{Compiled, Invalid},
    prelude::*,
};

/// Does as it is told in `how`, after one node that works.
#[derive(State)]
struct Fault {
    how: Option<String>,
    /// Anything a client wants to see again.
    note: Option<Value>,
    /// After so many supersteps a run without end ends after all.
    most: Option<usize>,
    /// Milliseconds that each superstep takes.
    pause: Option<u64>,
    /// Bytes of the text that each superstep writes, another one each time.
    size: Option<usize>,
    text: Option<String>,
    /// A file to which each superstep adds its name and how many there were before it.
    trace: Option<String>,
    #[state(append)]
    done: Vec<String>,
}

impl Fault {
    fn leave_trace(&self, node: &str) -> Result<()> {
        match &self.trace {
            Some(file) => leave_trace(Some(file), &format!("{node} {}", self.done.len())),
            None => Ok(()),
        }
    }
}

async fn good(state: Fault) -> Result<Update<Fault>> {
    state.leave_trace("good")?;
    Ok(Fault::update().done("good"))
}

async fn bad(state: Fault, ctx: Ctx) -> Result<Command<Fault>> {
    state.leave_trace("bad")?;
    if matches!(state.how.as_deref(), Some("step" | "step and ask")) {
        let work = async { state.leave_trace("step") };
        ctx.step("step", work).await?;
    }
    if matches!(state.how.as_deref(), Some("ask" | "step and ask")) {
        let answer: String = ctx.interrupt("shall I go on?").await;
        state.leave_trace(&answer)?;
    }
    if let Some(pause) = state.pause {
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    let mut update = Fault::update().done("bad");
    if let Some(size) = state.size {
        let is_even = state.done.len().is_multiple_of(2);
        update = update.text((if is_even { "x" } else { "y" }).repeat(size));
    }
    let done = Command::from(update);
    match state.how.as_deref() {
        Some("panic") => panic!("this node panics on purpose"),
        Some("error") => Err(Raised::new("ValueError", "no luck").into()),
        Some("endless") if state.most.is_none_or(|most| state.done.len() + 1 < most) => {
            Ok(done.goto("bad"))
        }
        _ => Ok(done),
    }
}

fn stray(state: &Fault) -> &'static str {
    match state.how.as_deref() {
        Some("astray") => "nowhere",
        _ => END,
    }
}

pub fn graph() -> Result<Arc<Compiled>, Invalid> {
    Graph::<Fault>::new()
        .node("good", good)
        .node("bad", bad)
        .edge(START, "good")
        .edge("good", "bad")
        .route("bad", stray, ["good", END])
        .build()
}
