//! What the tasks of a superstep start with: inputs, results that are known, jobs.

use std::sync::Arc;

use super::{
    drive::Writes,
    error::Error,
    event::{Body, Kind, TaskInfo},
    level::Level,
    live::Live,
    plan::Planned,
    rescue, reuse, save,
    task::Job,
    wiring::START_NODE,
};
use crate::{
    graph::{Body as NodeBody, Node, Writers},
    value::Value,
};

/// A task before it runs.
pub struct Prepared {
    /// How events describe it.
    pub info: Arc<TaskInfo>,
    /// Its input.
    pub input: Value,
    /// What it wrote before, in another run or for an equal input.
    pub saved: Writes,
    /// Where its result will be kept.
    pub key: Option<reuse::Key>,
    /// It failed for good before: its handler runs in its place.
    pub failed: bool,
}

/// Tells that the tasks start, and finds those whose results are known.
///
/// # Errors
/// The storage failed.
pub async fn prepare(level: &mut Level, tasks: &[Planned]) -> Result<Vec<Prepared>, Error> {
    let mut jobs = vec![];
    for task in tasks {
        let info = Arc::new(level.info(task));
        let saved = match level.replaying {
            true => vec![],
            false => level.saved(task.id),
        };
        let input = level.input(task);
        if task.node != START_NODE {
            level
                .scope
                .emit(Kind::Tasks, &level.ns, || Body::TaskStart {
                    task: info.clone(),
                    input: input.clone(),
                });
        }
        let failed = rescue::stands_in(level, task);
        let node = level.wiring.node(task.node);
        let node = node.filter(|_| saved.is_empty() && !failed);
        jobs.push(Prepared {
            failed,
            key: node.and_then(|node| reuse::Results::key(node, &input)),
            info,
            input,
            saved,
        });
    }
    let Some(results) = level.scope.reuse.clone() else {
        return Ok(jobs);
    };
    for (job, task) in jobs.iter_mut().zip(tasks) {
        let Some(writes) = job.key.as_ref().and_then(|key| results.get(key)) else {
            continue;
        };
        let rows = level.put_writes(task.id, &task.path, writes.clone());
        save::keep(level, rows, false).await;
        job.saved = writes;
    }
    Ok(jobs)
}

/// Everything a task needs to run. `state` is shared by those that need it.
pub fn job_of(
    level: &Level,
    planned: &Planned,
    (info, input): (Arc<TaskInfo>, Value),
    state: &mut Option<Arc<Live>>,
) -> Job {
    let node = level.wiring.node(planned.node).cloned();
    let node = node.unwrap_or_else(|| missing(&planned.name));
    // A route that fails is tried again with its node.
    let routes = (!node.retry.is_empty() && !node.writers.routes.is_empty()).then(|| {
        let state = state.get_or_insert_with(|| Arc::new(level.live.clone()));
        (level.wiring.clone(), state.clone())
    });
    Job {
        planned: planned.clone(),
        info,
        input,
        graph_ns: level.ns.clone(),
        node,
        routes,
        memory: level.memory(planned.id),
        nested: level.nested(),
        deps: level.graph().deps.clone(),
    }
}

/// Stands in for a node that vanished between planning and running; cannot happen.
fn missing(name: &Arc<str>) -> Node {
    let message = format!("there is no node `{name}`");
    Node {
        name: name.clone(),
        body: NodeBody::Function(Arc::new(move |_| {
            let message = message.clone();
            Box::pin(async move { Err(anyhow::anyhow!(message)) })
        })),
        writers: Writers::default(),
        joins: vec![],
        defer: false,
        retry: vec![],
        handler: None,
        timeout: None,
        idle_timeout: None,
        cache: None,
        reads: None,
        destinations: vec![],
        calls: vec![],
    }
}
