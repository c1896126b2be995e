//! A chat agent with tools: the model calls them, also in parallel, until it can reply.

use std::{sync::Arc, time::Duration};

use backstitch::{
    graph::{Compiled, Invalid},
    prelude::*,
};

use super::{Model, PACE};

mod calculator;
mod script;
mod tools;

const INSTRUCTIONS: &str = "You are the demo agent of Backstitch, a durable runtime for agent \
    graphs. Be brief. Use the tools for weather, arithmetic and the time instead of guessing.";

/// The agent over this model.
pub fn graph(model: &Model) -> Result<Arc<Compiled>, Invalid> {
    let once_more = NodeOpts::new()
        .retry(Retry::times(2))
        .timeout(Duration::from_secs(600));
    agent(model.or(ScriptedModel::new(script::reply).pace(PACE)))
        .tools(tools::all())
        .prompt(INSTRUCTIONS)
        .model_opts(once_more)
        .build()
}
