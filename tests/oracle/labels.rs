//! Labels in place of ids, and values in the normal form of the expectations.

use std::collections::{BTreeMap, HashMap, HashSet};

use backstitch::{
    engine::{Interrupt, event::TaskState},
    id::{CheckpointId, TaskId, input_task_id, update_task_id},
    tree::ThreadState,
    value::Value,
};
use serde_json::{Value as Json, json};

/// Orders tasks of one namespace: checkpoint number, then path.
type TaskKey = (usize, String);

/// What is known of the ids of a thread.
#[derive(Default)]
pub struct Labels {
    checkpoints: HashMap<String, String>,
    /// Label to namespace and id.
    addresses: HashMap<String, (String, CheckpointId)>,
    tasks: HashMap<TaskId, String>,
    /// Task ids in namespaces.
    short: HashMap<String, String>,
    task_keys: HashMap<String, TaskKey>,
    namespaces: HashMap<String, String>,
    ns_by_label: HashMap<String, String>,
    ns_keys: HashMap<String, Vec<TaskKey>>,
    interrupts: HashMap<String, String>,
    interrupt_ids: HashMap<String, String>,
    interrupt_keys: HashMap<String, (Vec<TaskKey>, String)>,
    /// Error kinds of the case: their messages are compared.
    kinds: HashSet<String>,
}

impl Labels {
    pub fn new(kinds: HashSet<String>) -> Self {
        Self {
            kinds,
            ..Self::default()
        }
    }

    /// Gives labels to everything that is stored. Answers the states by namespace, oldest first.
    pub fn scan(&mut self, newest_first: Vec<ThreadState>) -> Vec<(String, Vec<ThreadState>)> {
        let mut by_ns: BTreeMap<(usize, String), Vec<ThreadState>> = BTreeMap::new();
        for state in newest_first.into_iter().rev() {
            let ns = state.snapshot.ns.to_string();
            by_ns
                .entry((ns.matches('|').count(), ns))
                .or_default()
                .push(state);
        }
        let by_ns: Vec<(String, Vec<ThreadState>)> = by_ns
            .into_iter()
            .map(|((_, ns), states)| (ns, states))
            .collect();
        for (ns, states) in &by_ns {
            self.namespace(ns);
            for (number, state) in states.iter().enumerate() {
                self.checkpoint(ns, number, state);
            }
        }
        let mut found: HashMap<String, (Vec<TaskKey>, String)> = HashMap::new();
        let mut order: Vec<String> = vec![];
        for (ns, states) in &by_ns {
            for (number, state) in states.iter().enumerate() {
                for write in &state.writes {
                    if &*write.channel != "__interrupt__" {
                        continue;
                    }
                    let path = match self.task_keys.get(&write.task.to_string()) {
                        Some((_, path)) => path.clone(),
                        None => write.path.to_string(),
                    };
                    let mut chain = self.ns_keys[ns].clone();
                    chain.push((number, path));
                    for interrupt in interrupts(&write.value) {
                        let key = (chain.clone(), interrupt.value.to_json());
                        let id = interrupt.id.to_string();
                        if !order.contains(&id) {
                            order.push(id.clone());
                        }
                        if found.get(&id).is_none_or(|old| key.0.len() >= old.0.len()) {
                            found.insert(id, key);
                        }
                    }
                }
            }
        }
        let mut new: Vec<&String> = order
            .iter()
            .filter(|id| !self.interrupts.contains_key(*id))
            .collect();
        new.sort_by_key(|id| found[*id].clone());
        for id in new {
            self.interrupt(id);
        }
        self.interrupt_keys = found;
        by_ns
    }

    fn namespace(&mut self, ns: &str) {
        let label = self.ns(ns);
        let levels = ns.split('|').filter(|level| !level.is_empty());
        let key = levels
            .map(|level| {
                let task = level.split_once(':').map_or("", |(_, task)| task);
                let known = self.task_keys.get(task).cloned();
                known.unwrap_or_else(|| (0, level.to_owned()))
            })
            .collect();
        self.ns_keys.insert(ns.to_owned(), key);
        self.ns_by_label.insert(label.clone(), ns.to_owned());
        self.namespaces.insert(ns.to_owned(), label);
    }

    fn checkpoint(&mut self, ns: &str, number: usize, state: &ThreadState) {
        let at = match ns {
            "" => String::new(),
            ns => format!("@{}", self.namespaces[ns]),
        };
        let id = state.snapshot.checkpoint.id;
        let label = format!("C{number}{at}");
        self.checkpoints.insert(id.to_string(), label.clone());
        self.addresses.insert(label, (ns.to_owned(), id));
        for task in &state.snapshot.tasks {
            let path = task.path.as_list().unwrap();
            let (mut short, mut full) = (format!("T{number}"), format!("T{number}.{}", task.name));
            let mut sort = format!("~__pregel_pull, {}", task.name);
            if path[0] == "__pregel_push" {
                let index = path[1].as_i64().unwrap();
                short = format!("{short}#{index}");
                full = format!("{full}#{index}");
                sort = format!("~__pregel_push, {index:010}");
            }
            self.tasks.insert(task.id, full + &at);
            self.short.insert(task.id.to_string(), short);
            self.task_keys.insert(task.id.to_string(), (number, sort));
        }
        for write in &state.writes {
            if write.task == TaskId::NULL || self.tasks.contains_key(&write.task) {
                continue;
            }
            let name = made_up(id, write.task).unwrap_or_else(|| of_path(&write.path));
            self.tasks
                .insert(write.task, format!("T{number}.{name}{at}"));
            let key = (number, write.path.to_string());
            self.task_keys.insert(write.task.to_string(), key);
        }
    }

    /// Label of a namespace.
    pub fn ns(&self, ns: &str) -> String {
        if let Some(known) = self.namespaces.get(ns) {
            return known.clone();
        }
        let levels = ns.split('|').map(|level| match level.split_once(':') {
            Some((name, task)) => {
                let short = self.short.get(task).map_or("T?", String::as_str);
                format!("{name}:{short}")
            }
            None => level.to_owned(),
        });
        levels.collect::<Vec<_>>().join("|")
    }

    /// The namespace of a label.
    pub fn real_ns(&self, label: &str) -> String {
        let known = self.ns_by_label.get(label).cloned();
        known.unwrap_or_else(|| label.to_owned())
    }

    /// Orders namespaces.
    pub fn ns_key(&self, ns: &str) -> (usize, Vec<TaskKey>) {
        let depth = ns.matches('|').count() + usize::from(!ns.is_empty());
        (depth, self.ns_keys[ns].clone())
    }

    /// Namespace and id of a checkpoint's label.
    pub fn address(&self, label: &str) -> (String, CheckpointId) {
        let found = self.addresses.get(label);
        found
            .unwrap_or_else(|| panic!("no checkpoint {label}"))
            .clone()
    }

    pub fn id(&self, id: Option<CheckpointId>) -> Json {
        id.map_or(Json::Null, |id| self.id_text(&id.to_string()))
    }

    pub fn id_text(&self, id: &str) -> Json {
        json!(self.checkpoints.get(id).map_or("C?", String::as_str))
    }

    pub fn task(&self, id: TaskId, name: &str) -> String {
        if id == TaskId::NULL {
            return "null".to_owned();
        }
        let known = self.tasks.get(&id).cloned();
        known.unwrap_or_else(|| format!("T?.{name}"))
    }

    pub fn task_key(&self, id: TaskId) -> TaskKey {
        let key = self.task_keys.get(&id.to_string()).cloned();
        key.unwrap_or_default()
    }

    fn interrupt(&mut self, id: &str) -> String {
        if let Some(label) = self.interrupts.get(id) {
            return label.clone();
        }
        let label = format!("I{}", self.interrupts.len());
        self.interrupts.insert(id.to_owned(), label.clone());
        self.interrupt_ids.insert(label.clone(), id.to_owned());
        label
    }

    /// The id of an interrupt's label; other texts stay.
    pub fn interrupt_id(&self, label: &str) -> String {
        let id = self.interrupt_ids.get(label).cloned();
        id.unwrap_or_else(|| label.to_owned())
    }

    /// Interrupts in task-path order.
    pub fn interrupts<'a>(&mut self, all: impl IntoIterator<Item = &'a Interrupt>) -> Vec<Json> {
        let mut all: Vec<&Interrupt> = all.into_iter().collect();
        all.sort_by_key(|one| {
            self.interrupt_keys
                .get(&*one.id)
                .cloned()
                .unwrap_or_default()
        });
        all.into_iter()
            .map(|one| {
                let id = self.interrupt(&one.id);
                json!({"id": id, "value": self.value(&one.value)})
            })
            .collect()
    }

    pub fn error(&self, class: &str, message: &str) -> Json {
        let message = self.kinds.contains(class).then_some(message);
        json!({"class": class, "message": message})
    }

    pub fn stored_error(&self, error: &Value) -> Json {
        let part = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
        self.error(part("error"), part("message"))
    }

    pub fn value(&self, value: &Value) -> Json {
        match value {
            Value::Str(text) => match self.checkpoints.get(&**text) {
                Some(label) => json!(label),
                None => json!(&**text),
            },
            Value::List(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Map(map) => {
                let form = map.get("type").and_then(Value::as_str);
                if let (2, Some("__overwrite__"), Some(value)) = (map.len(), form, map.get("value"))
                {
                    return json!({"$overwrite": self.value(value)});
                }
                map.iter()
                    .map(|(key, value)| (key.to_string(), self.value(value)))
                    .collect()
            }
            other => other.to_json_value(),
        }
    }

    /// A value stored in or written to `channel`.
    pub fn channel(&mut self, channel: &str, value: &Value) -> Json {
        let set = |value: &Value| match value.as_list() {
            Some(names) => {
                json!({"$set": names.iter().map(|one| self.value(one)).collect::<Vec<_>>()})
            }
            None => self.value(value),
        };
        let send = |value: &Value| match (value.get("node"), value.get("arg")) {
            (Some(node), Some(arg)) => json!({"$send": [self.value(node), self.value(arg)]}),
            _ => self.value(value),
        };
        match channel {
            "__pregel_tasks" => match value.as_list() {
                Some(sends) => sends.iter().map(send).collect(),
                None => send(value),
            },
            "__error__" => json!({"$error": self.stored_error(value)}),
            "__interrupt__" => {
                let all = interrupts(value);
                Json::Array(self.interrupts(&all))
            }
            join if join.starts_with("join:") => match value.as_list() {
                Some([names @ Value::List(_), finished @ Value::Bool(_)]) => {
                    json!([set(names), self.value(finished)])
                }
                _ => set(value),
            },
            _ => self.value(value),
        }
    }

    pub fn task_state(&mut self, task: &TaskState) -> Json {
        json!({
            "id": self.task(task.id, &task.name),
            "name": &*task.name,
            "error": task.error.as_ref().map(|error| self.stored_error(error)),
            "interrupts": self.interrupts(&task.interrupts),
            "result": task.result.as_ref().map(|result| self.value(result)),
            "state": task.child_ns.as_ref().map(|ns| json!({"ns": self.ns(ns)})),
        })
    }

    /// A state; `inside` says that the states of graphs inside were asked for.
    pub fn state(&mut self, state: &ThreadState, inside: bool) -> Json {
        let snapshot = &state.snapshot;
        let tasks: Vec<Json> = snapshot
            .tasks
            .iter()
            .map(|task| {
                let mut shown = self.task_state(task);
                if let Some(ns) = task.child_ns.as_ref().filter(|_| inside) {
                    shown["state"] = match state.subgraphs.get(ns) {
                        Some(child) => self.state(child, true),
                        None => nothing(),
                    };
                }
                shown
            })
            .collect();
        json!({
            "checkpoint": self.id(Some(snapshot.checkpoint.id)),
            "parent": self.id(snapshot.checkpoint.parent),
            "source": snapshot.checkpoint.source.as_str(),
            "step": snapshot.checkpoint.step,
            "next": names(&snapshot.next),
            "values": self.value(&snapshot.values),
            "tasks": tasks,
        })
    }

    /// A state with everything that is stored of it.
    pub fn record(&mut self, state: &ThreadState) -> Json {
        let mut record = self.state(state, false);
        let checkpoint = &state.snapshot.checkpoint;
        if !state.snapshot.ns.is_empty() {
            record["parents"] = self.parents(checkpoint.metadata.get("parents"));
        }
        record["channel_values"] = checkpoint
            .values
            .iter()
            .map(|(name, value)| (name.to_string(), self.channel(name, value)))
            .collect();
        record["channel_versions"] = counters(&checkpoint.versions);
        record["versions_seen"] = checkpoint
            .consumed_versions
            .iter()
            .map(|(node, versions)| (node.to_string(), counters(versions)))
            .collect();
        record["updated_channels"] = match &checkpoint.updated {
            Some(updated) => names(updated),
            None => Json::Null,
        };
        let mut writes: Vec<_> = state
            .writes
            .iter()
            .map(|write| {
                let path = if write.task == TaskId::NULL {
                    String::new()
                } else {
                    self.task_key(write.task).1
                };
                let label = self.task(write.task, "?");
                let shown = json!({
                    "task": label,
                    "idx": write.idx,
                    "channel": &*write.channel,
                    "value": self.channel(&write.channel, &write.value),
                });
                ((path, label, write.idx), shown)
            })
            .collect();
        writes.sort_by(|a, b| a.0.cmp(&b.0));
        record["writes"] = writes.into_iter().map(|(_, shown)| shown).collect();
        record
    }

    pub fn parents(&self, parents: Option<&Value>) -> Json {
        let parents = parents.and_then(Value::as_map).cloned().unwrap_or_default();
        parents
            .iter()
            .map(|(ns, id)| (self.ns(ns), self.id_text(id.as_str().unwrap_or_default())))
            .collect()
    }
}

/// The state of a graph that never stored anything.
pub fn nothing() -> Json {
    json!({
        "checkpoint": null, "parent": null, "source": null, "step": null,
        "next": [], "values": {}, "tasks": [],
    })
}

pub fn names(names: &[std::sync::Arc<str>]) -> Json {
    names.iter().map(|name| json!(&**name)).collect()
}

fn counters(versions: &backstitch::checkpoint::Versions) -> Json {
    versions
        .iter()
        .map(|(name, version)| (name.to_string(), json!(version.counter)))
        .collect()
}

fn interrupts(stored: &Value) -> Vec<Interrupt> {
    let all = stored.as_list().unwrap_or_default();
    all.iter().filter_map(Interrupt::from_value).collect()
}

/// The name of a task id that a state edit made up.
fn made_up(checkpoint: CheckpointId, task: TaskId) -> Option<String> {
    if task == input_task_id(checkpoint) {
        return Some("input".to_owned());
    }
    (0..8)
        .find(|index| task == update_task_id(checkpoint, *index))
        .map(|index| format!("update#{index}"))
}

/// The name of a task that is none of its checkpoint as stored: a command made it.
fn of_path(path: &str) -> String {
    let parts: Vec<&str> = path.trim_start_matches('~').split(", ").collect();
    match parts.as_slice() {
        ["__pregel_pull", name, ..] => (*name).to_owned(),
        ["__pregel_push", index, ..] => format!("#{}", index.parse::<u64>().unwrap_or(0)),
        _ => "?".to_owned(),
    }
}
