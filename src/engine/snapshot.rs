//! States as clients see them: values, what runs next, tasks with their results and interrupts.

use std::sync::Arc;

use indexmap::IndexMap;

use super::{
    apply::{Writes, apply, apply_input},
    channels::{Channels, ROOT},
    error::Error,
    error_handler::replacements_of_failed,
    event::{Interrupt, TaskState},
    pending::{PendingWrites, interrupts_in},
    plan::{self, PlannedTask},
    reserved::{ERROR, INTERRUPT, START, control_index},
    topology::Topology,
};
use crate::{
    checkpoint::{Checkpoint, frame::Decoded},
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
    /// Open interrupts, in task order.
    pub fn interrupts(&self) -> Vec<Interrupt> {
        self.tasks
            .iter()
            .flat_map(|task| task.interrupts.iter().cloned())
            .collect()
    }
}

/// The state at a stored checkpoint.
///
/// `live` is the state of the thread now: results of finished tasks show in the values, and only
/// what is left to do is next. Otherwise it is the record of the superstep: values at its
/// start, all of its tasks with what they wrote. A superstep whose results conflict goes no
/// further: it shows as it began.
///
/// # Errors
/// Stored values do not fit the graph.
pub fn snapshot(
    topology: &Topology,
    ns: &Arc<str>,
    decoded: &Decoded,
    live: bool,
) -> Result<Snapshot, Error> {
    match exact(topology, ns, decoded, live) {
        Err(Error::Channel { .. }) => read(topology, ns, decoded, None),
        shown => shown,
    }
}

/// The same, refusing a superstep whose results conflict, as LangGraph's library does.
///
/// # Errors
/// As [`snapshot`]; pending results conflict.
pub fn exact(
    topology: &Topology,
    ns: &Arc<str>,
    decoded: &Decoded,
    live: bool,
) -> Result<Snapshot, Error> {
    read(topology, ns, decoded, Some(live))
}

/// `live` decides how pending results show; without it none does.
fn read(
    topology: &Topology,
    ns: &Arc<str>,
    decoded: &Decoded,
    live: Option<bool>,
) -> Result<Snapshot, Error> {
    let checkpoint = &decoded.checkpoint;
    let pending = decoded.writes.iter().map(|(_, write)| write.clone());
    let pending: PendingWrites = pending.collect();
    let began = Channels::restore(topology, checkpoint)?;
    let input = began.get(START).cloned();
    let planned = plan::plan(
        topology,
        &began,
        checkpoint.id,
        ns,
        checkpoint.step + 1,
        None,
    );
    let position = (checkpoint.id, checkpoint.step + 1);
    let handlers = replacements_of_failed(topology, position, &planned, &pending);
    let finished = (live == Some(true)).then(|| {
        let handlers = handlers.values().cloned();
        planned.iter().cloned().chain(handlers).collect::<Vec<_>>()
    });
    let state = match live {
        Some(_) => present(topology, began, finished.as_deref(), &pending)?,
        None => began,
    };
    let live = live == Some(true);
    let mut tasks = vec![];
    let mut next = vec![];
    for (index, task) in planned.iter().enumerate() {
        let mut shown = task_state(topology, task, &pending);
        if task.takes_input()
            && let (Some(result), Some(input)) = (&mut shown.result, &input)
        {
            *result = as_requested(result, input);
        }
        let handler = handlers.get(&index);
        if let Some(handler) = handler {
            // Interrupts of the handler are shown with the task that failed.
            let interrupts = task_state(topology, handler, &pending).interrupts;
            shown.interrupts.extend(interrupts);
        }
        let runs = handler.map_or(task.id, |handler| handler.id);
        if live && pending.has_output(runs) {
            shown.interrupts.clear();
        } else {
            next.push(task.name.clone());
        }
        tasks.push(shown);
    }
    Ok(Snapshot {
        ns: ns.clone(),
        checkpoint: checkpoint.clone(),
        values: state.output(topology),
        next,
        tasks,
    })
}

/// What was taken of an input, in the form in which the client gave it.
fn as_requested(taken: &Value, input: &Value) -> Value {
    let own = |(name, value): (&Arc<str>, &Value)| {
        let value = input.get(name).unwrap_or(value).clone();
        (name.clone(), value)
    };
    match taken.as_map() {
        Some(taken) => Value::map(taken.iter().map(own).collect()),
        None => taken.clone(),
    }
}

/// A state with the client's pending writes applied, and with those of finished tasks.
fn present(
    topology: &Topology,
    mut state: Channels,
    finished: Option<&[PlannedTask]>,
    pending: &PendingWrites,
) -> Result<Channels, Error> {
    apply_client_writes(topology, &mut state, pending)?;
    if let Some(tasks) = finished {
        apply_finished(topology, &mut state, tasks, pending)?;
    }
    Ok(state)
}

/// Applies the client's own pending writes.
pub(super) fn apply_client_writes(
    topology: &Topology,
    state: &mut Channels,
    pending: &PendingWrites,
) -> Result<(), Error> {
    let writes = pending.writes_of(TaskId::NULL);
    apply_input(topology, state, &writes).map(|_| ())
}

/// Applies the results of tasks that have finished.
fn apply_finished(
    topology: &Topology,
    state: &mut Channels,
    planned: &[PlannedTask],
    pending: &PendingWrites,
) -> Result<(), Error> {
    let writes: Vec<(&PlannedTask, Writes)> = planned
        .iter()
        .map(|task| (task, pending.output_of(task.id)))
        .filter(|(_, writes)| !writes.is_empty())
        .collect();
    if writes.is_empty() {
        return Ok(());
    }
    let tasks = writes
        .iter()
        .map(|(task, writes)| task.writing(writes))
        .collect();
    apply(topology, state, tasks)?;
    // LangGraph lets one more superstep pass here: what lives for one is not shown.
    for (name, channel) in &mut state.by_name {
        channel
            .update(&[])
            .map_err(|error| Error::channel(name, error))?;
    }
    Ok(())
}

/// A task with what is stored of it.
pub fn task_state(topology: &Topology, task: &PlannedTask, pending: &PendingWrites) -> TaskState {
    let mut state = TaskState {
        id: task.id,
        name: task.name.clone(),
        path: task.path_value(),
        error: None,
        interrupts: vec![],
        result: None,
        child_ns: child_ns(topology, task),
    };
    let mut outputs = vec![];
    for write in pending.of(task.id) {
        match &*write.channel {
            ERROR => state.error = Some(write.value.clone()),
            INTERRUPT => state.interrupts.extend(interrupts_in(write)),
            name if control_index(name).is_some() => {}
            _ => outputs.push((write.channel.clone(), write.value.clone())),
        }
    }
    if !outputs.is_empty() {
        state.result = Some(result(&topology.graph, &outputs));
    }
    state
}

/// Namespace of the graph a task runs, when that stores checkpoints.
pub fn child_ns(topology: &Topology, task: &PlannedTask) -> Option<Arc<str>> {
    let node = topology.node(task.node)?;
    let stores = |graph: &Compiled| graph.persist != Persist::None;
    let found = match &node.body {
        NodeBody::Graph(graph) => stores(graph),
        NodeBody::Function(_) => node.calls.iter().any(|(_, graph)| stores(graph)),
    };
    found.then(|| task.ns.clone())
}

/// What a task wrote to state channels; several writes of one channel as `{"$writes": [...]}`.
pub fn result(graph: &Compiled, writes: &[(Arc<str>, Value)]) -> Value {
    let mut by_channel: IndexMap<&Arc<str>, Vec<Value>> = IndexMap::new();
    for (name, value) in writes {
        let root = graph.root_state && &**name == ROOT;
        if graph.channel(name).is_some() || root {
            by_channel.entry(name).or_default().push(value.clone());
        }
    }
    let shown = |mut all: Vec<Value>| match all.pop() {
        Some(only) if all.is_empty() => only,
        last => {
            all.extend(last);
            let mut wrapped = Map::new();
            wrapped.insert("$writes", Value::list(all));
            Value::map(wrapped)
        }
    };
    let all = by_channel.into_iter();
    Value::map(
        all.map(|(name, values)| (name.clone(), shown(values)))
            .collect(),
    )
}
