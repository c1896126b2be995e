//! Error handlers: functions that replace a node that failed for good.

use std::{future::Future, sync::Arc};

use super::{
    Body, Graph, Handler, NodeFn, NodeOpts, Output, Untyped, builder::DraftNode, handler::erase,
};
use crate::{
    extract::{Ctx, Requires},
    state::State,
};

/// The name under which clients see the task of a handler; LangGraph's.
fn handler_name(node: Option<&Arc<str>>) -> Arc<str> {
    match node {
        Some(node) => format!("__error_handler__{node}").into(),
        None => "__default_error_handler__".into(),
    }
}

impl<S> Graph<S> {
    fn add_handler(mut self, node: Option<Arc<str>>, function: NodeFn, requires: Requires) -> Self {
        let handler = DraftNode {
            name: handler_name(node.as_ref()),
            body: Body::Function(function),
            opts: NodeOpts::new(),
            requires,
        };
        self.draft.handlers.push((node, handler));
        self
    }
}

impl<S: State> Graph<S> {
    /// Runs `handler` when `node` has failed for good: after its last attempt, in the same
    /// superstep, with the input the node had. The run goes on as if the handler had been the
    /// node, but for the node's edges and routes: those are not taken, so a handler
    /// names what follows with a [`Command`](crate::state::Command) or a
    /// [`Target`](crate::state::Target). A [`Failure`](crate::extract::Failure) as a parameter
    /// has the reason.
    ///
    /// A handler that fails, fails the run; the next run retries the handler, never the node. A
    /// handler that finished does not run a second time when the run stops for another reason.
    /// There is no handler for what stops a run, such as a cancellation or a storage that cannot
    /// be reached, nor for a resume value of the wrong shape.
    ///
    /// ```
    /// use backstitch::{Local, prelude::*, run::Input, value};
    ///
    /// #[derive(State)]
    /// struct Order {
    ///     item: String,
    ///     note: Option<String>,
    /// }
    ///
    /// async fn charge(order: Order) -> Result<Update<Order>> {
    ///     Err(Raised::new("CardDeclined", "no funds").into())
    /// }
    ///
    /// async fn apologise(order: Order, failure: Failure) -> Command<Order> {
    ///     let note = format!("{} was not sold: {}", order.item, failure.message);
    ///     Order::update().note(note).goto("close")
    /// }
    ///
    /// async fn close() {}
    ///
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// let graph = Graph::<Order>::new()
    ///     .node("charge", charge)
    ///     .on_error("charge", apologise)
    ///     .node("close", close)
    ///     .edge(START, "charge")
    ///     .edge("charge", "close")
    ///     .build()?;
    /// let input = Input::Value(value!({"item": "tea"}));
    /// let finished = Local::run_once(&graph, input, Default::default()).await;
    /// assert_eq!(finished.values["note"], "tea was not sold: no funds");
    /// # anyhow::Ok(())
    /// # })?;
    /// # anyhow::Ok(())
    /// ```
    pub fn on_error<Args: 'static>(
        self,
        node: impl Into<Arc<str>>,
        handler: impl Handler<S, Args>,
    ) -> Self {
        let mut requires = Requires::default();
        handler.requires(&mut requires);
        self.add_handler(Some(node.into()), erase(handler), requires)
    }

    /// Runs `handler` when a node has failed for good that has no handler of its own; see
    /// [`on_error`](Graph::on_error). Nodes of subgraphs are left out.
    pub fn on_any_error<Args: 'static>(self, handler: impl Handler<S, Args>) -> Self {
        let mut requires = Requires::default();
        handler.requires(&mut requires);
        self.add_handler(None, erase(handler), requires)
    }
}

impl Graph<Untyped> {
    /// Runs `function` when `node` has failed for good; `ctx.failure()` has the reason. The
    /// typed form of this method describes the rest.
    pub fn on_error<F, Fut>(self, node: impl Into<Arc<str>>, function: F) -> Self
    where
        F: Fn(Ctx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = anyhow::Result<Output>> + Send + 'static,
    {
        self.add_handler(Some(node.into()), boxed(function), commands())
    }

    /// Runs `function` when a node has failed for good that has no handler of its own.
    pub fn on_any_error<F, Fut>(self, function: F) -> Self
    where
        F: Fn(Ctx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = anyhow::Result<Output>> + Send + 'static,
    {
        self.add_handler(None, boxed(function), commands())
    }
}

fn boxed<F, Fut>(function: F) -> NodeFn
where
    F: Fn(Ctx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = anyhow::Result<Output>> + Send + 'static,
{
    Arc::new(move |ctx| Box::pin(function(ctx)))
}

fn commands() -> Requires {
    Requires {
        commands: true,
        ..Requires::default()
    }
}
