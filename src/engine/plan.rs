//! Deciding which tasks a superstep has (LangGraph's `prepare_next_tasks`).

use std::{collections::BTreeSet, sync::Arc};

use super::{
    live::Live,
    names::{HANDLER, PULL, PUSH, TASKS},
    wiring::Wiring,
};
use crate::{
    extract::Failure,
    graph::Goto,
    id::{CheckpointId, TaskId},
    value::{Map, Value},
};

/// Where a task came from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
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
    Rescue {
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
pub struct Planned {
    /// Derived from the checkpoint, so that a resumed run finds saved writes.
    pub id: TaskId,
    /// Index of its node in the wiring.
    pub node: usize,
    /// Name of its node.
    pub name: Arc<str>,
    /// What started it, sorted.
    pub triggers: Arc<[Arc<str>]>,
    /// Its path in string form.
    pub path: Arc<str>,
    /// Its own namespace, `node:task_id` behind the graph's.
    pub ns: Arc<str>,
    /// Where it came from.
    pub origin: Origin,
}

impl Planned {
    /// For error handlers: why the task failed that this one stands in for.
    pub fn failure(&self) -> Option<Arc<Failure>> {
        match &self.origin {
            Origin::Rescue { failure, .. } => Some(failure.clone()),
            Origin::Pull | Origin::Push { .. } => None,
        }
    }

    /// Path as clients see it.
    pub fn path_value(&self) -> Value {
        match &self.origin {
            Origin::Rescue { failed, .. } => {
                let mut path = failed.as_list().unwrap_or_default().to_vec();
                path.extend([HANDLER.into(), Value::Bool(false)]);
                Value::list(path)
            }
            Origin::Pull => Value::list(vec![PULL.into(), Value::Str(self.name.clone())]),
            Origin::Push { index, .. } => Value::list(vec![
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
/// nodes. `updated` is what the last superstep updated; without it every node is looked at, in
/// definition order.
pub fn plan(
    wiring: &Wiring,
    live: &Live,
    checkpoint: CheckpointId,
    ns: &str,
    step: i64,
    updated: Option<&BTreeSet<Arc<str>>>,
) -> Vec<Planned> {
    let mut tasks = vec![];
    let step = step.to_string();
    if let Some(sends) = live.get(TASKS).and_then(Value::as_list) {
        let push: Arc<str> = PUSH.into();
        let triggers: Arc<[Arc<str>]> = Arc::from([push]);
        for (index, send) in sends.iter().enumerate() {
            let name = send.get("node").and_then(Value::as_str).unwrap_or_default();
            let Some(node) = wiring.index(name) else {
                tracing::warn!(
                    node = name,
                    "fan-out to a node that does not exist: skipped"
                );
                continue;
            };
            let name = wiring.name(node).clone();
            let task_ns = child_ns(ns, &name);
            let position = index.to_string();
            let id = TaskId::derive(checkpoint, [&*task_ns, &step, &name, PUSH, &position]);
            tasks.push(Planned {
                id,
                node,
                triggers: triggers.clone(),
                path: format!("~{PUSH}, {index:010}, 0000000000").into(),
                ns: format!("{task_ns}:{id}").into(),
                origin: Origin::Push {
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
                .flat_map(|channel| wiring.started_by(channel))
                .map(|node| (&**wiring.name(*node), *node))
                .collect();
            started.into_iter().map(|(_, node)| node).collect()
        }
        _ if live.versions.is_empty() => vec![],
        _ => wiring.all().collect(),
    };
    for node in candidates {
        if !fires(wiring, live, node) {
            continue;
        }
        let name = wiring.name(node).clone();
        let triggers = wiring.sorted_triggers(node).clone();
        let task_ns = child_ns(ns, &name);
        let parts = [&*task_ns, &step, &name, PULL]
            .into_iter()
            .chain(triggers.iter().map(|trigger| &**trigger));
        let id = TaskId::derive(checkpoint, parts);
        tasks.push(Planned {
            id,
            node,
            path: format!("~{PULL}, {name}").into(),
            ns: format!("{task_ns}:{id}").into(),
            triggers,
            origin: Origin::Pull,
            name,
        });
    }
    tasks
}

/// The task that runs the error handler of the node of `failed`, a task of the superstep at
/// `place`: the checkpoint and the superstep's number. Its namespace lies in that of the task.
pub fn handler(
    wiring: &Wiring,
    (checkpoint, step): (CheckpointId, i64),
    failed: &Planned,
    (input, failure): (Value, Failure),
) -> Option<Planned> {
    let node = wiring.handler_of(failed.node)?;
    let name = wiring.name(node).clone();
    let task_ns = child_ns(&failed.ns, &name);
    let (step, of) = (step.to_string(), failed.id.to_string());
    let id = TaskId::derive(checkpoint, [&*task_ns, &step, &name, PUSH, HANDLER, &of]);
    Some(Planned {
        id,
        node,
        name,
        triggers: Arc::from([PUSH.into()]),
        path: format!("{}, {HANDLER}, 0000000000", failed.path).into(),
        ns: format!("{task_ns}:{id}").into(),
        origin: Origin::Rescue {
            input,
            failure: Arc::new(failure),
            failed: failed.path_value(),
        },
    })
}

/// A node fires when one of its triggers has a value the node has not seen.
fn fires(wiring: &Wiring, live: &Live, node: usize) -> bool {
    let seen = live.seen.get(wiring.name(node));
    wiring.triggers(node).iter().any(|trigger| {
        let available = live
            .channels
            .get(trigger)
            .is_some_and(|channel| channel.is_available());
        let version = live.versions.get(trigger).map_or(0, |v| v.counter);
        let last = seen
            .and_then(|seen| seen.get(trigger))
            .map_or(0, |v| v.counter);
        available && (seen.is_none() || version > last)
    })
}

fn child_ns(ns: &str, node: &str) -> String {
    match ns {
        "" => node.to_owned(),
        ns => format!("{ns}|{node}"),
    }
}

#[cfg(test)]
mod tests;
