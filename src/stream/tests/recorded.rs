//! Recordings of LangGraph's server: from each recorded event the engine's event behind it is
//! made, and encoding that must give the recorded event again.

use std::{collections::HashMap, sync::Arc};

use super::{drain, event, graph, options, parse};
use crate::{
    checkpoint::Source,
    engine::{
        Body, Event, Interrupt, Sink,
        event::{CheckpointInfo, TaskInfo, TaskState},
    },
    extract::RunConfig,
    id::TaskId,
    message,
    stream::{Mode, Publisher, Since},
    value::{Map, Value},
};

fn read(text: &str) -> Vec<(String, Value)> {
    text.lines()
        .map(|line| {
            let (name, data) = line.split_once(' ').unwrap();
            (
                name.into(),
                Value::from_json_slice(data.as_bytes()).unwrap(),
            )
        })
        .collect()
}

fn text(value: &Value, key: &str) -> Arc<str> {
    value.get(key).unwrap().as_str().unwrap().into()
}

fn number(value: &Value, key: &str) -> i64 {
    value.get(key).unwrap().as_i64().unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).unwrap().as_list().unwrap()
}

fn texts(value: &Value, key: &str) -> Vec<Arc<str>> {
    let items = list(value, key).iter();
    items.map(|item| item.as_str().unwrap().into()).collect()
}

fn unless_null(value: &Value, key: &str) -> Option<Value> {
    value.get(key).filter(|value| !value.is_null()).cloned()
}

/// A state as it is stored: messages without the fields that say nothing.
fn stored(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(messages) = value.get("messages") {
        let messages = message::coerce_list(messages).unwrap();
        let messages = messages.into_iter().collect();
        value
            .make_map_mut()
            .unwrap()
            .insert("messages", Value::list(messages));
    }
    value
}

fn asked(value: &Value, key: &str) -> Vec<Interrupt> {
    let items = list(value, key).iter();
    items.filter_map(Interrupt::from_value).collect()
}

/// Remembers what later events need.
#[derive(Default)]
struct Replay {
    steps: HashMap<String, i64>,
    metadata: Value,
    grown: HashMap<String, String>,
}

impl Replay {
    fn task(&self, data: &Value, step: i64, triggers: Vec<Arc<str>>) -> Arc<TaskInfo> {
        Arc::new(TaskInfo {
            id: text(data, "id").parse().unwrap(),
            name: text(data, "name"),
            triggers: triggers.into(),
            path: Value::Null,
            ns: "".into(),
            step,
        })
    }

    fn task_body(&mut self, data: &Value, step: i64) -> Body {
        if data.get("triggers").is_some() {
            self.steps.insert(text(data, "id").to_string(), step);
            return Body::TaskStart {
                task: self.task(data, step, texts(data, "triggers")),
                input: stored(data.get("input").unwrap()),
            };
        }
        let step = self.steps.get(&*text(data, "id")).copied().unwrap_or(step);
        Body::TaskEnd {
            task: self.task(data, step, vec![]),
            error: unless_null(data, "error"),
            result: stored(data.get("result").unwrap()),
            interrupts: asked(data, "interrupts"),
        }
    }

    fn checkpoint(&self, data: &Value) -> Body {
        let id = |config: &Value| {
            let configurable = config.get("configurable").unwrap();
            text(configurable, "checkpoint_id").parse().unwrap()
        };
        let metadata = data.get("metadata").unwrap();
        let task = |task: &Value| TaskState {
            id: text(task, "id").parse().unwrap(),
            name: text(task, "name"),
            path: Value::Null,
            error: unless_null(task, "error"),
            interrupts: asked(task, "interrupts"),
            result: unless_null(task, "result"),
            child_ns: match (task.get("checkpoint"), unless_null(task, "state")) {
                (Some(inner), _) => Some(text(inner, "checkpoint_ns")),
                (_, Some(state)) => Some(text(state.get("configurable").unwrap(), "checkpoint_ns")),
                _ => None,
            },
        };
        Body::Checkpoint(Box::new(CheckpointInfo {
            id: id(data.get("config").unwrap()),
            parent: unless_null(data, "parent_config").map(|config| id(&config)),
            source: text(metadata, "source").parse::<Source>().unwrap(),
            step: number(metadata, "step"),
            parents: metadata.get("parents").unwrap().as_map().unwrap().clone(),
            values: stored(data.get("values").unwrap()),
            next: texts(data, "next"),
            tasks: list(data, "tasks").iter().map(task).collect(),
        }))
    }

    fn message(&self, message: Value, whole: bool) -> Body {
        let metadata = &self.metadata;
        Body::Message {
            message,
            whole,
            task: Arc::new(TaskInfo {
                id: uuid::Uuid::new_v5(
                    &uuid::Uuid::NAMESPACE_OID,
                    text(metadata, "langgraph_checkpoint_ns").as_bytes(),
                )
                .into(),
                name: text(metadata, "langgraph_node"),
                triggers: texts(metadata, "langgraph_triggers").into(),
                path: metadata.get("langgraph_path").unwrap().clone(),
                ns: text(metadata, "langgraph_checkpoint_ns"),
                step: number(metadata, "langgraph_step"),
            }),
        }
    }

    /// The piece by which a message has grown.
    fn piece(&mut self, shown: &Value) -> Value {
        let (id, content) = (text(shown, "id"), text(shown, "content"));
        let before = self.grown.insert(id.to_string(), content.to_string());
        let mut piece = Map::new();
        piece.insert("type", "AIMessageChunk");
        piece.insert("id", Value::Str(id));
        let delta = &content[before.as_ref().map_or(0, String::len)..];
        piece.insert("content", delta);
        if before.is_some() && delta.is_empty() {
            piece.insert("chunk_position", "last");
        } else if let Some(call) = list(shown, "tool_calls").first() {
            let mut chunk = call.as_map().unwrap().clone();
            chunk.insert("args", call.get("args").unwrap().to_json());
            chunk.insert("index", 0);
            piece.insert("tool_call_chunks", Value::list(vec![Value::map(chunk)]));
        }
        Value::map(piece)
    }

    fn event(&mut self, name: &str, data: &Value, modes: &[Mode]) -> Option<Event> {
        let (mode, ns) = name.split_once('|').unwrap_or((name, ""));
        let body = match mode {
            "custom" => Body::Custom {
                task: TaskId::NULL,
                value: data.clone(),
            },
            "values" => match data.get("__interrupt__") {
                None => Body::Values(stored(data)),
                Some(_) => {
                    let mut state = data.as_map().unwrap().clone();
                    state.remove("__interrupt__");
                    Body::ValuesInterrupt(Value::map(state), asked(data, "__interrupt__"))
                }
            },
            "updates" => {
                let (node, update) = data.as_map().unwrap().iter().next().unwrap();
                match &**node {
                    "__interrupt__" => Body::UpdateInterrupt(asked(data, "__interrupt__")),
                    _ => Body::Update {
                        node: node.clone(),
                        update: stored(update),
                        cached: false,
                    },
                }
            }
            // With both modes the task event stands for both frames.
            "tasks" => {
                let done = self.steps.len() as i64;
                let step = if data.get("triggers").is_some() {
                    done + 1
                } else {
                    done
                };
                self.task_body(data, step)
            }
            "checkpoints" => self.checkpoint(data),
            "debug" => {
                let payload = data.get("payload").unwrap();
                match data.get("type").unwrap().as_str().unwrap() {
                    "checkpoint" => self.checkpoint(payload),
                    _ if modes.contains(&Mode::Tasks) => return None,
                    _ => self.task_body(payload, number(data, "step")),
                }
            }
            "messages" => {
                let pair = data.as_list().unwrap();
                self.metadata = pair[1].clone();
                let whole = &*text(&pair[0], "type") != "AIMessageChunk";
                self.message(pair[0].clone(), whole)
            }
            "messages/metadata" => {
                let (_, found) = data.as_map().unwrap().iter().next().unwrap();
                self.metadata = found.get("metadata").unwrap().clone();
                return None;
            }
            "messages/partial" => {
                let piece = self.piece(&data.as_list().unwrap()[0]);
                self.message(piece, false)
            }
            "messages/complete" => {
                let whole = message::coerce(&data.as_list().unwrap()[0]).unwrap();
                self.message(whole, true)
            }
            other => panic!("unknown event {other}"),
        };
        Some(event(ns, body))
    }
}

/// The first object anywhere that has this key.
fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Map(map) => map
            .get(key)
            .or_else(|| map.iter().find_map(|(_, value)| find(value, key))),
        Value::List(items) => items.iter().find_map(|item| find(item, key)),
        _ => None,
    }
}

/// Times differ.
fn timeless(events: Vec<(String, Value)>) -> Vec<(String, Value)> {
    let timeless = |(name, mut data): (String, Value)| {
        if let Some(map) = data.make_map_mut() {
            map.remove("timestamp");
        }
        (name, data)
    };
    events.into_iter().map(timeless).collect()
}

async fn check(recording: &str, modes: &[Mode], subgraphs: bool) {
    let recorded = read(recording);
    let find = |key| recorded.iter().find_map(|(_, data)| find(data, key));
    let id = |key| find(key).map(|id| id.as_str().unwrap());
    let mut config = RunConfig::default();
    for key in ["graph_id", "assistant_id"] {
        if let Some(value) = find(key) {
            config.metadata.insert(key, value.clone());
            config.configurable.insert(key, value.clone());
        }
    }
    let mut options = options(modes);
    options.run = id("run_id").unwrap().parse().unwrap();
    if let Some(thread) = id("thread_id") {
        options.thread = thread.parse().unwrap();
    }
    options.subgraphs = subgraphs;
    options.graph = graph(&["messages"]);
    let publisher = Publisher::new(options);
    let mut reader = publisher.subscribe(Since::Start, &[]);
    publisher.started(&Arc::new(config));
    let mut replay = Replay::default();
    for (name, data) in recorded.iter().skip(1) {
        if name == "error" {
            publisher.error(&text(data, "error"), &text(data, "message"));
        } else if let Some(event) = replay.event(name, data, modes) {
            publisher.emit(event);
        }
    }
    publisher.close();
    let sent = parse(&drain(&mut reader).await);
    let sent: Vec<_> = sent
        .into_iter()
        .map(|(name, data, id)| {
            assert_eq!(id, None);
            (name, data)
        })
        .collect();
    let (sent, recorded) = (timeless(sent), timeless(recorded));
    for (sent, recorded) in sent.iter().zip(&recorded) {
        assert_eq!(sent.0, recorded.0);
        assert_eq!(sent.1, recorded.1, "{}", sent.1.to_json());
    }
    assert_eq!(sent.len(), recorded.len());
}

macro_rules! recordings {
    ($($(#[$attr:meta])* $test:ident: $file:literal, [$($mode:ident),*], $sub:literal;)*) => {$(
        #[tokio::test]
        async fn $test() {
            check(include_str!(concat!("recorded/", $file, ".txt")), &[$(Mode::$mode),*], $sub).await;
        }
    )*};
}

recordings! {
    states_of_a_counter: "counter-values", [Values], false;
    updates_of_a_counter: "counter-updates", [Updates], false;
    a_breakpoint_is_an_empty_list_of_questions: "counter-breakpoint", [Updates], false;
    debugging_a_counter: "counter-debug", [Debug], false;
    custom_events_among_others: "slow-custom", [Custom, Updates, Values], false;
    a_question_in_three_modes: "approve", [Values, Updates, Tasks], false;
    checkpoints_and_tasks_inside: "subgraph-checkpoints", [Tasks, Checkpoints], true;
    debugging_inside: "subgraph-debug", [Debug], true;
    a_question_inside_is_repeated_outward: "subgraph-approve", [Values, Updates], true;
    pieces_of_messages: "agent-tuple", [MessagesTuple], false;
    messages_as_they_grow: "agent-messages", [Messages], false;
    pieces_from_inside: "chatsub-tuple", [Values, MessagesTuple], true;
    messages_in_states_and_updates: "agent-many", [Values, Updates, MessagesTuple, Custom], false;
    a_failure_in_two_modes: "failing", [Tasks, Debug], false;
}
