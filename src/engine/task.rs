//! Running one task: its attempts, and what its node returned.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize},
    },
};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::Instrument;

use super::{
    error::Error, output, pending::TaskMemory, reserved::PULL, retry, run_context::RunContext,
    subgraph::SubgraphError,
};
use crate::{
    extract::{Ctx, Task},
    graph::{Body as NodeBody, Output},
    trace,
    value::Value,
};
use guard::guarded;
use host::{State, TaskHost};
use job::{Job, TaskEnd, TaskResult};

mod guard;
mod host;
pub mod job;

/// Runs a task to its end: attempts, waits, timeouts. Nothing a node does escapes from here.
///
/// The future's type is named: a task may run a graph that runs tasks, and the compiler cannot
/// see through that circle whether they may move between threads.
pub fn run(context: Arc<RunContext>, job: Job) -> BoxFuture<'static, TaskResult> {
    let span = trace::task(&job.info.name, job.info.id);
    let traced = span.clone();
    let work = async move {
        let result = attempts(context, job).await;
        if let (TaskEnd::Failed(error), _) = &result {
            trace::failed(&span, error);
        }
        result
    };
    work.instrument(traced).boxed()
}

async fn attempts(context: Arc<RunContext>, mut job: Job) -> TaskResult {
    let mut attempt = 1;
    // Resume values and steps of a failed attempt count for the next one, and calls are counted on.
    let mut memory = std::mem::take(&mut job.memory);
    loop {
        let (mut end, control) = attempt_once(&context, &job, &mut memory, attempt).await;
        if let (Some((topology, channels)), TaskEnd::Returned(output)) = (&job.routes, &mut end) {
            let (node, output) = (job.planned.node, std::mem::take(output));
            let way = (context.tolerance, &*context.config);
            end = match output::writes(topology, channels, way, node, output) {
                Ok(writes) => TaskEnd::Wrote(writes),
                Err(error) => TaskEnd::Failed(error),
            };
        }
        let TaskEnd::Failed(error) = &end else {
            return (end, control);
        };
        let Some(wait) = retry::wait(&job.node.retry, error, attempt) else {
            return (end, control);
        };
        tracing::info!(node = %job.info.name, %error, attempt, "node failed, trying again");
        tokio::select! {
            () = tokio::time::sleep(wait) => attempt += 1,
            () = context.cancel.cancelled() => return (TaskEnd::Failed(Error::Cancelled), control),
        }
    }
}

async fn attempt_once(
    context: &Arc<RunContext>,
    job: &Job,
    memory: &mut TaskMemory,
    attempt: usize,
) -> TaskResult {
    let host = Arc::new_cyclic(|this| TaskHost {
        context: context.clone(),
        parent: job.parent.for_attempt(attempt),
        info: job.info.clone(),
        graph_ns: job.graph_ns.clone(),
        state: Mutex::new(State {
            memory: memory.clone(),
            interrupts: 0,
            open: None,
            refused: None,
            control: vec![],
        }),
        parked: Notify::new(),
        alive: AtomicU64::new(0),
        this: this.clone(),
        channels: job.state.clone(),
    });
    let end = match &job.node.body {
        NodeBody::Graph(graph) => {
            let run = host.run_graph(graph.clone(), job.input.clone());
            match guarded(&host, job, run).await {
                Ok(Ok(values)) => TaskEnd::Returned(graph_output(values)),
                Ok(Err(SubgraphError::Interrupted(interrupts))) => TaskEnd::Interrupted(interrupts),
                Ok(Err(SubgraphError::Failed(error))) => to_parent(error),
                Err(end) => end,
            }
        }
        NodeBody::Function(function) => {
            let task = task_of(context, job, &host, attempt);
            let function = function.clone();
            let run = async move { function(Ctx::new(task)).await };
            match guarded(&host, job, run).await {
                Ok(Ok(output)) => TaskEnd::Returned(output),
                Ok(Err(error)) => to_parent(Error::of_node(error)),
                Err(end) => end,
            }
        }
    };
    let mut state = host.state.lock();
    *memory = std::mem::take(&mut state.memory);
    let control = std::mem::take(&mut state.control);
    drop(state);
    (end, control)
}

/// The task as its node sees it.
fn task_of(
    context: &Arc<RunContext>,
    job: &Job,
    host: &Arc<TaskHost>,
    attempt: usize,
) -> Arc<Task> {
    Arc::new(Task {
        id: job.planned.id,
        node: job.info.name.clone(),
        ns: job.info.ns.clone(),
        step: job.info.step,
        triggers: job.info.triggers.clone(),
        input: job.input.clone(),
        has_arg: !job.planned.path.starts_with(&format!("~{PULL}")),
        shown_path: job.info.path.clone(),
        config: context.config.clone(),
        own_config: Default::default(),
        deps: job.deps.clone(),
        calls: job.node.calls.clone(),
        host: host.clone(),
        steps: Mutex::new(HashMap::new()),
        attempt: AtomicUsize::new(attempt),
        failure: job.planned.failure(),
    })
}

/// A command for the parent that came out of a graph inside is meant for this node.
fn to_parent(error: Error) -> TaskEnd {
    match error {
        Error::ParentCommand(command) => TaskEnd::Returned(Output {
            writes: command.writes,
            goto: command.goto,
            to_parent: false,
        }),
        error => TaskEnd::Failed(error),
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
