//! What an agent is made of, set one after another.

use std::{future::Future, sync::Arc};

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Agent, Limit, Next, Review, Summary,
    hooks::{self, HookNode},
    model::Prompt,
    response::Response,
};
use crate::{
    extract::{Ctx, FromTask},
    graph::{Graph, Handler, Names, NodeOpts},
    llm::{CallOptions, Tool, ToolResult},
    message::ToolCall,
    state::State,
};

impl<S: State> Agent<S> {
    /// Adds tools. Calls of one reply run in parallel, one task each.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<Tool>>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// Instructions, which the model reads before the conversation. They are not stored in it.
    pub fn prompt(mut self, text: impl Into<Arc<str>>) -> Self {
        self.prompt = Some(Prompt::Text(text.into()));
        self
    }

    /// Instructions that are made for each call of the model, from any parameter of a node: a view of the state,
    /// [`Config<T>`](crate::extract::Config), [`Ctx`].
    ///
    /// ```
    /// use backstitch::prelude::*;
    ///
    /// # let model = ScriptedModel::replying([]);
    /// #[data]
    /// struct Settings {
    ///     language: String,
    /// }
    ///
    /// let agent = agent(model)
    ///     .context::<Settings>()
    ///     .prompt_with(|Config(settings): Config<Settings>| format!("Reply in {}.", settings.language));
    /// ```
    pub fn prompt_with<P: FromTask + 'static>(
        mut self,
        prompt: impl Fn(P) -> String + Send + Sync + 'static,
    ) -> Self {
        let make = move |ctx: &Ctx| Ok(prompt(P::from_task(ctx)?));
        self.prompt = Some(Prompt::Made(Arc::new(make), P::requires));
        self
    }

    /// Calls of these tools wait for a human's decision: an interrupt with `action_requests` and `review_configs`,
    /// resumed with `{"decisions": [..]}`.
    pub fn approve<N: Into<Arc<str>>>(self, tools: impl IntoIterator<Item = N>) -> Self {
        tools
            .into_iter()
            .fold(self, |agent, tool| agent.review(tool, Review::new()))
    }

    /// As [`approve`](Self::approve), for one tool, in a way of one's own.
    pub fn review(mut self, tool: impl Into<Arc<str>>, review: Review) -> Self {
        self.reviews.push((tool.into(), review));
        self
    }

    /// Ends with a structured response of type `T` in the channel `structured_response`: by a schema where the model
    /// follows one, else by a call of a tool with the name of `T`. A response that does not fit is shown to the model.
    pub fn respond_with<T>(mut self) -> Self
    where
        T: Serialize + DeserializeOwned + JsonSchema + Send + 'static,
    {
        self.response = Some(Response::new::<T>());
        self
    }

    /// How often in a row the model is shown what is wrong with its reply before the run fails: a response that does
    /// not fit, arguments that are no JSON. By default three times.
    pub fn corrections(mut self, most: usize) -> Self {
        self.corrections = most;
        self
    }

    /// Limits the calls of the model.
    pub fn limit_model_calls(mut self, limit: Limit) -> Self {
        self.model_calls = Some(limit);
        self
    }

    /// Limits the calls of all tools together.
    pub fn limit_tool_calls(mut self, limit: Limit) -> Self {
        self.tool_calls.push((None, limit));
        self
    }

    /// Limits the calls of one tool.
    pub fn limit_tool(mut self, tool: impl Into<Arc<str>>, limit: Limit) -> Self {
        self.tool_calls.push((Some(tool.into()), limit));
        self
    }

    /// Fails the run when a tool fails. By default the model reads the error. Of unknown tools and of arguments that
    /// do not fit it reads in any case.
    pub fn fail_on_tool_errors(mut self) -> Self {
        self.tool_errors = false;
        self
    }

    /// Runs a function around every tool call, the first one outermost: it may change the call and the result, retry,
    /// or not call the tool.
    ///
    /// ```
    /// use backstitch::{agent::Next, message::ToolCall, prelude::*};
    ///
    /// # let model = ScriptedModel::replying([]);
    /// let agent = agent(model).around_tools(async |call: ToolCall, next: Next| {
    ///     tracing::info!(tool = %call.name, "called");
    ///     next.run(call).await
    /// });
    /// ```
    pub fn around_tools<Fut>(
        mut self,
        hook: impl Fn(ToolCall, Next) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = anyhow::Result<ToolResult>> + Send + 'static,
    {
        self.around.push(hooks::around(hook));
        self
    }

    /// Adds a node before every call of the model: any function that is a node of a graph over `S`. It may interrupt,
    /// update the state, and jump by setting `jump_to`.
    pub fn before_model<Args: 'static>(
        mut self,
        name: impl Into<Arc<str>>,
        node: impl Handler<S, Args>,
    ) -> Self {
        let name = name.into();
        self.before_model.push(name.clone());
        self.hook(name, node)
    }

    /// Adds a node after every call of the model, before approvals and tools.
    pub fn after_model<Args: 'static>(
        mut self,
        name: impl Into<Arc<str>>,
        node: impl Handler<S, Args>,
    ) -> Self {
        let name = name.into();
        self.after_model.push(name.clone());
        self.hook(name, node)
    }

    /// Adds a node with which the agent begins.
    pub fn before_agent<Args: 'static>(
        mut self,
        name: impl Into<Arc<str>>,
        node: impl Handler<S, Args>,
    ) -> Self {
        let name = name.into();
        self.before_agent.push(name.clone());
        self.hook(name, node)
    }

    /// Adds a node with which the agent ends.
    pub fn after_agent<Args: 'static>(
        mut self,
        name: impl Into<Arc<str>>,
        node: impl Handler<S, Args>,
    ) -> Self {
        let name = name.into();
        self.after_agent.push(name.clone());
        self.hook(name, node)
    }

    fn hook<Args: 'static>(mut self, name: Arc<str>, node: impl Handler<S, Args>) -> Self {
        self.graph = self.graph.node(name, HookNode(node));
        self
    }

    /// Shows the model only the last messages, as many or fewer: from one of a human on. Of a turn that is longer
    /// it sees all. All stay stored.
    pub fn last_messages(mut self, most: usize) -> Self {
        self.last_messages = Some(most);
        self
    }

    /// Replaces older messages by a summary.
    pub fn summarize(mut self, summary: Summary) -> Self {
        self.summary = Some(summary);
        self
    }

    /// The name of the agent, which its messages have.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Options of every call of the model.
    pub fn call_options(mut self, options: CallOptions) -> Self {
        self.options = options;
        self
    }

    /// Retries and timeouts of the node that calls the model.
    pub fn model_opts(mut self, opts: NodeOpts) -> Self {
        self.model_opts = opts;
        self
    }

    /// Retries and timeouts of the node that runs tools.
    pub fn tool_opts(mut self, opts: NodeOpts) -> Self {
        self.tool_opts = opts;
        self
    }

    /// Makes a dependency available to tools and hooks; see [`Graph::provide`].
    pub fn provide<T: ?Sized + Send + Sync + 'static>(mut self, dep: Arc<T>) -> Self {
        self.graph = self.graph.provide(dep);
        self
    }

    /// Declares the type of the run's context; see [`Graph::context`].
    pub fn context<T: JsonSchema>(mut self) -> Self {
        self.graph = self.graph.context::<T>();
        self
    }

    /// Stops a run before these nodes; see [`Graph::interrupt_before`].
    pub fn interrupt_before(mut self, nodes: impl Into<Names>) -> Self {
        self.stops.0 = nodes.into();
        self
    }

    /// Stops a run after these nodes; see [`Graph::interrupt_after`].
    pub fn interrupt_after(mut self, nodes: impl Into<Names>) -> Self {
        self.stops.1 = nodes.into();
        self
    }

    /// Changes the graph to which the agent adds its nodes: its title, its recursion limit, how it is stored.
    pub fn graph(mut self, change: impl FnOnce(Graph<S>) -> Graph<S>) -> Self {
        self.graph = change(self.graph);
        self
    }
}
