//! The handle of a running node: interrupts, durable steps, streaming, nested graphs, memory.

use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};

use super::{Failure, FoundItem, Report};
use crate::{
    graph::{Compiled, Deps},
    hint::did_you_mean,
    id::TaskId,
    message::Message,
    state::{FromValues, IntoInput},
    trace,
    value::{self, Map, Value},
};

/// The config of a run, as the client sent it (LangGraph's `config`).
#[derive(Clone, Debug, Default)]
pub struct RunConfig {
    /// `configurable`: thread_id, run_id, graph_id, assistant_id and the client's own keys.
    pub configurable: Map,
    /// Metadata of the run.
    pub metadata: Map,
    /// Tags.
    pub tags: Vec<Arc<str>>,
    /// Supersteps of nodes the run may take.
    pub recursion_limit: u32,
    /// The run's context, filtered by the graph's context schema.
    pub context: Value,
}

/// What the engine does for a running task.
pub trait Host: Send + Sync + 'static {
    /// A `custom` event.
    fn emit(&self, task: &Task, value: Value);

    /// A chat message chunk (or whole message) for the `messages` modes; a stored message map.
    fn message(&self, task: &Task, message: Value, whole: bool);

    /// Whether anybody receives reports of models and tools.
    fn reports(&self) -> bool {
        false
    }

    /// The channels of the graph at the start of the superstep.
    fn state(&self, task: &Task) -> Option<Map> {
        task.input.as_map().cloned()
    }

    /// What the task does with a model or a tool, for callback events.
    fn report(&self, _: &Task, _: Report) {}

    /// The resume value of the task's next interrupt; pending for ever while there is none.
    fn interrupt(&self, task: &Task, value: Value) -> BoxFuture<'static, Value>;

    /// Fails the task and stores nothing, because the last resume value does not fit. Never
    /// resolves.
    fn refuse(&self, task: &Task, error: anyhow::Error) -> BoxFuture<'static, ()>;

    /// The stored result of a step.
    fn step(&self, task: &Task, key: &str) -> Option<Value>;

    /// Makes a step's result durable before it returns.
    fn save_step(
        &self,
        task: &Task,
        key: String,
        value: Value,
    ) -> BoxFuture<'static, anyhow::Result<()>>;

    /// Runs another graph inside the task and returns its final values.
    fn call(
        &self,
        task: &Task,
        graph: Arc<Compiled>,
        input: Value,
    ) -> BoxFuture<'static, anyhow::Result<Value>>;

    /// Writes to the long-term memory shared between threads, until `ttl` has passed; `None` as the
    /// value deletes.
    fn remember(
        &self,
        namespace: Vec<String>,
        key: String,
        value: Option<Value>,
        ttl: Option<Duration>,
    ) -> BoxFuture<'static, anyhow::Result<()>>;

    /// Reads from the long-term memory shared between threads.
    fn recall(
        &self,
        namespace: Vec<String>,
        key: String,
    ) -> BoxFuture<'static, anyhow::Result<Option<Value>>>;

    /// The items of the long-term memory below a namespace that are nearest to a text, or the first ones.
    fn search(
        &self,
        namespace: Vec<String>,
        query: Option<String>,
        limit: usize,
    ) -> BoxFuture<'static, anyhow::Result<Vec<FoundItem<Value>>>>;

    /// Supersteps left after this one.
    fn remaining_steps(&self) -> u32;
}

/// The graphs that a node calls, each with its name there.
pub type CalledGraphs = Arc<[(Arc<str>, Arc<Compiled>)]>;

/// A graph to call: one that the node names in its options, or the graph itself.
pub trait Callee {
    /// The graph.
    ///
    /// # Errors
    /// The node calls no graph of this name.
    fn find(self, ctx: &Ctx) -> anyhow::Result<Arc<Compiled>>;
}

impl Callee for &str {
    fn find(self, ctx: &Ctx) -> anyhow::Result<Arc<Compiled>> {
        let calls = &ctx.task().calls;
        if let Some((_, graph)) = calls.iter().find(|(name, _)| **name == *self) {
            return Ok(graph.clone());
        }
        let hint = did_you_mean(self, calls.iter().map(|(name, _)| &**name));
        anyhow::bail!(
            "node `{}` calls no graph `{self}`{hint}: name it with \
             `NodeOpts::new().calls(\"{self}\", graph)`",
            ctx.node()
        )
    }
}

impl Callee for &Arc<Compiled> {
    fn find(self, _: &Ctx) -> anyhow::Result<Arc<Compiled>> {
        Ok(self.clone())
    }
}

/// One task of a superstep, as its node gets it.
pub struct Task {
    /// Stable over retries and resumes: an idempotency key for calls to the outside.
    pub id: TaskId,
    /// The node.
    pub node: Arc<str>,
    /// The task's namespace: `node:task_id`, behind that of its graph.
    pub ns: Arc<str>,
    /// Superstep number.
    pub step: i64,
    /// The channels that started it, sorted.
    pub triggers: Arc<[Arc<str>]>,
    /// Path in LangGraph's form, as clients see it.
    pub shown_path: Value,
    /// A map of the channels the node reads, or the argument of a fan-out.
    pub input: Value,
    /// Whether it was started with an argument of its own.
    pub has_arg: bool,
    /// The run's config.
    pub config: Arc<RunConfig>,
    /// The run's config with the fields of this task, built at the first use.
    pub own_config: OnceLock<RunConfig>,
    /// Shared dependencies of the graph.
    pub deps: Deps,
    /// The graphs that its node calls, by name.
    pub calls: CalledGraphs,
    /// The engine, which serves the task.
    pub host: Arc<dyn Host>,
    /// How often each step name was used, from which repeated names get their keys.
    pub steps: Mutex<HashMap<String, usize>>,
    /// Attempt number, from 1.
    pub attempt: AtomicUsize,
    /// For error handlers: the failure of the task that this one replaces.
    pub failure: Option<Arc<Failure>>,
}

impl Task {
    fn config_of_its_own(&self) -> RunConfig {
        let mut config = RunConfig::clone(&self.config);
        let triggers = self.triggers.iter().map(|name| Value::Str(name.clone()));
        let fields = [
            ("langgraph_step", Value::from(self.step)),
            ("langgraph_node", Value::Str(self.node.clone())),
            ("langgraph_triggers", Value::list(triggers.collect())),
            ("langgraph_path", self.shown_path.clone()),
            ("langgraph_checkpoint_ns", Value::Str(self.ns.clone())),
        ];
        if let Some(thread) = config.configurable.get("thread_id") {
            config.metadata.insert("thread_id", thread.clone());
        }
        for (key, value) in fields {
            config.metadata.insert(key, value);
        }
        let ns = Value::Str(self.ns.clone());
        config.configurable.insert("checkpoint_ns", ns);
        config
    }
}

/// Cheap to clone; valid for the length of the task.
#[derive(Clone)]
pub struct Ctx {
    task: Arc<Task>,
}

impl Ctx {
    /// Wraps a task; called by the engine.
    pub(crate) fn new(task: Arc<Task>) -> Self {
        Self { task }
    }

    /// The task itself.
    pub(crate) fn task(&self) -> &Task {
        &self.task
    }

    /// What the node works on: a map of the channels it reads, or the argument of a fan-out. Nodes
    /// of typed graphs take it as parameters instead.
    pub fn input(&self) -> &Value {
        &self.task.input
    }

    /// Whether the task was started with an argument of its own (LangGraph's `Send`).
    pub fn has_arg(&self) -> bool {
        self.task.has_arg
    }

    /// In an error handler: the failure of the task that this one replaces.
    pub fn failure(&self) -> Option<&Failure> {
        self.task.failure.as_deref()
    }

    /// Name of the running node.
    pub fn node(&self) -> &str {
        &self.task.node
    }

    /// Stable over retries and resumes: an idempotency key for calls to the outside.
    pub fn task_id(&self) -> TaskId {
        self.task.id
    }

    /// The run's config, with the fields of this task in `metadata` (`langgraph_step`,
    /// `langgraph_node` and so on) and its namespace in `configurable`.
    pub fn config(&self) -> &RunConfig {
        self.task
            .own_config
            .get_or_init(|| self.task.config_of_its_own())
    }

    /// Supersteps the run may still take after this one (LangGraph's `remaining_steps`).
    pub fn remaining_steps(&self) -> u32 {
        self.task.host.remaining_steps()
    }

    /// Pauses the run with an interrupt that shows `value` to the client, until it is resumed.
    ///
    /// There is no error to catch: an open interrupt parks the task, and the engine drops the
    /// node's future and stores the state. On resume the node starts from the top, and this call
    /// returns the resume value. Resume values match calls by order. A resume value of the wrong
    /// shape fails the task and leaves the interrupt open.
    #[must_use = "a node goes on without the resume value unless this is awaited"]
    pub fn interrupt<T: DeserializeOwned + Send + 'static>(
        &self,
        value: impl Serialize,
    ) -> BoxFuture<'static, T> {
        let task = self.task.clone();
        let shown = match value::to_value(&value) {
            Ok(shown) => shown,
            Err(error) => {
                let error = anyhow::anyhow!("the question cannot be encoded: {error}");
                let refused = task.host.refuse(&task, error);
                return Box::pin(async move {
                    refused.await;
                    futures::future::pending().await
                });
            }
        };
        let resumed = task.host.interrupt(&task, shown);
        Box::pin(async move {
            match value::from_value(&resumed.await) {
                Ok(resume) => resume,
                Err(error) => {
                    let error = anyhow::anyhow!("the answer does not fit: {error}");
                    task.host.refuse(&task, error).await;
                    futures::future::pending().await
                }
            }
        })
    }

    /// As [`interrupt`](Self::interrupt), for resume values that have to be more than well-formed: one that `check`
    /// refuses fails the task with its error and leaves the interrupt open.
    pub fn interrupt_checked<T: Send + 'static>(
        &self,
        value: impl Serialize,
        check: impl FnOnce(&Value) -> anyhow::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, T> {
        let task = self.task.clone();
        let resumed = self.interrupt::<Value>(value);
        Box::pin(async move {
            match check(&resumed.await) {
                Ok(resume) => resume,
                Err(error) => {
                    task.host.refuse(&task, error).await;
                    futures::future::pending().await
                }
            }
        })
    }

    /// Runs `work` once per task: a replay after an interrupt or a crash returns the stored
    /// result. Its key is the name and the number of earlier uses of the name in this task.
    ///
    /// The result is durable when this returns, except in the durability `exit`: there nothing is stored before the
    /// run ends or asks, so that a crash before that repeats the supersteps and their steps.
    ///
    /// # Errors
    /// What `work` returns, or when the result cannot be encoded, stored or decoded.
    pub async fn step<T, F>(&self, name: &str, work: F) -> anyhow::Result<T>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = anyhow::Result<T>>,
    {
        let key = {
            let mut steps = self.task.steps.lock();
            let used = steps.entry(name.to_owned()).or_insert(0);
            *used += 1;
            format!("{name}:{used}")
        };
        if let Some(stored) = self.task.host.step(&self.task, &key) {
            return Ok(value::from_value(&stored)?);
        }
        let out = work.await?;
        let stored = value::to_value(&out)?;
        self.task.host.save_step(&self.task, key, stored).await?;
        Ok(out)
    }

    /// Sends an event to `custom` subscribers. What cannot be encoded is dropped with a warning.
    pub fn emit(&self, event: impl Serialize) {
        match value::to_value(&event) {
            Ok(event) => self.task.host.emit(&self.task, event),
            Err(error) => tracing::warn!(node = %self.task.node, %error, "event dropped"),
        }
    }

    /// Sends a whole message to `messages` subscribers before the node returns.
    pub fn emit_message(&self, message: &Message) {
        self.task
            .host
            .message(&self.task, message.clone().into(), true);
    }

    /// Runs another graph inside this task with `input` and returns its final values, as a
    /// [`Value`] or as a state. The graph is one that the node [`calls`](crate::graph::NodeOpts::calls),
    /// by its name there, or any other.
    ///
    /// ```
    /// use backstitch::prelude::*;
    ///
    /// #[derive(State)]
    /// struct Essay {
    ///     topic: String,
    ///     #[state(default)]
    ///     text: String,
    /// }
    ///
    /// async fn draft(essay: Essay) -> Update<Essay> {
    ///     Essay::update().text(format!("On {}.", essay.topic))
    /// }
    ///
    /// async fn polish(essay: Essay) -> Update<Essay> {
    ///     Essay::update().text(essay.text.to_uppercase())
    /// }
    ///
    /// async fn write(essay: Essay, ctx: Ctx) -> Result<Update<Essay>> {
    ///     let draft: Essay = ctx.call("draft", json!({"topic": essay.topic})).await?;
    ///     let input = Essay::update().topic(draft.topic).text(draft.text);
    ///     let done: Essay = ctx.call("polish", input).await?;
    ///     Ok(Essay::update().text(done.text))
    /// }
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let draft = Graph::<Essay>::new().node("draft", draft).edge(START, "draft").build()?;
    /// let polish = Graph::<Essay>::new().node("polish", polish).edge(START, "polish").build()?;
    /// let graph = Graph::<Essay>::new()
    ///     .node_with("write", write, NodeOpts::new().calls("draft", draft).calls("polish", polish))
    ///     .edge(START, "write")
    ///     .build()?;
    /// let thread = backstitch::Local::memory()?.thread(&graph);
    /// let done = thread.invoke(Essay::update().topic("bees")).await?;
    /// assert_eq!(done["text"], "ON BEES.");
    /// # anyhow::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The node calls no graph of that name, the graph's error, or values that do not fit.
    pub async fn call<T: FromValues>(
        &self,
        graph: impl Callee,
        input: impl IntoInput,
    ) -> anyhow::Result<T> {
        let graph = graph.find(self)?;
        let input = input.into_input()?;
        let values = self.task.host.call(&self.task, graph, input).await?;
        Ok(T::from_values(&values)?)
    }

    /// The `traceparent` header for requests that the node sends, so that they are in the trace of its
    /// run; `None` while no traces are collected, and in tasks that the node spawns by itself.
    pub fn traceparent(&self) -> Option<Arc<str>> {
        trace::traceparent()
    }

    /// Which attempt of the retry policy this is, from 1.
    pub fn attempt(&self) -> usize {
        self.task.attempt.load(Ordering::Relaxed)
    }
}
