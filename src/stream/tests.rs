//! Tests of the streams of runs: their bytes, their readers and what is retained.

use std::sync::Arc;

use super::{options::Limits, *};
use crate::{
    engine::{Body, Event, event::TaskInfo},
    graph::{Compiled, Names, Persist, Schemas, Writers},
    id::{RunId, TaskId, ThreadId},
    value::Value,
};

mod barriers;
mod delivery;
mod ending;
mod recorded;
mod retained;
mod shares;
mod shown;
mod speed;
mod thread;

/// A graph without nodes, whose message channels have these names.
fn graph(messages: &[&str]) -> Arc<Compiled> {
    Arc::new(Compiled {
        channels: vec![],
        nodes: vec![],
        handlers: vec![],
        start: Writers::default(),
        joins: vec![],
        input: vec![],
        output: vec![],
        root_state: false,
        persist: Persist::Inherit,
        interrupt_before: Names::None,
        interrupt_after: Names::None,
        messages: messages.iter().map(|name| Arc::from(*name)).collect(),
        schemas: Schemas::default(),
        recursion_limit: None,
        deps: crate::graph::Deps::default(),
    })
}

fn options(modes: &[Mode]) -> Options {
    Options {
        run: RunId::mint(),
        thread: ThreadId::mint(),
        attempt: 1,
        modes: modes.to_vec(),
        principal: None,
        temporary: false,
        subgraphs: false,
        resumable: false,
        graph_name: "chat".into(),
        graph: graph(&["messages"]),
        branch_in_metadata: None,
        after: 0,
        limits: Limits {
            lag: 1 << 20,
            retained: 4 << 20,
        },
    }
}

fn event(ns: &str, body: Body) -> Event {
    Event {
        ns: ns.into(),
        body,
    }
}

fn custom(value: impl Into<Value>) -> Event {
    event(
        "",
        Body::Custom {
            task: TaskId::NULL,
            value: value.into(),
        },
    )
}

fn task(name: &str, ns: &str) -> Arc<TaskInfo> {
    Arc::new(TaskInfo {
        id: TaskId(uuid::Uuid::from_u128(7)),
        name: name.into(),
        triggers: Arc::from([Arc::from(format!("branch:to:{name}"))]),
        path: crate::value!(["__pregel_pull", name]),
        ns: ns.into(),
        step: 1,
    })
}

/// Name, data and id of every event.
fn parse(bytes: &[u8]) -> Vec<(String, Value, Option<u64>)> {
    let text = std::str::from_utf8(bytes).unwrap();
    assert!(text.is_empty() || text.ends_with("\r\n\r\n"), "{text:?}");
    let frames = text.split("\r\n\r\n").filter(|frame| !frame.is_empty());
    frames
        .map(|frame| {
            let mut lines = frame.split("\r\n");
            let mut field = |name: &str| {
                let line = lines.next()?;
                Some(line.strip_prefix(name).unwrap().to_owned())
            };
            let event = field("event: ").unwrap();
            let data = Value::from_json_slice(field("data: ").unwrap().as_bytes()).unwrap();
            let id = field("id: ").map(|id| id.parse().unwrap());
            (event, data, id)
        })
        .collect()
}

/// Everything a closed stream still has for a reader.
async fn drain(reader: &mut Subscription) -> Vec<u8> {
    let mut all = vec![];
    while let Some(bytes) = reader.next().await {
        all.extend_from_slice(&bytes);
    }
    all
}

/// What is there now, without waiting.
fn now(reader: &mut Subscription) -> Vec<(String, Value, Option<u64>)> {
    let mut all = vec![];
    while let Some(Some(bytes)) = futures::FutureExt::now_or_never(reader.next()) {
        all.extend_from_slice(&bytes);
    }
    parse(&all)
}

fn names(events: &[(String, Value, Option<u64>)]) -> Vec<&str> {
    events.iter().map(|(name, _, _)| name.as_str()).collect()
}
