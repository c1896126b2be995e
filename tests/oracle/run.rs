//! Performing the calls of a case and bringing their outcome into the form of its expectations.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use backstitch::{
    engine::{self, Body, ClientCommand, Durability, Event, Input, StateUpdate, Tolerance},
    extract::RunConfig,
    graph::{Compiled, Goto},
    id::{CheckpointId, ThreadId},
    local::{Error, History, Local, RunOptions, Thread},
    tree::ThreadState,
    value::{Map, Value},
};
use serde_json::{Value as Json, json};

use super::{
    events::{Recorder, in_task_order, shown},
    graph::{breakpoints, build},
    labels::{Labels, nothing},
    lang::{World, text},
};

/// What a call did, before its ids have labels.
enum Raw {
    Run(Vec<Event>, Option<engine::Error>),
    Checkpoint(CheckpointId),
    State(Option<Box<ThreadState>>, bool),
    History(Vec<ThreadState>),
}

/// Why a call was refused: class and message.
type Refused = (String, String);

struct Runner {
    world: Arc<World>,
    graph: Arc<Compiled>,
    /// `None` for a case without storage.
    thread: Option<Thread>,
    labels: Labels,
    stored: Vec<(String, Vec<ThreadState>)>,
}

/// Runs a case; the outcome has the form of its `expect`.
pub async fn run(case: &Json, local: &Local) -> Json {
    let world = Arc::new(World::default());
    let graph = build(&case["graph"], &world, "");
    let stores = case["saver"] != "none";
    let mut kinds = HashSet::from(["Boom".to_owned()]);
    find_kinds(&case["graph"], &mut kinds);
    let mut runner = Runner {
        thread: stores.then(|| local.thread_with(&graph, ThreadId::mint())),
        world,
        graph,
        labels: Labels::new(kinds),
        stored: vec![],
    };
    let mut calls = vec![];
    for call in case["calls"].as_array().unwrap() {
        calls.push(runner.call(call).await);
    }
    let mut namespaces = std::mem::take(&mut runner.stored);
    namespaces.sort_by_key(|(ns, _)| runner.labels.ns_key(ns));
    let mut r#final = serde_json::Map::new();
    for (ns, states) in namespaces {
        let records = states.iter().map(|state| runner.labels.record(state));
        let records: Json = records.collect();
        r#final.insert(runner.labels.ns(&ns), records);
    }
    json!({"calls": calls, "final": r#final})
}

/// Error kinds that the graph may raise.
fn find_kinds(part: &Json, kinds: &mut HashSet<String>) {
    match part {
        Json::Object(map) => {
            if map.contains_key("error")
                && let Some(kind) = map.get("kind").and_then(Json::as_str)
            {
                kinds.insert(kind.to_owned());
            }
            map.values().for_each(|part| find_kinds(part, kinds));
        }
        Json::Array(items) => items.iter().for_each(|part| find_kinds(part, kinds)),
        _ => {}
    }
}

impl Runner {
    async fn call(&mut self, call: &Json) -> Json {
        let kind = text(&call["call"]);
        let before = self.world.counts();
        let done = self.perform(kind, call).await;
        self.scan().await;
        let mut out = json!({"call": kind, "status": "ok"});
        let mut refused = None;
        match done {
            Ok(Raw::Run(events, error)) => {
                let modes = modes(call);
                if modes.is_empty() {
                    if error.is_none() {
                        out["result"] = self.result(&events);
                    }
                } else {
                    let sorted = in_task_order(events, "");
                    out["events"] = shown(&sorted, &modes, &mut self.labels);
                }
                refused = error.map(|error| (error.class().to_owned(), error.message()));
            }
            Ok(Raw::Checkpoint(id)) => out["checkpoint"] = self.labels.id(Some(id)),
            Ok(Raw::State(state, inside)) => {
                out["state"] = match &state {
                    Some(state) => self.labels.state(state, inside),
                    None => nothing(),
                };
            }
            Ok(Raw::History(states)) => {
                let rows = states.iter().map(|state| {
                    let shown = self.labels.state(state, false);
                    json!({
                        "checkpoint": shown["checkpoint"], "source": shown["source"],
                        "step": shown["step"], "next": shown["next"],
                    })
                });
                out["history"] = rows.collect();
            }
            Err(error) => refused = Some(error),
        }
        if let Some((class, message)) = refused {
            out["status"] = json!("error");
            out["error"] = self.labels.error(&class, &message);
        }
        if !matches!(kind, "get_state" | "get_history") {
            let counts = self.world.counts();
            let ran: BTreeMap<_, _> = counts
                .into_iter()
                .map(|(path, count)| {
                    let old = before.get(&path).copied().unwrap_or(0);
                    (path, count - old)
                })
                .filter(|(_, count)| *count > 0)
                .collect();
            out["executed"] = json!(ran);
            self.stands(&mut out).await;
        }
        out
    }

    /// What an invoke answers: the last values, and the questions asked.
    fn result(&mut self, events: &[Event]) -> Json {
        let mut latest = Json::Null;
        let mut asked = vec![];
        for event in events {
            match &event.body {
                Body::Values(values) | Body::ValuesInterrupt(values, _) => {
                    latest = self.labels.value(values);
                }
                Body::UpdateInterrupt(more) => asked.extend(more.iter().cloned()),
                _ => {}
            }
        }
        if !asked.is_empty() {
            if latest.is_null() {
                latest = json!({});
            }
            latest["__interrupt__"] = self.labels.interrupts(&asked).into();
        }
        latest
    }

    async fn scan(&mut self) {
        let Some(thread) = &self.thread else { return };
        let all = History {
            ns: None,
            ..History::default()
        };
        let states = thread.history(all).await.unwrap();
        self.stored = self.labels.scan(states);
    }

    /// How the thread stands after a call.
    async fn stands(&mut self, out: &mut Json) {
        let Some(thread) = &self.thread else { return };
        let Ok(state) = thread.state(&"".into(), None, false).await else {
            return;
        };
        let Some(state) = state else {
            out["head"] = Json::Null;
            out["next"] = json!([]);
            out["pending"] = json!([]);
            return;
        };
        let shown = self.labels.state(&state, false);
        out["head"] = shown["checkpoint"].clone();
        out["next"] = shown["next"].clone();
        let mut tasks: Vec<_> = state.snapshot.tasks.iter().collect();
        tasks.sort_by_key(|task| self.labels.task_key(task.id));
        let mut pending = vec![];
        for task in tasks {
            for mut asked in self.labels.interrupts(&task.interrupts) {
                asked["task"] = json!(self.labels.task(task.id, &task.name));
                pending.push(asked);
            }
        }
        out["pending"] = json!(pending);
    }

    async fn perform(&self, kind: &str, call: &Json) -> Result<Raw, Refused> {
        let input = match kind {
            "invoke" if call["input"].is_null() => Some(Input::Null),
            "invoke" => Some(Input::Value(Value::from(call["input"].clone()))),
            "replay" => Some(Input::Null),
            "resume" | "command" => Some(Input::Command(self.command(call))),
            _ => None,
        };
        if let Some(input) = input {
            return self.invoke(call, input).await;
        }
        let Some(thread) = &self.thread else {
            return Err(("ValueError".to_owned(), "No checkpointer set".to_owned()));
        };
        let mut ns: Arc<str> = "".into();
        if let Some(label) = call["ns"].as_str() {
            ns = self.labels.real_ns(label).into();
        }
        let mut at = None;
        if let Some(label) = call["at"].as_str() {
            let (found, id) = self.labels.address(label);
            ns = found.into();
            at = Some(id);
        }
        let done = match kind {
            "update_state" => {
                let update = state_update(call);
                thread
                    .update_state(&ns, at, update)
                    .await
                    .map(Raw::Checkpoint)
            }
            "bulk_update_state" => {
                let steps = call["supersteps"].as_array().unwrap().iter();
                let steps = steps
                    .map(|step| step.as_array().unwrap().iter().map(state_update).collect())
                    .collect();
                let done = thread.bulk_update_state(&ns, at, steps).await;
                done.map(Raw::Checkpoint)
            }
            "copy" => {
                let updates = call["updates"].as_array().cloned().unwrap_or_default();
                let updates = updates
                    .iter()
                    .map(|update| {
                        let values = Value::from(update["values"].clone());
                        (values, text(&update["as_node"]).into())
                    })
                    .collect();
                thread.copy(&ns, at, updates).await.map(Raw::Checkpoint)
            }
            "get_state" => {
                let inside = call["subgraphs"] == true;
                let state = thread.state(&ns, at, inside).await;
                state.map(|state| Raw::State(state.map(Box::new), inside))
            }
            "get_history" => {
                let page = History {
                    ns: Some(ns),
                    before: call["before"]
                        .as_str()
                        .map(|label| self.labels.address(label).1),
                    at,
                    metadata: match call.get("filter") {
                        Some(filter) => Value::from(filter.clone()).as_map().cloned(),
                        None => None,
                    },
                    limit: call["limit"]
                        .as_u64()
                        .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap()),
                };
                thread.history(page).await.map(Raw::History)
            }
            other => panic!("unknown call {other}"),
        };
        done.map_err(|error| match error {
            Error::Engine(error) => (error.class().to_owned(), error.message()),
            Error::NoSubgraph(_) => ("ValueError".to_owned(), error.to_string()),
            other => ("StorageError".to_owned(), other.to_string()),
        })
    }

    async fn invoke(&self, call: &Json, input: Input) -> Result<Raw, Refused> {
        let mut wanted = modes(call);
        if wanted.is_empty() {
            wanted = vec!["values".to_owned(), "updates".to_owned()];
        }
        let sink = Arc::new(Recorder::new(&wanted, call["subgraphs"] == true));
        let mut metadata = Map::new();
        if let Some(run) = call["run_id"].as_str() {
            metadata.insert("run_id", run);
        }
        let at = call["at"].as_str().map(|label| self.labels.address(label));
        let options = RunOptions {
            config: RunConfig {
                metadata,
                ..RunConfig::default()
            },
            recursion_limit: call["recursion_limit"]
                .as_u64()
                .map(|limit| u32::try_from(limit).unwrap()),
            // A run is a run of the root graph: an address inside it does not count.
            at: at.filter(|(ns, _)| ns.is_empty()).map(|(_, id)| id),
            interrupt_before: call.get("interrupt_before").map(breakpoints),
            interrupt_after: call.get("interrupt_after").map(breakpoints),
            durability: match call["durability"].as_str() {
                Some("sync") => Durability::Sync,
                Some("exit") => Durability::Exit,
                _ => Durability::Async,
            },
            sink: sink.clone(),
            tolerance: Tolerance::LANGGRAPH,
            ..RunOptions::default()
        };
        let finished = match &self.thread {
            Some(thread) => match thread.run(input, options).await {
                Ok(finished) => finished,
                Err(error) => return Err(("StorageError".to_owned(), error.to_string())),
            },
            None => Local::run_once(&self.graph, input, options).await,
        };
        Ok(Raw::Run(sink.take(), finished.result.err()))
    }

    fn command(&self, call: &Json) -> ClientCommand {
        let resume = match call.get("answers") {
            Some(Json::Object(answers)) => Some(Value::map(
                answers
                    .iter()
                    .map(|(label, answer)| {
                        let id = self.labels.interrupt_id(label);
                        (id.into(), Value::from(answer.clone()))
                    })
                    .collect(),
            )),
            _ => call.get("value").cloned().map(Value::from),
        };
        let update = call["update"].as_object().cloned().unwrap_or_default();
        let goto = match &call["goto"] {
            Json::Null => vec![],
            Json::Array(all) => all.clone(),
            one => vec![one.clone()],
        };
        ClientCommand {
            resume,
            update: update
                .into_iter()
                .map(|(name, value)| (name.into(), Value::from(value)))
                .collect(),
            goto: goto
                .into_iter()
                .map(|goto| match &goto {
                    Json::String(node) => Goto {
                        node: node.as_str().into(),
                        arg: None,
                    },
                    send => Goto {
                        node: text(&send["send"]).into(),
                        arg: Some(Value::from(send["arg"].clone())),
                    },
                })
                .collect(),
            to_parent: call["graph"] == "parent",
        }
    }
}

fn modes(call: &Json) -> Vec<String> {
    let modes = call["modes"].as_array().cloned().unwrap_or_default();
    modes.iter().map(|mode| text(mode).to_owned()).collect()
}

fn state_update(update: &Json) -> StateUpdate {
    StateUpdate {
        values: match &update["values"] {
            Json::Null => None,
            values => Some(Value::from(values.clone())),
        },
        as_node: update["as_node"].as_str().map(Into::into),
        ..StateUpdate::default()
    }
}
