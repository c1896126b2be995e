//! Hooks: nodes before and after the model, and functions around tool calls.

use std::{future::Future, sync::Arc};

use futures::future::BoxFuture;

use super::tools::ToolsStep;
use crate::{
    extract::{Ctx, Requires},
    graph::{Handler, Output},
    llm::ToolResult,
    message::ToolCall,
    value::Value,
};

/// A function around tool calls.
pub(super) type Around =
    dyn Fn(ToolCall, Next) -> BoxFuture<'static, anyhow::Result<ToolResult>> + Send + Sync;

/// Makes a hook of an async function.
pub(super) fn around<Fut>(
    hook: impl Fn(ToolCall, Next) -> Fut + Send + Sync + 'static,
) -> Arc<Around>
where
    Fut: Future<Output = anyhow::Result<ToolResult>> + Send + 'static,
{
    Arc::new(move |call, next| Box::pin(hook(call, next)))
}

/// The rest of a tool call, inside a hook around it: further hooks, and the tool.
#[derive(Clone)]
pub struct Next {
    pub(super) step: Arc<ToolsStep>,
    pub(super) done: usize,
    pub(super) ctx: Ctx,
}

impl Next {
    /// Runs the call, which the hook may have changed. It may run several times.
    ///
    /// # Errors
    /// The error of the tool, or of a hook inside.
    pub async fn run(&self, call: ToolCall) -> anyhow::Result<ToolResult> {
        let next = Self {
            done: self.done + 1,
            ..self.clone()
        };
        match self.step.around.get(self.done) {
            Some(hook) => hook(call, next).await,
            None => self.step.run_tool(&call, self.ctx.clone()).await,
        }
    }

    /// The task of the call.
    pub fn ctx(&self) -> &Ctx {
        &self.ctx
    }
}

/// A hook that is a node. It withdraws an earlier jump, which would lead its own route too.
pub(super) struct HookNode<H>(pub H);

/// Marks hooks among the functions that are nodes.
pub(super) struct ByHook<Args>(std::marker::PhantomData<Args>);

impl<S, Args, H: Handler<S, Args>> Handler<S, ByHook<Args>> for HookNode<H> {
    fn requires(&self, requires: &mut Requires) {
        self.0.requires(requires);
    }

    fn call(&self, ctx: &Ctx) -> BoxFuture<'static, anyhow::Result<Output>> {
        let work = self.0.call(ctx);
        let jumped = jumped(ctx);
        Box::pin(async move {
            let mut output = work.await?;
            if jumped && output.writes.iter().all(|(name, _)| &**name != JUMP) {
                output.writes.push((JUMP.into(), Value::Null));
            }
            Ok(output)
        })
    }
}

/// The channel of jumps.
pub(super) const JUMP: &str = "jump_to";

/// Whether a jump led to this task.
pub(super) fn jumped(ctx: &Ctx) -> bool {
    let state = ctx.task().host.state(ctx.task());
    let jump = state.as_ref().and_then(|state| state.get(JUMP));
    jump.is_some_and(|jump| !jump.is_null())
}
