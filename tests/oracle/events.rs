//! The events of a run: recorded, brought into the order of the expectations, and shown in the
//! stream modes a call asked for.

use backstitch::{
    engine::{Body, Event, Kind, Sink, event::TaskInfo},
    id::{TaskId, update_task_id},
};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use super::labels::{Labels, names};

/// Keeps all events of the wanted kinds.
pub struct Recorder {
    kinds: Vec<Kind>,
    inside: bool,
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    /// `modes` are stream modes; tasks are always recorded, as they order the rest.
    pub fn new(modes: &[String], inside: bool) -> Self {
        let mut kinds = vec![Kind::Tasks];
        for mode in modes {
            match mode.as_str() {
                "values" => kinds.push(Kind::Values),
                "updates" => kinds.push(Kind::Updates),
                "custom" => kinds.push(Kind::Custom),
                "checkpoints" | "debug" => kinds.push(Kind::Checkpoints),
                _ => {}
            }
        }
        Self {
            kinds,
            inside,
            events: Mutex::default(),
        }
    }

    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock())
    }
}

impl Sink for Recorder {
    fn wants(&self, kind: Kind, ns: &str) -> bool {
        (ns.is_empty() || self.inside) && self.kinds.contains(&kind)
    }

    fn emit(&self, event: Event) {
        self.events.lock().push(event);
    }
}

/// What one superstep told, sorted by task.
#[derive(Default)]
struct Step {
    starts: Vec<Event>,
    tasks: Vec<(TaskId, String)>,
    saved: Vec<Event>,
    /// What its graphs told and what it emitted itself, by task.
    inside: Vec<Vec<Event>>,
    ends: Vec<Vec<Event>>,
    /// Results that were told and whose task's end comes next.
    loose: Vec<Event>,
}

impl Step {
    fn started(&mut self, task: &TaskInfo, event: Event) {
        self.starts.push(event);
        self.tasks.push((task.id, task.name.to_string()));
        self.inside.push(vec![]);
        self.ends.push(vec![]);
    }

    fn has_results(&self) -> bool {
        let any = |all: &Vec<Vec<Event>>| all.iter().any(|events| !events.is_empty());
        !self.saved.is_empty() || any(&self.inside) || any(&self.ends)
    }

    fn by_id(&self, id: &str) -> Option<usize> {
        self.tasks
            .iter()
            .position(|(task, _)| task.to_string() == id)
    }

    /// The first task of this name that has not ended.
    fn by_name(&self, name: &str) -> usize {
        let mut named = (0..self.tasks.len()).filter(|at| self.tasks[*at].1 == name);
        named
            .clone()
            .find(|at| self.ends[*at].is_empty())
            .or_else(|| named.next())
            .unwrap_or(0)
    }

    fn flush(&mut self, ns: &str, out: &mut Vec<Event>) {
        let step = std::mem::take(self);
        out.extend(step.starts);
        out.extend(step.saved);
        for (inside, ends) in step.inside.into_iter().zip(step.ends) {
            // A task that emits does not run a graph at the same time.
            for events in inside.chunk_by(|a, b| (*a.ns == *ns) == (*b.ns == *ns)) {
                if *events[0].ns == *ns {
                    out.extend_from_slice(events);
                    continue;
                }
                for (child, events) in graphs(events.to_vec(), ns) {
                    out.extend(in_task_order(events, &child));
                }
            }
            out.extend(ends);
        }
        out.extend(step.loose);
    }
}

/// The namespace directly inside `ns` that an event's namespace lies in. That of a graph that
/// keeps its state per thread names no tasks, so levels are counted.
fn directly_inside(of: &str, ns: &str) -> String {
    let above = if ns.is_empty() { 0 } else { levels(ns).len() };
    let levels = levels(of);
    let calls = levels.iter().skip(above + 1);
    let calls = calls.take_while(|level| level.parse::<u32>().is_ok());
    levels[..above + 1 + calls.count()].join("|")
}

fn levels(ns: &str) -> Vec<&str> {
    ns.split('|').collect()
}

/// Whether two namespaces may be one, where either does not name a task.
fn may_be_one(a: &str, b: &str) -> bool {
    let node = |level: &str| level.split(':').next().unwrap_or_default().to_owned();
    let same = |(a, b): (&&str, &&str)| {
        a == b || (!(a.contains(':') && b.contains(':')) && node(a) == node(b))
    };
    let (a, b) = (levels(a), levels(b));
    a.len() == b.len() && a.iter().zip(&b).all(same)
}

/// Events of a task's graphs, one list for each call.
fn graphs(events: Vec<Event>, ns: &str) -> Vec<(String, Vec<Event>)> {
    let mut all: Vec<(String, Vec<Event>)> = vec![];
    for event in events {
        let child = directly_inside(&event.ns, ns);
        // A graph deeper down whose namespace names no tasks runs inside one that does.
        let deeper = child.len() < event.ns.len();
        match all.last_mut() {
            Some((last, events)) if *last == child || (deeper && may_be_one(last, &child)) => {
                events.push(event);
            }
            _ => all.push((child, vec![event])),
        }
    }
    all
}

/// Sorts the events of each superstep of the graph in `ns` by task.
pub fn in_task_order(events: Vec<Event>, ns: &str) -> Vec<Event> {
    let (mut out, mut step) = (vec![], Step::default());
    for event in events {
        if *event.ns != *ns {
            let child = directly_inside(&event.ns, ns);
            let level = child
                .rsplit('|')
                .find(|level| level.parse::<u32>().is_err());
            let level = level.unwrap_or_default().to_owned();
            let (name, id) = level.split_once(':').unwrap_or((&level, ""));
            let task = step.by_id(id).unwrap_or_else(|| step.by_name(name));
            match step.inside.get_mut(task) {
                Some(inside) => inside.push(event),
                None => out.push(event),
            }
            continue;
        }
        match event.body.clone() {
            Body::TaskStart { task, .. } => {
                if step.has_results() {
                    step.flush(ns, &mut out);
                }
                step.started(&task, event);
            }
            Body::Update { cached: true, .. } => step.saved.push(event),
            Body::UpdateInterrupt(asked) if asked.is_empty() => {
                step.flush(ns, &mut out);
                out.push(event);
            }
            Body::Update { .. } | Body::UpdateInterrupt(_) | Body::ValuesInterrupt(..) => {
                step.loose.push(event);
            }
            Body::TaskEnd { task, .. } => {
                let at = step.by_id(&task.id.to_string()).unwrap_or(0);
                let loose = std::mem::take(&mut step.loose);
                match step.ends.get_mut(at) {
                    Some(ends) => {
                        ends.extend(loose);
                        ends.push(event);
                    }
                    None => {
                        out.extend(loose);
                        out.push(event);
                    }
                }
            }
            Body::Custom { task, .. } => {
                let at = step.by_id(&task.to_string());
                match at.and_then(|at| step.inside.get_mut(at)) {
                    Some(inside) => inside.push(event),
                    None => out.push(event),
                }
            }
            _ => {
                step.flush(ns, &mut out);
                out.push(event);
            }
        }
    }
    step.flush(ns, &mut out);
    out
}

/// The events as the stream modes of a call show them.
pub fn shown(events: &[Event], modes: &[String], labels: &mut Labels) -> Json {
    let mut all = vec![];
    for event in events {
        let Some((mode, data)) = data(event, labels) else {
            continue;
        };
        let mut push = |mode: &str, data: Json| {
            if !modes.iter().any(|wanted| wanted == mode) {
                return;
            }
            let mut shown = json!({"mode": mode});
            if !event.ns.is_empty() {
                shown["ns"] = json!(labels.ns(&event.ns));
            }
            shown["data"] = data;
            all.push(shown);
        };
        let debug = match &event.body {
            Body::TaskStart { task, .. } => Some(("task", task.step)),
            Body::TaskEnd { task, .. } => Some(("task_result", task.step)),
            Body::Checkpoint(info) => Some(("checkpoint", info.step)),
            _ => None,
        };
        push(mode, data.clone());
        if let Some((kind, step)) = debug {
            push(
                "debug",
                json!({"step": step, "type": kind, "payload": data}),
            );
        }
    }
    Json::Array(all)
}

fn data(event: &Event, labels: &mut Labels) -> Option<(&'static str, Json)> {
    Some(match &event.body {
        Body::Values(values) => ("values", labels.value(values)),
        Body::ValuesInterrupt(values, asked) => {
            let mut shown = labels.value(values);
            shown["__interrupt__"] = labels.interrupts(asked).into();
            ("values", shown)
        }
        Body::Update {
            node,
            update,
            cached,
        } => {
            let mut shown = json!({&**node: labels.value(update)});
            if *cached {
                shown["__metadata__"] = json!({"cached": true});
            }
            ("updates", shown)
        }
        Body::UpdateInterrupt(asked) => {
            let asked = labels.interrupts(asked);
            ("updates", json!({"__interrupt__": asked}))
        }
        Body::Custom { value, .. } => ("custom", labels.value(value)),
        Body::Message { .. } | Body::Callback(_) => return None,
        Body::TaskStart { task, input } => (
            "tasks",
            json!({
                "id": labels.task(task.id, &task.name),
                "name": &*task.name,
                "phase": "start",
                "input": labels.value(input),
                "triggers": names(&task.triggers),
            }),
        ),
        Body::TaskEnd {
            task,
            error,
            result,
            interrupts,
        } => (
            "tasks",
            json!({
                "id": labels.task(task.id, &task.name),
                "name": &*task.name,
                "phase": "end",
                "error": error.as_ref().map(|error| labels.stored_error(error)),
                "result": labels.value(result),
                "interrupts": labels.interrupts(interrupts),
            }),
        ),
        Body::Checkpoint(info) => {
            let tasks: Vec<Json> = info
                .tasks
                .iter()
                .map(|task| {
                    let mut shown = labels.task_state(task);
                    // An event tells either the error, or a result that is not empty.
                    if !shown["error"].is_null() {
                        shown["interrupts"] = json!([]);
                        shown["result"] = Json::Null;
                    }
                    if shown["result"] == json!({}) {
                        shown["result"] = Json::Null;
                    }
                    shown
                })
                .collect();
            let parents = backstitch::value::Value::map(info.parents.clone());
            (
                "checkpoints",
                json!({
                    "checkpoint": labels.id(Some(info.id)),
                    "parent": labels.id(info.parent),
                    "metadata": {
                        "source": info.source.as_str(),
                        "step": info.step,
                        "parents": labels.parents(Some(&parents)),
                    },
                    "values": labels.value(&info.values),
                    "next": names(&info.next),
                    "tasks": tasks,
                }),
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn event(ns: &str, node: &str, ends: bool) -> Event {
        let info = Arc::new(TaskInfo {
            id: update_task_id("1f1e52cd-e998-68fe-bfff-bc9763962222".parse().unwrap(), {
                usize::from(node.as_bytes()[0])
            }),
            name: node.into(),
            triggers: Arc::new([]),
            path: Default::default(),
            ns: ns.into(),
            step: 1,
        });
        let body = if !ends {
            Body::TaskStart {
                task: info,
                input: Default::default(),
            }
        } else {
            Body::TaskEnd {
                task: info,
                error: None,
                result: Default::default(),
                interrupts: vec![],
            }
        };
        let ns = ns.into();
        Event { ns, body }
    }

    /// `d` and `g` run at once in the graph of task `c`; `g` runs a graph that keeps its state
    /// per thread.
    #[test]
    fn events_of_a_graph_without_tasks_in_its_namespace_stay_with_their_task() {
        let sorted = [
            event("", "c", false),
            event("c:1", "d", false),
            event("c:1", "g", false),
            event("c:1", "d", true),
            event("c|g", "x", false),
            event("c|g", "x", true),
            event("c:1", "g", true),
            event("", "c", true),
        ];
        let told = |events: &[Event]| {
            let line = |event: &Event| format!("{} {:?}", event.ns, event.body);
            events.iter().map(line).collect::<Vec<_>>()
        };
        for d_ends in [4, 5] {
            let mut mixed = sorted.to_vec();
            let end = mixed.remove(3);
            mixed.insert(d_ends, end);
            assert_eq!(told(&in_task_order(mixed, "")), told(&sorted), "{d_ends}");
        }
    }
}
