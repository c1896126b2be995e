//! Emitting what happens in an execution: checkpoints, states, results of tasks, messages.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    apply::Writes,
    channels::ROOT,
    event::{Body, CheckpointInfo, Interrupt, Kind, TaskInfo},
    execution::Execution,
    plan::PlannedTask,
    snapshot,
    topology::START_NODE,
};
use crate::value::{Map, Value};

/// Emits the current checkpoint, once; `tasks` follow it.
pub fn checkpoint(execution: &mut Execution, tasks: &[PlannedTask]) {
    if execution.current.emitted || !execution.stores || !execution.current.exists {
        return;
    }
    execution.current.emitted = true;
    let current = &execution.current;
    let states = || {
        let state = |task| snapshot::task_state(&execution.topology, task, &execution.pending);
        tasks.iter().map(state).collect()
    };
    execution
        .context
        .emit(Kind::Checkpoints, &execution.ns, || {
            Body::Checkpoint(Box::new(CheckpointInfo {
                id: current.id,
                parent: current.shown_parent,
                source: current.source,
                step: current.step,
                parents: match &current.shown_parents {
                    Some(parents) => parents.clone(),
                    None => execution.parents.clone(),
                },
                values: execution.channels.output(&execution.topology),
                next: tasks.iter().map(|task| task.name.clone()).collect(),
                tasks: states(),
            }))
        });
}

/// Emits the state. A graph inside returns what it emitted last.
pub fn values(execution: &mut Execution) {
    if !execution.ns.is_empty() {
        execution.emitted = Some(execution.channels.output(&execution.topology));
    }
    execution.context.emit(Kind::Values, &execution.ns, || {
        Body::Values(execution.channels.output(&execution.topology))
    });
}

/// Emits that a task starts.
pub fn task_start(execution: &Execution, task: &Arc<TaskInfo>, input: &Value) {
    execution
        .context
        .emit(Kind::Tasks, &execution.ns, || Body::TaskStart {
            task: task.clone(),
            input: input.clone(),
        });
}

/// Emits the interrupts of a task.
pub fn interrupts(execution: &Execution, index: usize, interrupts: &[Interrupt]) {
    let (context, ns) = (&execution.context, &execution.ns);
    context.emit(Kind::Updates, ns, || {
        Body::UpdateInterrupt(interrupts.to_vec())
    });
    context.emit(Kind::Values, ns, || {
        Body::ValuesInterrupt(
            execution.channels.output(&execution.topology),
            interrupts.to_vec(),
        )
    });
    let info = Arc::new(execution.info(&execution.tasks[index]));
    context.emit(Kind::Tasks, ns, || Body::TaskEnd {
        task: info,
        error: None,
        result: Value::map(Map::new()),
        interrupts: interrupts.to_vec(),
    });
}

/// Emits the failure of a task.
pub fn failure(execution: &Execution, task: &PlannedTask, failure: Value) {
    let info = Arc::new(execution.info(task));
    execution
        .context
        .emit(Kind::Tasks, &execution.ns, || Body::TaskEnd {
            task: info,
            error: Some(failure),
            result: Value::map(Map::new()),
            interrupts: vec![],
        });
}

/// Emits an update of a task that has none.
pub fn empty_update(execution: &Execution, task: &PlannedTask) {
    execution
        .context
        .emit(Kind::Updates, &execution.ns, || Body::Update {
            node: task.name.clone(),
            update: Value::Null,
            cached: false,
        });
}

/// Emits the result of a task; `cached` when it did not run for it.
pub fn update(execution: &Execution, index: usize, writes: &Writes, cached: bool) {
    let task = &execution.tasks[index];
    let (context, ns) = (&execution.context, &execution.ns);
    if task.node == START_NODE {
        return;
    }
    context.emit(Kind::Updates, ns, || Body::Update {
        node: task.name.clone(),
        update: update_of(execution, writes),
        cached,
    });
    if !cached {
        let info = Arc::new(execution.info(task));
        context.emit(Kind::Tasks, ns, || Body::TaskEnd {
            task: info,
            error: None,
            result: snapshot::result(execution.graph(), writes),
            interrupts: vec![],
        });
    }
}

/// `{channel: value}` of the output channels; a list of those when a channel was written more
/// than once; null when none was written.
fn update_of(execution: &Execution, writes: &Writes) -> Value {
    let graph = execution.graph();
    if graph.root_state {
        let value = writes.iter().find(|(name, _)| &**name == ROOT);
        return value.map(|(_, value)| value.clone()).unwrap_or_default();
    }
    let shown: Vec<&(Arc<str>, Value)> = writes
        .iter()
        .filter(|(name, _)| graph.output.contains(name))
        .collect();
    if shown.is_empty() {
        return Value::Null;
    }
    let twice = shown
        .iter()
        .enumerate()
        .any(|(i, (name, _))| shown[..i].iter().any(|(other, _)| other == name));
    if !twice {
        return Value::map(shown.into_iter().cloned().collect());
    }
    Value::list(
        shown
            .into_iter()
            .map(|(name, value)| {
                Value::map(std::iter::once((name.clone(), value.clone())).collect())
            })
            .collect(),
    )
}

/// The ids of messages that are there before a superstep, by channel: looked up once for all tasks.
#[derive(Default)]
pub struct PresentMessages(HashMap<Arc<str>, HashSet<Arc<str>>>);

impl PresentMessages {
    fn of(&mut self, execution: &Execution, channel: &Arc<str>) -> &HashSet<Arc<str>> {
        self.0.entry(channel.clone()).or_insert_with(|| {
            let list = execution.channels.get(channel).and_then(Value::as_list);
            let ids = list.unwrap_or_default().iter();
            let id = |message: &Value| match message.get("id") {
                Some(Value::Str(id)) => Some(id.clone()),
                _ => None,
            };
            ids.filter_map(id).collect()
        })
    }
}

/// Emits messages that a node returned and did not stream before.
pub fn messages(
    execution: &Execution,
    index: usize,
    writes: &Writes,
    present: &mut PresentMessages,
) {
    if !execution.context.sink.wants(Kind::Messages, &execution.ns) {
        return;
    }
    let info = Arc::new(execution.info(&execution.tasks[index]));
    for (name, value) in writes {
        if !execution.graph().messages.contains(name) {
            continue;
        }
        let value = crate::channel::as_overwrite(value).unwrap_or(value);
        let present = present.of(execution, name);
        let one = std::slice::from_ref(value);
        for message in value.as_list().unwrap_or(one) {
            let Some(id) = message.get("id").and_then(Value::as_str) else {
                continue;
            };
            let removal = message.get("type").and_then(Value::as_str) == Some("remove");
            if removal || present.contains(id) || !execution.context.mark_streamed(id) {
                continue;
            }
            execution
                .context
                .emit(Kind::Messages, &execution.ns, || Body::Message {
                    message: message.clone(),
                    whole: true,
                    task: info.clone(),
                });
        }
    }
}
