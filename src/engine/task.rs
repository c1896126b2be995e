//! Running one task: its host, attempts, timeouts, panics.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    drive::Writes,
    error::{Error, Mistake},
    event::{Body, Interrupt, Kind, TaskInfo},
    live::Live,
    names::{PULL, RESUME},
    output,
    plan::Planned,
    scope::Scope,
    subgraph::{self, Nested},
    wiring::Wiring,
};
use crate::{
    extract::{Ctx, Host, Task},
    graph::{Body as NodeBody, Compiled, Node, Output},
    id::interrupt_id,
    value::Value,
};

mod guard;

use guard::guarded;

/// Control writes of a task: channel and value.
pub type Control = Vec<(Arc<str>, Value)>;

/// How a task ended.
#[derive(Debug)]
pub enum Ended {
    /// Its node returned.
    Done(Output),
    /// Its node returned and its routes chose: what it writes.
    Written(Writes),
    /// It asks; empty for a static breakpoint of a graph inside.
    Asked(Vec<Interrupt>),
    /// It failed for good.
    Failed(Error),
}

/// What a task knows from earlier runs.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Answers to its questions, in order.
    pub answers: Vec<Value>,
    /// Results of its steps.
    pub steps: HashMap<String, Value>,
    /// Graphs that earlier attempts called: a further call has a namespace of its own.
    pub calls: usize,
}

/// What the task's host keeps while it runs.
struct State {
    answers: Vec<Value>,
    asked: usize,
    open: Option<Interrupt>,
    refused: Option<Error>,
    control: Control,
    steps: HashMap<String, Value>,
    /// How many graphs were called: namespaces of further calls carry a number.
    calls: usize,
}

/// The engine's side of a running task.
pub struct TaskHost {
    scope: Arc<Scope>,
    nested: Nested,
    info: Arc<TaskInfo>,
    /// The namespace of the graph the task belongs to, for its events.
    graph_ns: Arc<str>,
    state: Mutex<State>,
    parked: Notify,
    /// Counts signs of life, for the idle timeout.
    alive: AtomicU64,
    this: Weak<TaskHost>,
}

impl TaskHost {
    fn sign_of_life(&self) {
        self.alive.fetch_add(1, Ordering::Relaxed);
    }

    /// The client's answer for whichever task asks first.
    fn take_answer(&self) -> Option<Value> {
        let answer = self.scope.answer.lock().take()?;
        if let Some(given) = &mut *self.scope.given.lock() {
            given.taker = Some(self.info.ns.clone());
        }
        Some(answer)
    }

    /// The next answer, and whether there is one.
    fn answer(&self, question: &Value) -> Option<Value> {
        let mut state = self.state.lock();
        let slot = state.asked;
        state.asked += 1;
        if slot == state.answers.len() {
            let id = interrupt_id(&self.info.ns, slot);
            let mapped = self.scope.answers.get(&id).cloned();
            let next = mapped.or_else(|| self.take_answer());
            state.answers.extend(next);
        }
        if slot < state.answers.len() {
            let so_far = Value::list(state.answers[..=slot].to_vec());
            state.control.push((RESUME.into(), so_far));
            return state.answers.get(slot).cloned();
        }
        // One question per task at a time: a second one waits until the first is answered.
        if state.open.is_none() {
            state.open = Some(Interrupt {
                id: interrupt_id(&self.info.ns, slot).into(),
                value: question.clone(),
            });
        }
        None
    }
}

impl Host for TaskHost {
    fn emit(&self, _: &Task, value: Value) {
        self.sign_of_life();
        self.scope
            .emit(Kind::Custom, &self.graph_ns, || Body::Custom {
                task: self.info.id,
                value,
            });
    }

    fn message(&self, _: &Task, message: Value, whole: bool) {
        self.sign_of_life();
        if !self.scope.sink.wants(Kind::Messages, &self.graph_ns) {
            return;
        }
        if let Some(id) = message.get("id").and_then(Value::as_str) {
            self.scope.said.lock().insert(id.into());
        }
        self.scope
            .emit(Kind::Messages, &self.graph_ns, || Body::Message {
                message,
                whole,
                task: self.info.clone(),
            });
    }

    fn interrupt(&self, _: &Task, question: Value) -> BoxFuture<'static, Value> {
        match self.answer(&question) {
            Some(answer) => futures::future::ready(answer).boxed(),
            None => {
                // The driver may be waiting on another task of the node: wake it.
                self.parked.notify_one();
                futures::future::pending().boxed()
            }
        }
    }

    fn refuse(&self, _: &Task, error: anyhow::Error) -> BoxFuture<'static, ()> {
        let message = format!("{error:#}");
        let mut state = self.state.lock();
        state.refused = Some(Error::mistake(Mistake::AnswerShape, message));
        // The question stays open: neither a later attempt nor a later run gets this answer.
        let kept = state.asked.saturating_sub(1);
        state.answers.truncate(kept);
        if let Some(at) = state
            .control
            .iter()
            .rposition(|(name, _)| &**name == RESUME)
        {
            state.control.remove(at);
        }
        drop(state);
        self.parked.notify_one();
        futures::future::pending().boxed()
    }

    fn step(&self, _: &Task, key: &str) -> Option<Value> {
        self.state.lock().steps.get(key).cloned()
    }

    fn save_step(
        &self,
        _: &Task,
        key: String,
        value: Value,
    ) -> BoxFuture<'static, anyhow::Result<()>> {
        self.sign_of_life();
        let all = {
            let mut state = self.state.lock();
            state.steps.insert(key, value);
            state.steps.clone()
        };
        let Some(host) = self.this.upgrade() else {
            return futures::future::ready(Ok(())).boxed();
        };
        async move { Ok(host.nested.save_steps(&host.scope, &host.info, all).await?) }.boxed()
    }

    fn call(
        &self,
        _: &Task,
        graph: Arc<Compiled>,
        input: Value,
    ) -> BoxFuture<'static, anyhow::Result<Value>> {
        let Some(host) = self.this.upgrade() else {
            return futures::future::pending().boxed();
        };
        async move {
            match host.run_graph(graph, input).await {
                Ok(values) => Ok(values),
                Err(Inner::Asked(interrupts)) => {
                    host.state.lock().open = interrupts.first().cloned();
                    host.nested.asked(interrupts);
                    host.parked.notify_one();
                    futures::future::pending().await
                }
                Err(Inner::Failed(error)) => Err(anyhow::Error::new(error)),
            }
        }
        .boxed()
    }

    fn remember(
        &self,
        namespace: Vec<String>,
        key: String,
        value: Option<Value>,
        ttl: Option<Duration>,
    ) -> BoxFuture<'static, anyhow::Result<()>> {
        self.sign_of_life();
        match self.scope.items.clone() {
            Some(items) => async move { items.put(&namespace, &key, value, ttl).await }.boxed(),
            None => no_memory(),
        }
    }

    fn recall(
        &self,
        namespace: Vec<String>,
        key: String,
    ) -> BoxFuture<'static, anyhow::Result<Option<Value>>> {
        match self.scope.items.clone() {
            Some(items) => async move { items.get(&namespace, &key).await }.boxed(),
            None => no_memory(),
        }
    }

    fn remaining_steps(&self) -> u32 {
        self.scope.remaining()
    }
}

fn no_memory<T: Send + 'static>() -> BoxFuture<'static, anyhow::Result<T>> {
    let error = anyhow::anyhow!("this run has no long-term memory: give it a store");
    futures::future::ready(Err(error)).boxed()
}

/// Why a graph inside a task did not finish.
pub enum Inner {
    /// It asks.
    Asked(Vec<Interrupt>),
    /// It failed.
    Failed(Error),
}

impl TaskHost {
    /// Runs a graph inside this task; further calls get numbered namespaces.
    async fn run_graph(&self, graph: Arc<Compiled>, input: Value) -> Result<Value, Inner> {
        let call = {
            let mut state = self.state.lock();
            state.calls += 1;
            state.calls - 1
        };
        subgraph::run(&self.scope, &self.nested, &self.info, graph, input, call).await
    }
}

/// Everything a task needs to run.
pub struct Job {
    /// The task.
    pub planned: Planned,
    /// How events describe it.
    pub info: Arc<TaskInfo>,
    /// Its input.
    pub input: Value,
    /// Namespace of its graph.
    pub graph_ns: Arc<str>,
    /// Its node.
    pub node: Node,
    /// The graph and the state its routes see, when they are tried again with the node.
    pub routes: Option<(Arc<Wiring>, Arc<Live>)>,
    /// What is known from earlier runs.
    pub memory: Memory,
    /// The level it runs in.
    pub nested: Nested,
    /// Shared dependencies of its graph.
    pub deps: crate::graph::Deps,
}

/// Runs a task to its end: attempts, waits, timeouts. Nothing a node does escapes from here.
///
/// The future's type is named: a task may run a graph that runs tasks, and the compiler cannot
/// see through that circle whether they may move between threads.
pub fn run(scope: Arc<Scope>, job: Job) -> BoxFuture<'static, (Ended, Control)> {
    attempts(scope, job).boxed()
}

async fn attempts(scope: Arc<Scope>, mut job: Job) -> (Ended, Control) {
    let mut attempt = 1;
    // Answers and steps of a failed attempt hold for the next one, and calls are counted on.
    let mut memory = std::mem::take(&mut job.memory);
    loop {
        let (mut ended, control) = attempt_once(&scope, &job, &mut memory, attempt).await;
        if let (Some((wiring, live)), Ended::Done(output)) = (&job.routes, &mut ended) {
            let (node, output) = (job.planned.node, std::mem::take(output));
            ended = match output::writes(wiring, live, scope.tolerance, node, output) {
                Ok(writes) => Ended::Written(writes),
                Err(error) => Ended::Failed(error),
            };
        }
        let Ended::Failed(error) = &ended else {
            return (ended, control);
        };
        let Some(wait) = super::retry::wait(&job.node.retry, error, attempt) else {
            return (ended, control);
        };
        tracing::info!(node = %job.info.name, %error, attempt, "node failed, trying again");
        tokio::select! {
            () = tokio::time::sleep(wait) => attempt += 1,
            () = scope.cancel.cancelled() => return (Ended::Failed(Error::Cancelled), control),
        }
    }
}

async fn attempt_once(
    scope: &Arc<Scope>,
    job: &Job,
    memory: &mut Memory,
    attempt: usize,
) -> (Ended, Control) {
    let host = Arc::new_cyclic(|this| TaskHost {
        scope: scope.clone(),
        nested: job.nested.for_attempt(attempt),
        info: job.info.clone(),
        graph_ns: job.graph_ns.clone(),
        state: Mutex::new(State {
            answers: memory.answers.clone(),
            asked: 0,
            open: None,
            refused: None,
            control: vec![],
            steps: memory.steps.clone(),
            calls: memory.calls,
        }),
        parked: Notify::new(),
        alive: AtomicU64::new(0),
        this: this.clone(),
    });
    let ended = match &job.node.body {
        NodeBody::Graph(graph) => {
            let run = host.run_graph(graph.clone(), job.input.clone());
            match guarded(&host, job, run).await {
                Ok(Ok(values)) => Ended::Done(graph_output(values)),
                Ok(Err(Inner::Asked(interrupts))) => Ended::Asked(interrupts),
                Ok(Err(Inner::Failed(error))) => to_parent(error),
                Err(ended) => ended,
            }
        }
        NodeBody::Function(function) => {
            let task = Arc::new(Task {
                id: job.planned.id,
                node: job.info.name.clone(),
                ns: job.info.ns.clone(),
                step: job.info.step,
                triggers: job.info.triggers.clone(),
                input: job.input.clone(),
                has_arg: !job.planned.path.starts_with(&format!("~{PULL}")),
                shown_path: job.info.path.clone(),
                config: scope.config.clone(),
                own_config: Default::default(),
                deps: job.deps.clone(),
                host: host.clone(),
                steps: Mutex::new(HashMap::new()),
                attempt: AtomicUsize::new(attempt),
                failure: job.planned.failure(),
            });
            let function = function.clone();
            let run = async move { function(Ctx::new(task)).await };
            match guarded(&host, job, run).await {
                Ok(Ok(output)) => Ended::Done(output),
                Ok(Err(error)) => to_parent(Error::of_node(error)),
                Err(ended) => ended,
            }
        }
    };
    let mut state = host.state.lock();
    memory.answers = std::mem::take(&mut state.answers);
    memory.steps = std::mem::take(&mut state.steps);
    memory.calls = state.calls;
    let control = std::mem::take(&mut state.control);
    drop(state);
    (ended, control)
}

/// A command for the parent that came out of a graph inside is meant for this node.
fn to_parent(error: Error) -> Ended {
    match error {
        Error::ParentCommand(command) => Ended::Done(Output {
            writes: command.writes,
            goto: command.goto,
            to_parent: false,
        }),
        error => Ended::Failed(error),
    }
}

fn graph_output(values: Value) -> Output {
    let writes = match values {
        Value::Map(map) => map
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        _ => vec![],
    };
    Output {
        writes,
        ..Output::default()
    }
}

fn parked(host: &TaskHost) -> Ended {
    let mut state = host.state.lock();
    if let Some(error) = state.refused.take() {
        return Ended::Failed(error);
    }
    let inner = host.nested.take_asked();
    if !inner.is_empty() {
        return Ended::Asked(inner);
    }
    Ended::Asked(state.open.take().into_iter().collect())
}
