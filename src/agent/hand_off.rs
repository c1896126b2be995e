//! Tools by which one agent hands a conversation over to another.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    agent::AgentState,
    extract::{Ctx, FromTask, Requires, View},
    graph::Output,
    llm::{Call, Tool, ToolDefinition, ToolOutput},
    message::Message,
    state::goto,
    value::Value,
};

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// A tool that ends the agent in which it runs and goes on with the node `to` of the graph around it, which gets the
/// conversation. The tool is called `transfer_to_` and the name of the node; `about` tells the model when to call it.
/// Name the node among the `destinations` of the agent's node for drawings.
pub fn hand_off(to: impl Into<Arc<str>>, about: impl Into<String>) -> Arc<Tool> {
    let to: Arc<str> = to.into();
    let requires = |requires: &mut Requires| View::<AgentState>::requires(requires);
    ToolDefinition::new(format!("transfer_to_{to}"))
        .description(about)
        .requires(requires)
        .build(move |_: Nothing, ctx: Ctx| {
            let to = to.clone();
            async move {
                let Call(call) = Call::from_task(&ctx)?;
                let View(state) = View::<AgentState>::from_task(&ctx)?;
                // The graph around has the messages up to where this agent began.
                let mut messages = state.messages;
                messages.retain(|message| {
                    message.tool_call_id() != call.id.as_deref() || call.id.is_none()
                });
                let messages: Value = messages
                    .into_iter()
                    .map(|m: Message| Value::from(m))
                    .collect();
                Ok(ToolOutput::new(format!("{to} takes over."))
                    .update::<AgentState>(Output::update([("messages", messages)]))
                    .goto(goto(to))
                    .to_parent())
            }
        })
}
