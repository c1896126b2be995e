//! What the tasks of a superstep start with: inputs, results that are stored, jobs.

use std::sync::Arc;

use super::handlers;
use crate::{
    engine::{
        apply::Writes,
        channels::Channels,
        emit,
        error::Error,
        event::TaskInfo,
        execution::Execution,
        fan_out, node_cache, persist,
        plan::{PlannedTask, TaskOrigin},
        task::job::Job,
        topology::START_NODE,
    },
    value::Value,
};

/// A task before it runs.
pub struct Prepared {
    /// How events describe it.
    pub info: Arc<TaskInfo>,
    /// Its input.
    pub input: Value,
    /// What it wrote before, in another run or for an equal input.
    pub stored: Writes,
    /// Where the node cache is to store its result.
    pub cache_key: Option<node_cache::Key>,
    /// It failed for good before: its handler runs in its place.
    pub failed: bool,
}

/// Emits that the tasks start, and finds those whose results are stored.
///
/// # Errors
/// The storage failed.
pub async fn prepare(
    execution: &mut Execution,
    tasks: &[PlannedTask],
) -> Result<Vec<Prepared>, Error> {
    let mut prepared = vec![];
    for (done, task) in tasks.iter().enumerate() {
        fan_out::let_others_run(execution, done).await?;
        let info = Arc::new(execution.info(task));
        let stored = if execution.replaying {
            vec![]
        } else {
            execution.output_of(task.id)
        };
        let input = execution.input_of(task);
        if task.node != START_NODE {
            emit::task_start(execution, &info, &input);
        }
        let failed = handlers::replaces(execution, task);
        let node = execution.topology.node(task.node);
        let node = node.filter(|_| stored.is_empty() && !failed);
        prepared.push(Prepared {
            failed,
            cache_key: node.and_then(|node| node_cache::Results::key(node, &input)),
            info,
            input,
            stored,
        });
    }
    let Some(cache) = execution.context.reuse.clone() else {
        return Ok(prepared);
    };
    for (one, task) in prepared.iter_mut().zip(tasks) {
        let Some(writes) = one.cache_key.as_ref().and_then(|key| cache.get(key)) else {
            continue;
        };
        let rows = execution.put_writes(task.id, &task.path, writes.clone());
        // Another attempt may find another result in its cache, or none: a stream that shows this one waits for it.
        let barrier = persist::barrier(execution);
        let soon = barrier.is_some();
        persist::enqueue(execution, rows, barrier, None, soon).await;
        one.stored = writes;
    }
    Ok(prepared)
}

/// Everything a task needs to run. `state` is shared by those that need it.
///
/// # Errors
/// The graph does not have the node of the task; planned tasks have theirs.
pub fn job_of(
    execution: &Execution,
    planned: &PlannedTask,
    (info, input): (Arc<TaskInfo>, Value),
    state: &mut Option<Arc<Channels>>,
) -> Result<Job, Error> {
    let node = execution.topology.node(planned.node).cloned();
    let node = node.ok_or_else(|| {
        let message = format!("there is no node `{}`", planned.name);
        Error::failed("NodeError", message)
    })?;
    // A route that fails is retried with its node.
    let routes = (!node.retry.is_empty() && !node.writers.routes.is_empty()).then(|| {
        let state = state.get_or_insert_with(|| Arc::new(execution.channels.clone()));
        (execution.topology.clone(), state.clone())
    });
    let own_argument = matches!(planned.origin, TaskOrigin::Push { .. });
    let of_graph = own_argument.then(|| {
        let state = state.get_or_insert_with(|| Arc::new(execution.channels.clone()));
        (execution.topology.clone(), state.clone())
    });
    Ok(Job {
        state: of_graph,
        planned: planned.clone(),
        info,
        input,
        graph_ns: execution.ns.clone(),
        node,
        routes,
        memory: execution.memory_of(planned.id),
        parent: execution.as_parent(),
        deps: execution.graph().deps.clone(),
    })
}
