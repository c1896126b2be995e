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

#[derive(State)]
struct Chat {
    #[state(messages)]
    messages: Vec<Message>,
}

const INSTRUCTIONS: &str = "You are the demo agent of Backstitch, a durable runtime for agent \
    graphs. Be brief. Use the tools for weather, arithmetic and the time instead of guessing.";

async fn agent(
    chat: Chat,
    model: Dep<dyn ChatModel>,
    tools: Dep<Vec<Arc<Tool>>>,
    ctx: Ctx,
) -> Result<Update<Chat>> {
    let mut messages = vec![Message::system(INSTRUCTIONS)];
    messages.extend(chat.messages);
    let reply = ctx.chat(&*model, &messages, &tools).await?;
    Ok(Chat::update().messages(reply))
}

/// One task per tool call; nothing left to call means that the reply is ready.
fn pending_calls(chat: &Chat) -> Vec<Target> {
    let last = chat.messages.last();
    match last.map(Message::tool_calls).unwrap_or_default() {
        calls if calls.is_empty() => vec![goto(END)],
        calls => calls.iter().map(|c| goto("tools").with(c)).collect(),
    }
}

/// The agent over this model.
pub fn graph(model: &Model) -> Result<Arc<Compiled>, Invalid> {
    let tools = tools::all();
    let once_more = NodeOpts::new()
        .retry(Retry::times(2))
        .timeout(Duration::from_secs(600));
    Graph::<Chat>::new()
        .provide(model.or(ScriptedModel::new(script::reply).pace(PACE)))
        .provide(Arc::new(tools.clone()))
        .node_with("agent", agent, once_more)
        .node("tools", tool_node(tools))
        .edge(START, "agent")
        .route("agent", pending_calls, ["tools", END])
        .edge("tools", "agent")
        .build()
}
