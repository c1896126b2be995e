//! States in the form clients see (`ThreadState` of the Agent Server protocol).

use std::{collections::HashMap, sync::Arc};

use crate::{
    checkpoint::{Checkpoint, Source},
    engine::{
        event::{Interrupt, TaskState},
        run::{CREATED_BY, FIRST_ATTEMPT},
        snapshot::Snapshot,
    },
    graph::{Compiled, START},
    id::{CheckpointId, RunId, ThreadId},
    tree::{
        ThreadState,
        read::{graphs_inside, head::displayed_values},
    },
    value::{Map, Value},
};

/// `{checkpoint_id, thread_id, checkpoint_ns}`, with `checkpoint_map` inside subgraphs.
pub fn address(thread: ThreadId, ns: &str, id: CheckpointId, parents: Option<&Map>) -> Value {
    let mut map = Map::with_capacity(4);
    map.insert("checkpoint_id", id.to_string());
    map.insert("thread_id", thread.to_string());
    map.insert("checkpoint_ns", ns);
    if let Some(parents) = parents.filter(|_| !ns.is_empty()) {
        let mut all = parents.clone();
        all.insert(ns, id.to_string());
        map.insert("checkpoint_map", Value::map(all));
    }
    Value::map(map)
}

/// The metadata of a checkpoint: what it stores, what every checkpoint has, and defaults of what it
/// does not store.
pub fn metadata(thread: ThreadId, checkpoint: &Checkpoint) -> Map {
    let stored = checkpoint.metadata.clone();
    let (run, source) = (checkpoint.run, checkpoint.source);
    metadata_of(thread, stored, run, source, checkpoint.step)
}

/// [`metadata`] of a checkpoint of which nothing else was read.
pub fn metadata_of(
    thread: ThreadId,
    mut metadata: Map,
    run: Option<RunId>,
    source: Source,
    step: i64,
) -> Map {
    if let Some(run) = run {
        let defaults = [
            ("created_by", Value::from(CREATED_BY)),
            ("run_attempt", Value::from(FIRST_ATTEMPT)),
        ];
        for (key, value) in defaults {
            if !metadata.contains_key(key) {
                metadata.insert(key, value);
            }
        }
        metadata.insert("run_id", run.to_string());
    }
    metadata.insert("thread_id", thread.to_string());
    metadata.insert("source", source.as_str());
    metadata.insert("step", step);
    match metadata.get("parents").and_then(Value::as_map).cloned() {
        None => metadata.insert("parents", Value::map(Map::new())),
        Some(parents) if parents.is_empty() => None,
        // Inside another graph: the checkpoints around it, and the namespace of the outermost graph
        // that is inside, which is what LangGraph shows at every depth.
        Some(parents) => {
            let own = metadata
                .get("langgraph_checkpoint_ns")
                .and_then(Value::as_str);
            let outermost = own.and_then(|ns| ns.split('|').next()).map(str::to_owned);
            if let Some(ns) = outermost {
                metadata.insert("checkpoint_ns", ns);
            }
            metadata.insert("checkpoint_map", Value::map(parents))
        }
    };
    metadata
}

/// A state with those inside its tasks, if they were requested.
pub fn thread_state(
    thread: ThreadId,
    graph: &Compiled,
    of: &ThreadState,
    with_subgraphs: bool,
) -> Value {
    let mut nested = HashMap::new();
    if with_subgraphs {
        for (ns, child) in graphs_inside(graph, &of.snapshot) {
            let inner = match of.subgraphs.get(ns) {
                Some(inner) => thread_state(thread, &child, inner, true),
                // It has not run yet.
                None => empty_state(thread, None),
            };
            nested.insert(ns.clone(), inner);
        }
    }
    state(thread, graph, &of.snapshot, &|ns| nested.get(ns).cloned())
}

/// A state. `nested` has the states inside its tasks, by namespace, if they were requested.
pub fn state(
    thread: ThreadId,
    graph: &Compiled,
    snapshot: &Snapshot,
    nested: &dyn Fn(&str) -> Option<Value>,
) -> Value {
    let checkpoint = &snapshot.checkpoint;
    let parents = checkpoint
        .metadata
        .get("parents")
        .and_then(Value::as_map)
        .cloned()
        .unwrap_or_default();
    let metadata = metadata(thread, checkpoint);
    let id = |id: Option<CheckpointId>| match id {
        Some(id) => address(thread, &snapshot.ns, id, Some(&parents)),
        None => Value::Null,
    };
    let mut map = Map::with_capacity(11);
    map.insert("values", displayed_values(graph, &snapshot.values));
    map.insert("next", names(&snapshot.next));
    map.insert(
        "tasks",
        Value::list(
            snapshot
                .tasks
                .iter()
                .map(|one| task(thread, graph, one, nested))
                .collect(),
        ),
    );
    map.insert("metadata", Value::map(metadata));
    map.insert("created_at", checkpoint.created_at.to_string());
    map.insert("checkpoint", id(Some(checkpoint.id)));
    map.insert("parent_checkpoint", id(checkpoint.parent));
    map.insert(
        "interrupts",
        Value::list(
            snapshot
                .interrupts()
                .iter()
                .map(Interrupt::to_value)
                .collect(),
        ),
    );
    map.insert("checkpoint_id", checkpoint.id.to_string());
    map.insert(
        "parent_checkpoint_id",
        checkpoint.parent.map(|id| id.to_string()),
    );
    Value::map(map)
}

/// The state of a thread on which nothing was stored, or at a checkpoint it does not have.
pub fn empty_state(thread: ThreadId, id: Option<&str>) -> Value {
    let checkpoint = match id {
        None => Value::Null,
        Some(id) => {
            let mut map = Map::new();
            map.insert("checkpoint_id", id);
            map.insert("thread_id", thread.to_string());
            Value::map(map)
        }
    };
    let mut map = Map::with_capacity(11);
    map.insert("values", Value::map(Map::new()));
    map.insert("next", Value::list(vec![]));
    map.insert("tasks", Value::list(vec![]));
    map.insert("metadata", Value::Null);
    map.insert("created_at", Value::Null);
    map.insert("checkpoint", checkpoint);
    map.insert("parent_checkpoint", Value::Null);
    map.insert("interrupts", Value::list(vec![]));
    map.insert("checkpoint_id", id);
    map.insert("parent_checkpoint_id", Value::Null);
    Value::map(map)
}

fn names(names: &[Arc<str>]) -> Value {
    Value::list(names.iter().map(|name| Value::Str(name.clone())).collect())
}

fn task(
    thread: ThreadId,
    graph: &Compiled,
    task: &TaskState,
    nested: &dyn Fn(&str) -> Option<Value>,
) -> Value {
    let state = task.child_ns.as_deref().and_then(nested);
    let checkpoint = match (&task.child_ns, &state) {
        (Some(ns), None) => {
            let mut map = Map::new();
            map.insert("thread_id", thread.to_string());
            map.insert("checkpoint_ns", Value::Str(ns.clone()));
            Value::map(map)
        }
        _ => Value::Null,
    };
    let mut map = Map::with_capacity(9);
    map.insert("id", task.id.to_string());
    map.insert("name", Value::Str(task.name.clone()));
    map.insert("path", task.path.clone());
    map.insert("error", task.error_text());
    map.insert(
        "interrupts",
        Value::list(task.interrupts.iter().map(Interrupt::to_value).collect()),
    );
    map.insert("checkpoint", checkpoint);
    map.insert("state", state);
    // The input is shown as it came.
    let result = task.result.as_ref().map(|result| match &*task.name {
        START => result.clone(),
        _ => displayed_values(graph, result),
    });
    map.insert("result", result);
    Value::map(map)
}
