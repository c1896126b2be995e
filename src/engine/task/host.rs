//! The engine's side of a running task: what its node can do through its context.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    contention::shares::apart_in_this_run,
    engine::{
        apply::Writes,
        callback,
        channels::Channels,
        error::{Error, Mistake},
        event::{Body, Interrupt, Kind, TaskInfo},
        parent_execution::ParentExecution,
        pending::TaskMemory,
        reserved::RESUME,
        run_context::RunContext,
        subgraph::{self, SubgraphError},
        topology::Topology,
    },
    extract::{FoundItem, Host, Report, Task},
    graph::Compiled,
    id::interrupt_id,
    value::{Map, Value},
};

/// What one attempt of a task has done so far.
pub struct State {
    /// What it has from before, and what it adds for the next attempt.
    pub memory: TaskMemory,
    /// How many interrupts it has come to.
    pub interrupts: usize,
    /// The interrupt at which it waits.
    pub open: Option<Interrupt>,
    /// A resume value that the node could not use.
    pub refused: Option<Error>,
    /// The control writes of the task.
    pub control: Writes,
}

/// The engine's side of a running task.
pub struct TaskHost {
    pub context: Arc<RunContext>,
    pub parent: ParentExecution,
    pub info: Arc<TaskInfo>,
    /// The namespace of the graph the task belongs to, for its events.
    pub graph_ns: Arc<str>,
    pub state: Mutex<State>,
    /// Notified when the node can go no further.
    pub parked: Notify,
    /// Counts signs of life, for the idle timeout.
    pub alive: AtomicU64,
    pub this: Weak<TaskHost>,
    /// The state of the graph, for a task whose input is an argument of its own.
    pub channels: Option<(Arc<Topology>, Arc<Channels>)>,
}

impl TaskHost {
    fn sign_of_life(&self) {
        self.alive.fetch_add(1, Ordering::Relaxed);
    }

    /// The resume value of the next interrupt, if there is one.
    fn resume_value(&self, payload: &Value) -> Option<Value> {
        let mut state = self.state.lock();
        let slot = state.interrupts;
        state.interrupts += 1;
        if slot == state.memory.resume_values.len() {
            let id = interrupt_id(&self.info.ns, slot);
            let by_id = self.context.resume_by_id.get(&id).cloned();
            let recovery = &self.context.recovery;
            let next = by_id.or_else(|| recovery.use_resume(&self.info.ns));
            state.memory.resume_values.extend(next);
        }
        let values = &state.memory.resume_values;
        if let Some(value) = values.get(slot).cloned() {
            let so_far = Value::list(values[..=slot].to_vec());
            state.control.push((RESUME.into(), so_far));
            return Some(value);
        }
        // One interrupt per task at a time: a second one waits until the first is resumed.
        if state.open.is_none() {
            state.open = Some(Interrupt {
                id: interrupt_id(&self.info.ns, slot).into(),
                value: payload.clone(),
            });
        }
        None
    }
}

impl Host for TaskHost {
    fn emit(&self, _: &Task, value: Value) {
        self.sign_of_life();
        self.context
            .emit(Kind::Custom, &self.graph_ns, || Body::Custom {
                task: self.info.id,
                value,
            });
    }

    fn message(&self, _: &Task, message: Value, whole: bool) {
        self.sign_of_life();
        if !self.context.sink.wants(Kind::Messages, &self.graph_ns) {
            return;
        }
        if let Some(id) = message.get("id").and_then(Value::as_str) {
            self.context.mark_streamed(id);
        }
        self.context
            .emit(Kind::Messages, &self.graph_ns, || Body::Message {
                message,
                whole,
                task: self.info.clone(),
            });
    }

    fn state(&self, task: &Task) -> Option<Map> {
        let Some((topology, channels)) = &self.channels else {
            return task.input.as_map().cloned();
        };
        let specs = topology.graph.channels.iter();
        let values = specs.filter_map(|spec| {
            let value = channels.get(&spec.name)?;
            Some((spec.name.clone(), value.clone()))
        });
        Some(values.collect())
    }

    fn reports(&self) -> bool {
        self.context.sink.wants(Kind::Callbacks, &self.graph_ns)
    }

    fn report(&self, _: &Task, report: Report) {
        callback::report(&self.context, &self.graph_ns, &self.info, report);
    }

    fn interrupt(&self, _: &Task, payload: Value) -> BoxFuture<'static, Value> {
        match self.resume_value(&payload) {
            Some(value) => futures::future::ready(value).boxed(),
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
        state.refused = Some(Error::mistake(Mistake::ResumeShape, message));
        // The interrupt stays open: neither a later attempt nor a later run gets this value.
        let used = state.interrupts.saturating_sub(1);
        state.memory.resume_values.truncate(used);
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
        self.state.lock().memory.steps.get(key).cloned()
    }

    fn save_step(
        &self,
        _: &Task,
        key: String,
        value: Value,
    ) -> BoxFuture<'static, anyhow::Result<()>> {
        self.sign_of_life();
        let (all, earlier) = {
            let mut state = self.state.lock();
            state.memory.steps.insert(key, value);
            (state.memory.steps.clone(), state.memory.earlier.clone())
        };
        let Some(host) = self.this.upgrade() else {
            return futures::future::ready(Ok(())).boxed();
        };
        apart_in_this_run(async move {
            Ok(host
                .parent
                .store_steps(&host.context, &host.info, all, earlier)
                .await?)
        })
        .boxed()
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
                Err(SubgraphError::Interrupted(interrupts)) => {
                    host.state.lock().open = interrupts.first().cloned();
                    host.parent.set_interrupts(interrupts);
                    host.parked.notify_one();
                    futures::future::pending().await
                }
                Err(SubgraphError::Failed(error)) => Err(anyhow::Error::new(error)),
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
        match self.context.items.clone() {
            Some(items) => {
                apart_in_this_run(async move { items.put(&namespace, &key, value, ttl).await })
                    .boxed()
            }
            None => no_memory(),
        }
    }

    fn recall(
        &self,
        namespace: Vec<String>,
        key: String,
    ) -> BoxFuture<'static, anyhow::Result<Option<Value>>> {
        match self.context.items.clone() {
            Some(items) => {
                apart_in_this_run(async move { items.get(&namespace, &key).await }).boxed()
            }
            None => no_memory(),
        }
    }

    fn search(
        &self,
        namespace: Vec<String>,
        query: Option<String>,
        limit: usize,
    ) -> BoxFuture<'static, anyhow::Result<Vec<FoundItem<Value>>>> {
        self.sign_of_life();
        match self.context.items.clone() {
            Some(items) => {
                let found = async move { items.search(&namespace, query.as_deref(), limit).await };
                apart_in_this_run(found).boxed()
            }
            None => no_memory(),
        }
    }

    fn remaining_steps(&self) -> u32 {
        self.context.remaining()
    }
}

fn no_memory<T: Send + 'static>() -> BoxFuture<'static, anyhow::Result<T>> {
    let error = anyhow::anyhow!("this run has no long-term memory: give it a store");
    futures::future::ready(Err(error)).boxed()
}

impl TaskHost {
    /// Runs a graph inside this task; further calls get numbered namespaces.
    pub async fn run_graph(
        &self,
        graph: Arc<Compiled>,
        input: Value,
    ) -> Result<Value, SubgraphError> {
        let call = {
            let mut state = self.state.lock();
            state.memory.calls += 1;
            state.memory.calls - 1
        };
        subgraph::run(&self.context, &self.parent, &self.info, graph, input, call).await
    }
}
