//! Telling what tasks did: updates, questions, messages.

use std::sync::Arc;

use super::{
    drive::Writes,
    event::{Body, Interrupt, Kind},
    level::Level,
    live::ROOT,
    view,
    wiring::START_NODE,
};
use crate::value::{Map, Value};

/// Tells the questions of a task.
pub fn question(level: &Level, index: usize, asked: &[Interrupt]) {
    let (scope, ns) = (&level.scope, &level.ns);
    scope.emit(Kind::Updates, ns, || Body::UpdateInterrupt(asked.to_vec()));
    scope.emit(Kind::Values, ns, || {
        Body::ValuesInterrupt(level.live.output(&level.wiring), asked.to_vec())
    });
    let info = Arc::new(level.info(&level.tasks[index]));
    scope.emit(Kind::Tasks, ns, || Body::TaskEnd {
        task: info,
        error: None,
        result: Value::map(Map::new()),
        interrupts: asked.to_vec(),
    });
}

/// Tells the result of a task.
pub fn update(level: &Level, index: usize, writes: &Writes, cached: bool) {
    let task = &level.tasks[index];
    let (scope, ns) = (&level.scope, &level.ns);
    if task.node == START_NODE {
        return;
    }
    scope.emit(Kind::Updates, ns, || Body::Update {
        node: task.name.clone(),
        update: update_of(level, writes),
        cached,
    });
    if !cached {
        let info = Arc::new(level.info(task));
        scope.emit(Kind::Tasks, ns, || Body::TaskEnd {
            task: info,
            error: None,
            result: view::result(level.graph(), writes),
            interrupts: vec![],
        });
    }
}

/// `{channel: value}` of the output channels; a list of those when a channel was written more
/// than once; null when none was written.
fn update_of(level: &Level, writes: &Writes) -> Value {
    let graph = level.graph();
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

/// Streams messages that a node returned and did not stream before.
pub fn messages(level: &Level, index: usize, writes: &Writes) {
    if !level.scope.sink.wants(Kind::Messages, &level.ns) {
        return;
    }
    let info = Arc::new(level.info(&level.tasks[index]));
    for (name, value) in writes {
        if !level.graph().messages.contains(name) {
            continue;
        }
        let value = crate::channel::as_overwrite(value).unwrap_or(value);
        let known = level
            .live
            .get(name)
            .and_then(Value::as_list)
            .unwrap_or_default();
        let one = std::slice::from_ref(value);
        for message in value.as_list().unwrap_or(one) {
            let Some(id) = message.get("id").and_then(Value::as_str) else {
                continue;
            };
            let removal = message.get("type").and_then(Value::as_str) == Some("remove");
            let old = known
                .iter()
                .any(|known| known.get("id").and_then(Value::as_str) == Some(id));
            if removal || old || !level.scope.said.lock().insert(id.into()) {
                continue;
            }
            level
                .scope
                .emit(Kind::Messages, &level.ns, || Body::Message {
                    message: message.clone(),
                    whole: true,
                    task: info.clone(),
                });
        }
    }
}
