//! The handle a running node holds: interrupts, durable steps, streaming, nested graphs.

use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{Stream, StreamExt, future::BoxFuture};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};

use super::Failure;
use crate::{
    graph::{Compiled, Deps},
    id::TaskId,
    message::{AiChunk, Message},
    value::{self, Map, Value},
};

/// What the client sent along with the run (LangGraph's `config`).
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

    /// The answer to the task's next question; pending for ever when there is none yet.
    fn interrupt(&self, task: &Task, question: Value) -> BoxFuture<'static, Value>;

    /// The last answer does not fit: fails the task and stores nothing. Never resolves.
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

    /// Runs another graph inside the task and answers its final values.
    fn call(
        &self,
        task: &Task,
        graph: Arc<Compiled>,
        input: Value,
    ) -> BoxFuture<'static, anyhow::Result<Value>>;

    /// Long-term memory shared between threads: write (`None` deletes), for as long as `ttl` says.
    fn remember(
        &self,
        namespace: Vec<String>,
        key: String,
        value: Option<Value>,
        ttl: Option<Duration>,
    ) -> BoxFuture<'static, anyhow::Result<()>>;

    /// Long-term memory shared between threads: read.
    fn recall(
        &self,
        namespace: Vec<String>,
        key: String,
    ) -> BoxFuture<'static, anyhow::Result<Option<Value>>>;

    /// Supersteps left after this one.
    fn remaining_steps(&self) -> u32;
}

/// One task of a superstep, as its node sees it.
pub struct Task {
    /// Stable over retries and resumes: an idempotency key for calls to the outside.
    pub id: TaskId,
    /// The node.
    pub node: Arc<str>,
    /// The task's namespace: `node:task_id`, behind that of its graph.
    pub ns: Arc<str>,
    /// Superstep number.
    pub step: i64,
    /// What started it, sorted.
    pub triggers: Arc<[Arc<str>]>,
    /// Path in LangGraph's form, as clients see it.
    pub shown_path: Value,
    /// A map of the channels the node reads, or the argument of a fan-out.
    pub input: Value,
    /// Started with an argument of its own.
    pub has_arg: bool,
    /// The run's config.
    pub config: Arc<RunConfig>,
    /// The same with what is said of this task, once somebody asked.
    pub own_config: OnceLock<RunConfig>,
    /// Shared dependencies of the graph.
    pub deps: Deps,
    /// The engine.
    pub host: Arc<dyn Host>,
    /// How often each step name was used, for keys of repeated names.
    pub steps: Mutex<HashMap<String, usize>>,
    /// Attempt number, from 1.
    pub attempt: AtomicUsize,
    /// For error handlers: why the task failed in whose place this one runs.
    pub failure: Option<Arc<Failure>>,
}

impl Task {
    fn config_of_its_own(&self) -> RunConfig {
        let mut config = RunConfig::clone(&self.config);
        let triggers = self.triggers.iter().map(|name| Value::Str(name.clone()));
        let said = [
            ("langgraph_step", Value::from(self.step)),
            ("langgraph_node", Value::Str(self.node.clone())),
            ("langgraph_triggers", Value::list(triggers.collect())),
            ("langgraph_path", self.shown_path.clone()),
            ("langgraph_checkpoint_ns", Value::Str(self.ns.clone())),
        ];
        if let Some(thread) = config.configurable.get("thread_id") {
            config.metadata.insert("thread_id", thread.clone());
        }
        for (key, value) in said {
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

    /// In an error handler: why the task failed in whose place this one runs.
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

    /// The run's config, with what is said of this task in `metadata` (`langgraph_step`,
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

    /// Pauses the run until someone answers `question`.
    ///
    /// There is no error to catch: an unanswered question parks the task, the engine drops the
    /// node's future and keeps the state. On resume the node starts again from the top and this
    /// call returns the answer. Answers match calls by order. An answer of the wrong shape fails
    /// the task and leaves the question open.
    pub fn interrupt<T: DeserializeOwned + Send + 'static>(
        &self,
        question: impl Serialize,
    ) -> BoxFuture<'static, T> {
        let task = self.task.clone();
        let question = match value::to_value(&question) {
            Ok(question) => question,
            Err(error) => {
                let error = anyhow::anyhow!("the question cannot be encoded: {error}");
                let refused = task.host.refuse(&task, error);
                return Box::pin(async move {
                    refused.await;
                    futures::future::pending().await
                });
            }
        };
        let answer = task.host.interrupt(&task, question);
        Box::pin(async move {
            let answer = answer.await;
            match value::from_value(&answer) {
                Ok(answer) => answer,
                Err(error) => {
                    let error = anyhow::anyhow!("the answer does not fit: {error}");
                    task.host.refuse(&task, error).await;
                    futures::future::pending().await
                }
            }
        })
    }

    /// Runs `work` once per task: a replay after an interrupt or a crash returns the stored
    /// result. The key is the name and how often it was used before in this task.
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
        if let Some(done) = self.task.host.step(&self.task, &key) {
            return Ok(value::from_value(&done)?);
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

    /// Forwards model tokens to `messages` subscribers and returns the whole message.
    ///
    /// # Errors
    /// The model's error, or a stream that ends without a chunk.
    pub async fn stream(
        &self,
        tokens: impl Stream<Item = anyhow::Result<AiChunk>> + Send,
    ) -> anyhow::Result<Message> {
        let mut tokens = std::pin::pin!(tokens);
        let mut whole: Option<AiChunk> = None;
        while let Some(piece) = tokens.next().await {
            let mut piece = piece?;
            match &mut whole {
                Some(whole) => {
                    piece.id.clone_from(&whole.id);
                    whole.push(&piece);
                }
                None => {
                    // Clients put pieces and message together by id, so the first piece has one.
                    let mint = || uuid::Uuid::new_v4().to_string().into();
                    piece.id.get_or_insert_with(mint);
                    whole = Some(piece.clone());
                }
            }
            self.task.host.message(&self.task, piece.to_value(), false);
        }
        whole
            .map(|whole| whole.message())
            .ok_or_else(|| anyhow::anyhow!("the model sent nothing"))
    }

    /// Sends a whole message to `messages` subscribers before the node returns.
    pub fn say(&self, message: &Message) {
        self.task
            .host
            .message(&self.task, message.clone().into(), true);
    }

    /// Runs another graph inside this task with `input` and answers its final values.
    ///
    /// # Errors
    /// The graph's error, or values that do not fit.
    pub async fn call(&self, graph: &Arc<Compiled>, input: Value) -> anyhow::Result<Value> {
        self.task.host.call(&self.task, graph.clone(), input).await
    }

    /// Keeps a value in the long-term memory shared between threads, in place of what was kept
    /// there. It is kept at once, whatever becomes of the task: a retry keeps it again.
    ///
    /// # Errors
    /// The value cannot be encoded, the namespace is empty or has a label that is empty or holds
    /// a period, or the storage failed.
    pub async fn remember(
        &self,
        namespace: &[&str],
        key: &str,
        value: impl Serialize,
    ) -> anyhow::Result<()> {
        let value = value::to_value(&value)?;
        self.keep(namespace, key, Some(value), None).await
    }

    /// The same, for so long.
    ///
    /// # Errors
    /// As [`remember`](Self::remember).
    pub async fn remember_for(
        &self,
        ttl: Duration,
        namespace: &[&str],
        key: &str,
        value: impl Serialize,
    ) -> anyhow::Result<()> {
        let value = value::to_value(&value)?;
        self.keep(namespace, key, Some(value), Some(ttl)).await
    }

    /// Takes a value out of the long-term memory; nothing happens when there is none.
    ///
    /// # Errors
    /// As [`remember`](Self::remember).
    pub async fn forget(&self, namespace: &[&str], key: &str) -> anyhow::Result<()> {
        self.keep(namespace, key, None, None).await
    }

    async fn keep(
        &self,
        namespace: &[&str],
        key: &str,
        value: Option<Value>,
        ttl: Option<Duration>,
    ) -> anyhow::Result<()> {
        let namespace = namespace.iter().map(|label| (*label).to_owned()).collect();
        let host = &self.task.host;
        host.remember(namespace, key.to_owned(), value, ttl).await
    }

    /// Reads the long-term memory shared between threads.
    ///
    /// # Errors
    /// The storage failed, or the value does not fit.
    pub async fn recall<T: DeserializeOwned>(
        &self,
        namespace: &[&str],
        key: &str,
    ) -> anyhow::Result<Option<T>> {
        let namespace = namespace.iter().map(|label| (*label).to_owned()).collect();
        match self.task.host.recall(namespace, key.to_owned()).await? {
            Some(found) => Ok(Some(value::from_value(&found)?)),
            None => Ok(None),
        }
    }

    /// Which attempt of the retry policy this is, from 1.
    pub fn attempt(&self) -> usize {
        self.task.attempt.load(Ordering::Relaxed)
    }
}
