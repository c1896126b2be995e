//! Reporting to clients when graphs, nodes, models and tools start and end.

use std::sync::Arc;

use super::{
    apply::Writes,
    event::{Body, Callback, Kind, TaskInfo},
    execution::Execution,
    input::{ClientCommand, Input},
    run_context::RunContext,
    snapshot,
    topology::START_NODE,
};
use crate::{
    extract::Report,
    graph::Goto,
    value::{Map, Value},
};

fn emit(context: &RunContext, ns: &Arc<str>, callback: impl FnOnce() -> Callback) {
    context.emit(Kind::Callbacks, ns, || Body::Callback(Box::new(callback())));
}

/// The root graph starts.
pub fn root_start(context: &RunContext, input: &Input) {
    emit(context, &"".into(), || {
        Callback::GraphStart(None, input_of(input))
    });
}

/// The root graph ends.
pub fn root_end(context: &RunContext, output: &Value) {
    emit(context, &"".into(), || {
        Callback::GraphEnd(None, output.clone())
    });
}

/// A graph starts inside a task.
pub fn graph_start(context: &RunContext, ns: &Arc<str>, task: &TaskInfo, input: &Value) {
    emit(context, ns, || {
        Callback::GraphStart(Some(Arc::new(task.clone())), input.clone())
    });
}

/// A graph ends inside a task.
pub fn graph_end(context: &RunContext, ns: &Arc<str>, task: &TaskInfo, output: &Value) {
    emit(context, ns, || {
        Callback::GraphEnd(Some(Arc::new(task.clone())), output.clone())
    });
}

/// A node starts.
pub fn node_start(execution: &Execution, task: &Arc<TaskInfo>, input: &Value) {
    emit(&execution.context, &execution.ns, || {
        Callback::NodeStart(task.clone(), input.clone())
    });
}

/// A node ends, before its results are shown in other forms.
pub fn node_end(execution: &Execution, index: usize, writes: &Writes) {
    let task = &execution.tasks[index];
    if task.node == START_NODE {
        return;
    }
    emit(&execution.context, &execution.ns, || {
        let result = snapshot::result(execution.graph(), writes);
        Callback::NodeEnd(Arc::new(execution.info(task)), result)
    });
}

/// A node reports what it does.
pub fn report(context: &RunContext, ns: &Arc<str>, task: &Arc<TaskInfo>, report: Report) {
    emit(context, ns, || Callback::Report(task.clone(), report));
}

/// The input of a run as the client sent it.
fn input_of(input: &Input) -> Value {
    match input {
        Input::Value(value) => value.clone(),
        Input::Null => Value::Null,
        Input::Command(command) => command_of(command),
    }
}

fn command_of(command: &ClientCommand) -> Value {
    let update: Map = command.update.iter().cloned().collect();
    let graph = command.to_parent.then(|| "__parent__".into());
    let update = (!update.is_empty()).then(|| Value::map(update));
    let goto = command.goto.iter().map(target).collect();
    let goto = (!command.goto.is_empty()).then(|| Value::list(goto));
    Value::map(Map::from([
        ("graph", graph.unwrap_or_default()),
        ("update", update.unwrap_or_default()),
        ("resume", command.resume.clone().unwrap_or_default()),
        ("goto", goto.unwrap_or_default()),
    ]))
}

fn target(goto: &Goto) -> Value {
    let node = Value::Str(goto.node.clone());
    match &goto.arg {
        Some(arg) => Value::map(Map::from([("node", node), ("args", arg.clone())])),
        None => node,
    }
}
