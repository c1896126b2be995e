//! Assistants as tools of MCP and as agents of A2A.

mod a2a;
mod context;
mod mcp;
mod refusals;

use serde_json::{Value, json};
use test_support::client::{Answer, Client};

/// The server's assistants of `agent`, `approve` and `counter`.
const AGENT: &str = "fe096781-5601-53d2-b2f6-0d3403f7e9ca";
const APPROVE: &str = "0f93e4f8-aa09-5743-a468-fb8bb808e8c5";
const COUNTER: &str = "09d6caf4-2ef3-5a8b-b1a7-114690ed5d45";

/// The server's assistant of a graph.
pub(super) fn assistant(graph: &str) -> String {
    let namespace = uuid::uuid!("6ba7b821-9dad-11d1-80b4-00c04fd430c8");
    uuid::Uuid::new_v5(&namespace, graph.as_bytes()).to_string()
}

fn post(client: &Client, path: &str, accept: &str, body: &Value) -> Answer {
    let body = body.to_string();
    client.send("POST", path, &[("accept", accept)], body.as_bytes())
}

/// The message to a request.
fn call(client: &Client, path: &str, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let answer = post(client, path, "application/json", &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let message = answer.json();
    assert_eq!(
        (&message["jsonrpc"], &message["id"]),
        (&json!("2.0"), &json!(7))
    );
    message
}

/// The result of a request to the agent of a graph.
fn a2a(client: &Client, graph: &str, method: &str, params: Value) -> Value {
    let message = call(
        client,
        &format!("/a2a/{}", assistant(graph)),
        method,
        params,
    );
    assert!(message["error"].is_null(), "{message}");
    message["result"].clone()
}

/// The code and the text with which the agent of a graph refuses a request.
fn refused(client: &Client, graph: &str, method: &str, params: Value) -> (i64, String) {
    let message = call(
        client,
        &format!("/a2a/{}", assistant(graph)),
        method,
        params,
    );
    refusal(&message)
}

fn refusal(message: &Value) -> (i64, String) {
    assert!(message.get("result").is_none(), "{message}");
    let error = &message["error"];
    let code = error["code"]
        .as_i64()
        .unwrap_or_else(|| panic!("{message}"));
    (code, error["message"].as_str().unwrap().to_owned())
}

/// A message with one text.
fn text(text: &str, more: Value) -> Value {
    parts(json!([{"kind": "text", "text": text}]), more)
}

fn parts(parts: Value, more: Value) -> Value {
    let id = uuid::Uuid::new_v4().to_string();
    let message = json!({"role": "user", "messageId": id, "parts": parts});
    json!({"message": test_support::talk::extend(message, more)})
}

/// The data of the events of a stream.
fn streamed(client: &Client, graph: &str, method: &str, params: Value) -> Vec<Value> {
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
    let path = format!("/a2a/{}", assistant(graph));
    let accept = [("accept", "text/event-stream")];
    let mut open = client.open("POST", &path, &accept, body.as_bytes());
    assert_eq!(open.status, 200);
    assert_eq!(open.header("content-type"), Some("text/event-stream"));
    let mut all = vec![];
    while let Some(event) = open.event() {
        assert_eq!((&*event.name, &event.data["id"]), ("message", &json!(7)));
        all.push(event.data["result"].clone());
    }
    all
}
