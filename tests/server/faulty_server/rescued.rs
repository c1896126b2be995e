//! A superstep of three tasks: one fails, and its error handler asks a question; one asks a question; one finishes with
//! as large a text as it was given.

use std::sync::Arc;

use backstitch::{
    graph::{Compiled, Invalid},
    prelude::*,
};

#[derive(State)]
struct Job {
    text: Option<String>,
    #[state(append)]
    done: Vec<String>,
}

async fn work(_: Job) -> Result<Update<Job>> {
    Err(Raised::new("OSError", "out of order").into())
}

async fn rescue(ctx: Ctx) -> Update<Job> {
    let answer: String = ctx.interrupt("once more?").await;
    Job::update().done(answer)
}

async fn ask(ctx: Ctx) -> Update<Job> {
    let answer: String = ctx.interrupt("and then?").await;
    Job::update().done(answer)
}

async fn fill(state: Job) -> Update<Job> {
    Job::update().done(state.text.unwrap_or_default())
}

pub fn graph() -> Result<Arc<Compiled>, Invalid> {
    Graph::<Job>::new()
        .node("work", work)
        .on_error("work", rescue)
        .node("ask", ask)
        .node("fill", fill)
        .edge(START, "work")
        .edge(START, "ask")
        .edge(START, "fill")
        .build()
}
