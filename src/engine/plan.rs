//! Deciding which tasks a superstep has (LangGraph's `prepare_next_tasks`).

use std::{collections::BTreeSet, sync::Arc};

use super::{
    apply::TaskWrites,
    channels::Channels,
    namespace,
    reserved::{HANDLER, PULL, PUSH, TASKS},
    topology::{START_NODE, Topology},
};
use crate::{
    extract::Failure,
    graph::Goto,
    id::{CheckpointId, TaskId, task_id},
    value::{Map, Value},
};

/// Why a task is planned.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskOrigin {
    /// A trigger channel.
    Pull,
    /// The `index`-th fan-out target, with its argument.
    Push {
        /// Position in the channel of fan-out targets.
        index: usize,
        /// What the task gets instead of the state.
        arg: Value,
    },
    /// A task that failed for good.
    ErrorHandler {
        /// What the handler gets.
        input: Value,
        /// Why the task failed.
        failure: Arc<Failure>,
        /// The path of the task that failed.
        failed: Value,
    },
}

/// A task of the next superstep.
#[derive(Clone, Debug)]
pub struct PlannedTask {
    /// Derived from the checkpoint, so that a resumed run finds saved writes.
    pub id: TaskId,
    /// Index of its node in the topology.
    pub node: usize,
    /// Name of its node.
    pub name: Arc<str>,
    /// What started it, sorted.
    pub triggers: Arc<[Arc<str>]>,
    /// Its path in string form.
    pub path: Arc<str>,
    /// Its own namespace, `node:task_id` behind the graph's.
    pub ns: Arc<str>,
    /// Why it is planned.
    pub origin: TaskOrigin,
}

impl PlannedTask {
    /// What it wrote, to be applied.
    pub fn writing<'a>(&'a self, writes: &'a [(Arc<str>, Value)]) -> TaskWrites<'a> {
        TaskWrites {
            path: &self.path,
            node: &self.name,
            writes,
            triggers: &self.triggers,
        }
    }

    /// Whether it brings the input into the state, which is none of the graph's own tasks; a fan-out
    /// to the start is one of them.
    pub fn takes_input(&self) -> bool {
        self.node == START_NODE && matches!(self.origin, TaskOrigin::Pull)
    }

    /// For error handlers: why the task failed that this one runs for.
    pub fn failure(&self) -> Option<Arc<Failure>> {
        match &self.origin {
            TaskOrigin::ErrorHandler { failure, .. } => Some(failure.clone()),
            TaskOrigin::Pull | TaskOrigin::Push { .. } => None,
        }
    }

    /// Path as clients see it.
    pub fn path_value(&self) -> Value {
        match &self.origin {
            TaskOrigin::ErrorHandler { failed, .. } => {
                let mut path = failed.as_list().unwrap_or_default().to_vec();
                path.extend([HANDLER.into(), Value::Bool(false)]);
                Value::list(path)
            }
            TaskOrigin::Pull => Value::list(vec![PULL.into(), Value::Str(self.name.clone())]),
            TaskOrigin::Push { index, .. } => Value::list(vec![
                PUSH.into(),
                Value::Int(i64::try_from(*index).unwrap_or(i64::MAX)),
                Value::Bool(false),
            ]),
        }
    }
}

/// A stored fan-out target.
pub fn send_value(goto: &Goto) -> Value {
    let mut map = Map::with_capacity(2);
    map.insert("node", Value::Str(goto.node.clone()));
    map.insert("arg", goto.arg.clone().unwrap_or_default());
    Value::map(map)
}

/// The tasks of superstep `step`, which follows `checkpoint`: fan-out targets by index, then
/// nodes. `updated` is what the last superstep updated; without it every node is tested, in
/// definition order.
pub fn plan(
    topology: &Topology,
    channels: &Channels,
    checkpoint: CheckpointId,
    ns: &str,
    step: i64,
    updated: Option<&BTreeSet<Arc<str>>>,
) -> Vec<PlannedTask> {
    let mut tasks = vec![];
    let step = step.to_string();
    if let Some(sends) = channels.get(TASKS).and_then(Value::as_list) {
        let push: Arc<str> = PUSH.into();
        let triggers: Arc<[Arc<str>]> = Arc::from([push]);
        for (index, send) in sends.iter().enumerate() {
            let name = send.get("node").and_then(Value::as_str).unwrap_or_default();
            let Some(node) = topology.index(name) else {
                tracing::warn!(
                    node = name,
                    "fan-out to a node that does not exist: skipped"
                );
                continue;
            };
            let name = topology.name(node).clone();
            let task_ns = namespace::of_node(ns, &name);
            let position = index.to_string();
            let id = task_id(checkpoint, [&*task_ns, &step, &name, PUSH, &position]);
            tasks.push(PlannedTask {
                id,
                node,
                triggers: triggers.clone(),
                path: format!("~{PUSH}, {index:010}, 0000000000").into(),
                ns: format!("{task_ns}:{id}").into(),
                origin: TaskOrigin::Push {
                    index,
                    arg: send.get("arg").cloned().unwrap_or_default(),
                },
                name,
            });
        }
    }
    let candidates: Vec<usize> = match updated {
        Some(updated) if !updated.is_empty() => {
            let started: BTreeSet<(&str, usize)> = updated
                .iter()
                .flat_map(|channel| topology.started_by(channel))
                .map(|node| (&**topology.name(*node), *node))
                .collect();
            started.into_iter().map(|(_, node)| node).collect()
        }
        _ if channels.versions.is_empty() => vec![],
        _ => topology.all().collect(),
    };
    for node in candidates {
        if !fires(topology, channels, node) {
            continue;
        }
        let name = topology.name(node).clone();
        let triggers = topology.sorted_triggers(node).clone();
        let task_ns = namespace::of_node(ns, &name);
        let parts = [&*task_ns, &step, &name, PULL]
            .into_iter()
            .chain(triggers.iter().map(|trigger| &**trigger));
        let id = task_id(checkpoint, parts);
        tasks.push(PlannedTask {
            id,
            node,
            path: format!("~{PULL}, {name}").into(),
            ns: format!("{task_ns}:{id}").into(),
            triggers,
            origin: TaskOrigin::Pull,
            name,
        });
    }
    tasks
}

/// The task that runs the error handler of the node of `failed`, a task of the superstep at
/// a position: the checkpoint and the superstep's number. Its namespace lies in that of the task.
pub fn handler(
    topology: &Topology,
    (checkpoint, step): (CheckpointId, i64),
    failed: &PlannedTask,
    (input, failure): (Value, Failure),
) -> Option<PlannedTask> {
    let node = topology.handler_of(failed.node)?;
    let name = topology.name(node).clone();
    let task_ns = namespace::of_node(&failed.ns, &name);
    let (step, of) = (step.to_string(), failed.id.to_string());
    let id = task_id(checkpoint, [&*task_ns, &step, &name, PUSH, HANDLER, &of]);
    Some(PlannedTask {
        id,
        node,
        name,
        triggers: Arc::from([PUSH.into()]),
        path: format!("{}, {HANDLER}, 0000000000", failed.path).into(),
        ns: format!("{task_ns}:{id}").into(),
        origin: TaskOrigin::ErrorHandler {
            input,
            failure: Arc::new(failure),
            failed: failed.path_value(),
        },
    })
}

/// The path of the task that failed, if this is the path of the task of its error [`handler`].
pub fn handled_path(path: &str) -> Option<&str> {
    let path = path.strip_suffix(", 0000000000")?;
    path.strip_suffix(HANDLER)?.strip_suffix(", ")
}

/// A node fires when one of its triggers has a version that the node has not consumed.
fn fires(topology: &Topology, channels: &Channels, node: usize) -> bool {
    let consumed = channels.consumed_versions.get(topology.name(node));
    topology.triggers(node).iter().any(|trigger| {
        let available = channels
            .by_name
            .get(trigger)
            .is_some_and(|channel| channel.is_available());
        let version = channels.versions.get(trigger).map_or(0, |v| v.counter);
        let last = consumed
            .and_then(|consumed| consumed.get(trigger))
            .map_or(0, |v| v.counter);
        available && (consumed.is_none() || version > last)
    })
}

#[cfg(test)]
mod tests;
