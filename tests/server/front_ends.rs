//! What each front end for the Agent Server requests, in its order, and what it needs of the responses.

mod classic;
mod others;
mod protocol;

use serde_json::{Value, json};
use test_support::client::{Client, Event, Open};

/// The address of a page, which is another origin than the server's.
const PAGE: &str = "http://localhost:3000";

/// A request of a page.
fn open(client: &Client, method: &str, path: &str, body: &Value) -> Open {
    let body = if body.is_null() {
        vec![]
    } else {
        body.to_string().into_bytes()
    };
    client.open(method, path, &[("origin", PAGE)], &body)
}

/// A message as pages send it.
fn human(text: &str) -> Value {
    json!({"messages": [{"type": "human", "content": text}]})
}

fn rest(mut open: Open) -> Vec<Event> {
    assert_eq!(open.status, 200);
    std::iter::from_fn(|| open.event()).collect()
}

fn data<'a>(events: &'a [Event], name: &str) -> Vec<&'a Value> {
    let named = events.iter().filter(|event| event.name == name);
    named.map(|event| &event.data).collect()
}

/// The contents of the messages of a state.
fn contents(values: &Value) -> Vec<&str> {
    let messages = values["messages"].as_array().unwrap().iter();
    messages
        .map(|message| message["content"].as_str().unwrap())
        .collect()
}
