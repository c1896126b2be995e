//! Mode `events`: what clients are told of graphs, nodes, models and tools, compared with recordings of
//! LangGraph's own server for the same graphs (langgraph-api 0.16.7, langgraph 1.2.22).
//!
//! Not compared: ids but for which are equal, the order of what runs side by side, versions and
//! addresses of the server. Conditional edges are no events here, so the recordings are without them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use test_support::client::{Client, Event};
use test_support::on_both_storages;
use test_support::place::{Place, serve};

on_both_storages!(
    callback_events_are_those_of_the_reference,
    a_late_reader_gets_the_same_callback_events_from_the_log,
);

/// One request per line, followed by one line per event.
const RECORDED: &str = include_str!("callbacks/recorded.jsonl");

/// Cases that go on where the case before them stopped.
const CONTINUES: &[&str] = &["approve_resume", "subgraph_resume", "null", "goto"];

struct Case {
    name: String,
    request: Value,
    events: Vec<Value>,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = vec![];
    for line in RECORDED.lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if let Some(name) = line["case"].as_str() {
            cases.push(Case {
                name: name.to_owned(),
                request: line["request"].take(),
                events: vec![],
            });
        } else {
            cases.last_mut().unwrap().events.push(line);
        }
    }
    cases
}

/// A value without the ids of its messages.
fn without_ids(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without_ids).collect(),
        Value::Object(map) => {
            let is_message = map.contains_key("type") && map.contains_key("content");
            let fields = map.iter();
            let fields = fields.filter(|(key, _)| !(is_message && *key == "id"));
            let fields = fields.map(|(key, value)| (key.clone(), without_ids(value)));
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

/// Numbers for ids, in the order in which they come up.
#[derive(Default)]
struct Labels(BTreeMap<String, usize>);

impl Labels {
    fn of(&mut self, id: &Value) -> usize {
        let next = self.0.len();
        let id = id.as_str().unwrap().to_owned();
        *self.0.entry(id).or_insert(next)
    }
}

/// An event in the form of the recordings.
fn shown(event: &Value, labels: &mut Labels) -> Value {
    let metadata = event["metadata"].as_object().unwrap();
    let depth = |key: &str| {
        let ns = metadata.get(key)?.as_str()?;
        Some(ns.matches('|').count())
    };
    let run = labels.of(&event["run_id"]);
    let parents = event["parent_ids"].as_array().unwrap();
    let parents: Vec<usize> = parents.iter().map(|id| labels.of(id)).collect();
    let mut all = Map::new();
    for (key, value) in [
        ("event", event["event"].clone()),
        ("name", event["name"].clone()),
        ("run", json!(run)),
        ("parents", json!(parents)),
        ("tags", event["tags"].clone()),
        ("step", json!(metadata.get("langgraph_step"))),
        ("node", json!(metadata.get("langgraph_node"))),
        ("depth", json!(depth("langgraph_checkpoint_ns"))),
        ("around", json!(depth("checkpoint_ns"))),
        ("provider", json!(metadata.get("ls_provider"))),
        ("data", without_ids(&event["data"])),
    ] {
        if !value.is_null() {
            all.insert(key.to_owned(), value);
        }
    }
    if event["event"].as_str().unwrap().ends_with("_start") {
        let keys: BTreeSet<&str> = metadata.keys().map(String::as_str).collect();
        all.insert("keys".to_owned(), json!(keys));
    }
    Value::Object(all)
}

/// The events of each thing that ran, by its number: what runs side by side has no order.
fn by_run(events: &[Value]) -> BTreeMap<u64, Vec<&Value>> {
    let mut runs: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for event in events {
        let run = event["run"].as_u64().unwrap();
        runs.entry(run).or_default().push(event);
    }
    runs
}

/// Everything happens after what it is a part of has started and before that has ended.
fn check_nesting(name: &str, events: &[Value]) {
    let mut open = BTreeSet::new();
    for event in events {
        let (run, kind) = (event["run"].as_u64().unwrap(), event["event"].as_str());
        let kind = kind.unwrap();
        for parent in event["parents"].as_array().unwrap() {
            let parent = parent.as_u64().unwrap();
            assert!(open.contains(&parent), "{name}: {event} outside {parent}");
        }
        if kind.ends_with("_start") {
            assert!(open.insert(run), "{name}: {event} starts twice");
        } else {
            assert!(open.contains(&run), "{name}: {event} has not started");
        }
        if kind.ends_with("_end") {
            open.remove(&run);
        }
    }
}

fn new_thread(client: &Client) -> String {
    let thread = client.post("/threads", &json!({})).json();
    thread["thread_id"].as_str().unwrap().to_owned()
}

fn stream(client: &Client, thread: &str, request: &Value) -> Vec<Event> {
    let path = format!("/threads/{thread}/runs/stream");
    let body = request.to_string();
    let mut open = client.open("POST", &path, &[], body.as_bytes());
    assert_eq!(open.status, 200, "{request}");
    std::iter::from_fn(|| open.event()).collect()
}

fn callbacks(events: &[Event]) -> Vec<Value> {
    let mut labels = Labels::default();
    let events = events.iter().filter(|event| event.name == "events");
    events.map(|one| shown(&one.data, &mut labels)).collect()
}

fn callback_events_are_those_of_the_reference(place: &Place) {
    let (_server, client) = serve(place);
    let mut thread = String::new();
    for case in cases() {
        if !CONTINUES.contains(&case.name.as_str()) {
            thread = new_thread(&client);
        }
        let mut request = case.request.clone();
        request["stream_mode"] = json!(["events"]);
        let events = callbacks(&stream(&client, &thread, &request));
        check_nesting(&case.name, &events);
        let (ours, theirs) = (by_run(&events), by_run(&case.events));
        let numbers = |all: &BTreeMap<u64, _>| all.keys().copied().collect::<Vec<_>>();
        assert_eq!(numbers(&ours), numbers(&theirs), "{}", case.name);
        for (run, expected) in theirs {
            for (ours, theirs) in ours[&run].iter().zip(&expected) {
                assert_eq!(ours, theirs, "{}", case.name);
            }
            assert_eq!(ours[&run].len(), expected.len(), "{}: {run}", case.name);
        }
    }
}

fn a_late_reader_gets_the_same_callback_events_from_the_log(place: &Place) {
    let (_server, client) = serve(place);
    let thread = new_thread(&client);
    let request = json!({
        "assistant_id": "chatsub",
        "input": {"messages": [{"role": "user", "content": "hello"}]},
        "stream_mode": ["events", "values"],
        "stream_resumable": true,
    });
    let first = stream(&client, &thread, &request);
    let run = first[0].data["run_id"].as_str().unwrap();
    let path = format!("/threads/{thread}/runs/{run}/stream");
    let mut open = client.open("GET", &path, &[("last-event-id", "-1")], b"");
    let later: Vec<Event> = std::iter::from_fn(|| open.event()).collect();
    assert!(first.iter().any(|event| event.name == "events"));
    assert_eq!(first, later);
}
