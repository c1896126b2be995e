//! Posting, sending and reading messages.

#[path = "messages/bad_input.rs"]
mod bad_input;
#[path = "messages/pages.rs"]
mod pages;
#[path = "messages/posts.rs"]
mod posts;
#[path = "messages/scenarios.rs"]
mod scenarios;
#[path = "messages/sends.rs"]
mod sends;

use serde_json::{Value, json};

use crate::support::client::{Answer, Client};
use crate::support::place::Place;
use crate::support::server::{Server, Setup};

fn serve(place: &Place) -> (Server, Client) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    (server, client)
}

/// A new thread of the graph `agent`.
fn agent_thread(client: &Client) -> String {
    let answer = client.post("/threads", &json!({"metadata": {"graph_id": "agent"}}));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["thread_id"].as_str().unwrap().to_owned()
}

fn post(client: &Client, thread: &str, body: &Value) -> Answer {
    client.post(&format!("/threads/{thread}/messages"), body)
}

/// Posts and expects it to be new.
fn store(client: &Client, thread: &str, body: &Value) -> Value {
    let answer = post(client, thread, body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn with(mut body: Value, key: &str, value: impl Into<Value>) -> Value {
    body[key] = value.into();
    body
}

/// A conversation `M1` to `M<n>` of alternating roles, posted at once.
fn conversation(client: &Client, n: usize) -> String {
    let thread = agent_thread(client);
    let messages: Vec<Value> = (1..=n)
        .map(|i| {
            let role = if i % 2 == 1 { "user" } else { "assistant" };
            json!({"id": format!("M{i}"), "role": role, "content": format!("text {i}")})
        })
        .collect();
    for message in messages {
        store(client, &thread, &message);
    }
    thread
}

fn read(client: &Client, thread: &str, query: &str) -> Value {
    let answer = client.get(&format!("/threads/{thread}/messages?{query}"));
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()
}

fn ids(page: &Value) -> Vec<String> {
    let messages = page["messages"].as_array().unwrap();
    let id = |one: &Value| one["message_id"].as_str().unwrap().to_owned();
    messages.iter().map(id).collect()
}

fn path(client: &Client, thread: &str, query: &str) -> Vec<String> {
    ids(&read(client, thread, query))
}

fn branches(client: &Client, thread: &str) -> Value {
    let answer = client.get(&format!("/threads/{thread}/branches"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn branch_names(client: &Client, thread: &str) -> Vec<String> {
    let found = branches(client, thread);
    let name = |one: &Value| one["name"].as_str().unwrap().to_owned();
    found["branches"]
        .as_array()
        .unwrap()
        .iter()
        .map(name)
        .collect()
}

/// The code of an error answer.
fn code(answer: &Answer, status: u16) -> String {
    assert_eq!(answer.status, status, "{}", answer.text());
    let body = answer.json();
    assert!(body["detail"].is_string(), "{body}");
    body["code"].as_str().unwrap_or_default().to_owned()
}
