//! The event-streaming protocol: commands, and the events of a thread, as clients meet them.

mod commands;
mod cut_readers;
mod events;
mod gone;
mod later;
mod passing;
mod recorded;
pub(super) mod rights;
mod sockets;
mod websocket;

use serde_json::{Value, json};
use test_support::client::{Client, Event, Open};

/// A number that no event of a thread has, whatever happened there.
const AHEAD: u64 = 1 << 50;

/// A command, and its reply.
fn command(client: &Client, thread: &str, method: &str, params: Value) -> Value {
    let path = format!("/threads/{thread}/commands");
    let body = json!({"id": 7, "method": method, "params": params});
    let reply = client.post(&path, &body);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let reply = reply.json();
    assert_eq!(reply["id"], 7);
    reply
}

/// Starts a run on a thread, and returns its id.
fn start(client: &Client, thread: &str, graph: &str, input: Value) -> String {
    let params = json!({"assistant_id": graph, "input": input});
    let reply = command(client, thread, "run.start", params);
    assert_eq!(reply["type"], "success", "{reply}");
    reply["result"]["run_id"].as_str().unwrap().to_owned()
}

/// The code of the error with which a command is refused.
fn refused(client: &Client, thread: &str, method: &str, params: Value) -> String {
    let reply = command(client, thread, method, params);
    assert_eq!(reply["type"], "error", "{reply}");
    assert!(
        reply["message"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    );
    reply["error"].as_str().unwrap().to_owned()
}

fn open(client: &Client, thread: &str, body: Value) -> Open {
    let path = format!("/threads/{thread}/stream/events");
    let open = client.open("POST", &path, &[], body.to_string().as_bytes());
    assert_eq!(open.status, 200, "{body}");
    open
}

/// The events up to the end of the n-th run, as the bodies that were sent.
fn ends(open: &mut Open, count: usize) -> Vec<Value> {
    let (mut events, mut ended) = (vec![], 0);
    while ended < count {
        let event = open.event().unwrap();
        check(&event);
        let params = &event.data["params"];
        let is_root = params["namespace"] == json!([]) && event.name == "lifecycle";
        let how = params["data"]["event"].as_str().unwrap_or_default();
        ended += usize::from(is_root && ["completed", "failed", "interrupted"].contains(&how));
        events.push(event.data);
    }
    events
}

/// What holds for each event.
fn check(event: &Event) {
    let body = &event.data;
    assert_eq!(body["type"], "event");
    assert_eq!(body["method"], event.name.as_str());
    assert_eq!(event.id, Some(body["seq"].to_string()));
}

/// All events of a thread up to the end of its n-th run.
fn events(client: &Client, thread: &str, channels: &[&str], count: usize) -> Vec<Value> {
    ends(
        &mut open(client, thread, json!({"channels": channels})),
        count,
    )
}

/// Method and data of each event.
fn brief(events: &[Value]) -> Vec<(String, Value)> {
    let one = |event: &Value| {
        let method = event["method"].as_str().unwrap().to_owned();
        (method, event["params"]["data"].clone())
    };
    events.iter().map(one).collect()
}

fn new_thread() -> String {
    uuid::Uuid::now_v7().to_string()
}
