//! The node that runs the agent's tool calls: hooks around them, edits by humans, errors.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{
    approval,
    hooks::{Around, Next},
};
use crate::{
    extract::{Ctx, FromTask, Requires},
    graph::{Handler, IntoOutput, Output},
    llm::{
        Call, Tool, ToolNode, ToolResult, tool_node,
        tools::{
            definition::Unusable,
            node::{ByTools, failure, try_tool},
        },
    },
    message::ToolCall,
    value::Value,
};

/// What the node has.
pub(super) struct ToolsStep {
    pub tools: Vec<Arc<Tool>>,
    pub around: Vec<Arc<Around>>,
    /// Errors of tools are results, which the model reads; else they fail the run.
    pub errors_to_model: bool,
}

impl ToolsStep {
    /// Runs a tool, without the hooks.
    pub async fn run_tool(&self, call: &ToolCall, ctx: Ctx) -> anyhow::Result<ToolResult> {
        try_tool(&self.tools, call, ctx).await
    }

    /// Runs a call, with everything around it.
    async fn run(self: Arc<Self>, call: ToolCall, ctx: Ctx) -> anyhow::Result<ToolResult> {
        let state = ctx.task().host.state(ctx.task()).unwrap_or_default();
        let edited = approval::edited(&state, &call);
        let running = edited.clone().unwrap_or_else(|| call.clone());
        let next = Next {
            step: self.clone(),
            done: 0,
            ctx,
        };
        let result = match next.run(running.clone()).await {
            Ok(result) => result,
            Err(error) if self.errors_to_model || error.is::<Unusable>() => {
                failure(&running, &error)
            }
            Err(error) => return Err(error),
        };
        Ok(if edited.is_some() {
            with_notice(result, &running)
        } else {
            result
        })
    }
}

/// The model has requested another call than the one that ran: it reads so in the result.
fn with_notice(result: ToolResult, ran: &ToolCall) -> ToolResult {
    let notice = format!(
        "A human has changed this call before it ran, on purpose: it was `{}` with {}. Do not repeat your own.",
        ran.name,
        ran.args.to_json()
    );
    let message = result.message().clone();
    let content = match message.content() {
        Value::List(parts) => {
            let mut all = vec![Value::from(
                serde_json::json!({"type": "text", "text": notice}),
            )];
            all.extend(parts.iter().cloned());
            Value::list(all)
        }
        _ => format!("{notice}\n\n{}", message.text()).into(),
    };
    result.with_message(message.with_field("content", content))
}

/// The step as a node.
pub(super) struct AgentTools {
    step: Arc<ToolsStep>,
    node: ToolNode,
}

impl AgentTools {
    pub fn new(step: ToolsStep) -> Self {
        Self {
            node: tool_node(step.tools.iter().cloned()),
            step: Arc::new(step),
        }
    }
}

impl<S> Handler<S, ByTools> for AgentTools {
    fn requires(&self, requires: &mut Requires) {
        Handler::<S, ByTools>::requires(&self.node, requires);
    }

    fn call(&self, ctx: &Ctx) -> BoxFuture<'static, anyhow::Result<Output>> {
        let (step, ctx) = (self.step.clone(), ctx.clone());
        Box::pin(async move {
            let Call(call) = Call::from_task(&ctx)?;
            let result = step.run(call, ctx).await?;
            <ToolResult as IntoOutput<S>>::into_output(result)
        })
    }
}
