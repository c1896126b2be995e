//! States as clients see them: values, what runs next, tasks with their results and questions.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    apply::{TaskWrites, apply},
    enter::has_output,
    error::Error,
    event::{Interrupt, TaskState},
    live::Live,
    names::{ERROR, INPUT, INTERRUPT, control_index},
    plan::{self, Planned},
    rescue,
    wiring::Wiring,
};
use crate::{
    checkpoint::{Checkpoint, Pending, frame::Decoded},
    graph::{Body as NodeBody, Compiled, Persist},
    id::TaskId,
    value::{Map, Value},
};

/// A state of one graph.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Namespace of the graph.
    pub ns: Arc<str>,
    /// The checkpoint it is of.
    pub checkpoint: Checkpoint,
    /// What the graph shows.
    pub values: Value,
    /// Nodes that run next.
    pub next: Vec<Arc<str>>,
    /// Their tasks.
    pub tasks: Vec<TaskState>,
}

impl Snapshot {
    /// Questions that wait, in task order.
    pub fn interrupts(&self) -> Vec<Interrupt> {
        self.tasks
            .iter()
            .flat_map(|task| task.interrupts.iter().cloned())
            .collect()
    }
}

/// The state at a stored checkpoint.
///
/// `live` is how the thread stands now: results of finished tasks show in the values, and only
/// what is left to do is next. Otherwise it is the record of the superstep: values at its
/// start, all of its tasks with what they wrote. A superstep whose results conflict goes no
/// further: it shows as it began.
///
/// # Errors
/// Stored values do not fit the graph.
pub fn snapshot(
    wiring: &Wiring,
    ns: &Arc<str>,
    decoded: &Decoded,
    live: bool,
) -> Result<Snapshot, Error> {
    match exact(wiring, ns, decoded, live) {
        Err(Error::Channel { .. }) => seen(wiring, ns, decoded, None),
        shown => shown,
    }
}

/// The same, refusing a superstep whose results conflict, as LangGraph's library does.
///
/// # Errors
/// As [`snapshot`]; pending results conflict.
pub fn exact(
    wiring: &Wiring,
    ns: &Arc<str>,
    decoded: &Decoded,
    live: bool,
) -> Result<Snapshot, Error> {
    seen(wiring, ns, decoded, Some(live))
}

/// `live` says how pending results show; without it none does.
fn seen(
    wiring: &Wiring,
    ns: &Arc<str>,
    decoded: &Decoded,
    live: Option<bool>,
) -> Result<Snapshot, Error> {
    let checkpoint = &decoded.checkpoint;
    let pending: Vec<&Pending> = decoded.writes.iter().map(|(_, write)| write).collect();
    let began = Live::restore(wiring, checkpoint)?;
    let planned = plan::plan(wiring, &began, checkpoint.id, ns, checkpoint.step + 1, None);
    let owned: Vec<Pending> = pending.iter().map(|write| (*write).clone()).collect();
    let place = (checkpoint.id, checkpoint.step + 1);
    let handlers = rescue::standing_in(wiring, place, &planned, &pending);
    let finished = (live == Some(true)).then(|| {
        let handlers = handlers.iter().map(|(_, handler)| handler.clone());
        planned.iter().cloned().chain(handlers).collect::<Vec<_>>()
    });
    let state = match live {
        Some(_) => present(wiring, &began, finished.as_deref(), &pending)?,
        None => began,
    };
    let live = live == Some(true);
    let mut tasks = vec![];
    let mut next = vec![];
    for (index, task) in planned.iter().enumerate() {
        let mut shown = task_state(wiring, task, &pending);
        let handler = handlers.iter().find(|(failed, _)| *failed == index);
        if let Some((_, handler)) = handler {
            // What the handler asks waits where the task that failed is shown.
            let asked = task_state(wiring, handler, &pending).interrupts;
            shown.interrupts.extend(asked);
        }
        let runs = handler.map_or(task.id, |(_, handler)| handler.id);
        let done = has_output(&owned, runs);
        if live && done {
            shown.interrupts.clear();
        } else {
            next.push(task.name.clone());
        }
        tasks.push(shown);
    }
    Ok(Snapshot {
        ns: ns.clone(),
        checkpoint: checkpoint.clone(),
        values: state.output(wiring),
        next,
        tasks,
    })
}

/// A state with the client's pending writes applied, and with those of finished tasks.
fn present(
    wiring: &Wiring,
    began: &Live,
    finished: Option<&[Planned]>,
    pending: &[&Pending],
) -> Result<Live, Error> {
    let mut state = began.clone();
    apply_null(wiring, &mut state, pending)?;
    if let Some(tasks) = finished {
        apply_finished(wiring, &mut state, tasks, pending)?;
    }
    Ok(state)
}

/// Applies the client's own pending writes.
pub(super) fn apply_null(
    wiring: &Wiring,
    state: &mut Live,
    pending: &[&Pending],
) -> Result<(), Error> {
    let writes: Vec<(Arc<str>, Value)> = pending
        .iter()
        .filter(|write| write.task == TaskId::NULL)
        .map(|write| (write.channel.clone(), write.value.clone()))
        .collect();
    if writes.is_empty() {
        return Ok(());
    }
    let node: Arc<str> = INPUT.into();
    apply(
        wiring,
        state,
        vec![TaskWrites {
            path: "~",
            node: &node,
            writes: &writes,
            triggers: &[],
        }],
    )
    .map(|_: BTreeSet<Arc<str>>| ())
}

/// What a task wrote to channels; nothing when it has not finished.
pub(super) fn output_of(pending: &[&Pending], task: TaskId) -> Vec<(Arc<str>, Value)> {
    pending
        .iter()
        .filter(|write| write.task == task)
        .filter(|write| control_index(&write.channel).is_none())
        .map(|write| (write.channel.clone(), write.value.clone()))
        .collect()
}

fn apply_finished(
    wiring: &Wiring,
    state: &mut Live,
    planned: &[Planned],
    pending: &[&Pending],
) -> Result<(), Error> {
    let writes: Vec<(&Planned, _)> = planned
        .iter()
        .map(|task| (task, output_of(pending, task.id)))
        .filter(|(_, writes)| !writes.is_empty())
        .collect();
    if writes.is_empty() {
        return Ok(());
    }
    let tasks = writes
        .iter()
        .map(|(task, writes)| TaskWrites {
            path: &task.path,
            node: &task.name,
            writes,
            triggers: &task.triggers,
        })
        .collect();
    apply(wiring, state, tasks)?;
    // LangGraph lets one more superstep pass here: what lives for one is not shown.
    for (name, channel) in &mut state.channels {
        channel
            .update(&[])
            .map_err(|error| Error::channel(name, error))?;
    }
    Ok(())
}

/// A task with what is known of it.
pub fn task_state(wiring: &Wiring, task: &Planned, pending: &[&Pending]) -> TaskState {
    let mut state = TaskState {
        id: task.id,
        name: task.name.clone(),
        path: task.path_value(),
        error: None,
        interrupts: vec![],
        result: None,
        child_ns: child_ns(wiring, task),
    };
    let mut outputs = vec![];
    for write in pending.iter().filter(|write| write.task == task.id) {
        match &*write.channel {
            ERROR => state.error = Some(write.value.clone()),
            INTERRUPT => state.interrupts.extend(
                write
                    .value
                    .as_list()
                    .unwrap_or_default()
                    .iter()
                    .filter_map(Interrupt::from_value),
            ),
            name if control_index(name).is_some() => {}
            _ => outputs.push((write.channel.clone(), write.value.clone())),
        }
    }
    if !outputs.is_empty() {
        state.result = Some(result(&wiring.graph, &outputs));
    }
    state
}

/// Namespace of the graph a task runs, when that stores checkpoints.
pub fn child_ns(wiring: &Wiring, task: &Planned) -> Option<Arc<str>> {
    let node = wiring.node(task.node)?;
    let stores = |graph: &Compiled| graph.persist != Persist::None;
    let found = match &node.body {
        NodeBody::Graph(graph) => stores(graph),
        NodeBody::Function(_) => node.calls.iter().any(|(_, graph)| stores(graph)),
    };
    found.then(|| task.ns.clone())
}

/// What a task wrote to state channels; several writes of one channel as `{"$writes": [...]}`.
pub fn result(graph: &Compiled, writes: &[(Arc<str>, Value)]) -> Value {
    let mut result = Map::new();
    let mut many: Vec<&Arc<str>> = vec![];
    for (name, value) in writes {
        let root = graph.root_state && &**name == super::live::ROOT;
        if graph.channel(name).is_none() && !root {
            continue;
        }
        let Some(first) = result.get(name).cloned() else {
            result.insert(name.clone(), value.clone());
            continue;
        };
        let mut all = match many.contains(&name) {
            true => first
                .get("$writes")
                .and_then(Value::as_list)
                .unwrap_or_default()
                .to_vec(),
            false => {
                many.push(name);
                vec![first]
            }
        };
        all.push(value.clone());
        let mut wrapped = Map::new();
        wrapped.insert("$writes", Value::list(all));
        result.insert(name.clone(), Value::map(wrapped));
    }
    Value::map(result)
}
