//! Forks: made by command or by the first post, read, and independent of what they came from.

#[path = "forks/explicit.rs"]
mod explicit;
#[path = "forks/implicit.rs"]
mod implicit;
#[path = "forks/points.rs"]
mod points;

use serde_json::{Value, json};

use crate::support::client::{Answer, Client};
use crate::support::place::Place;
use crate::support::server::{Server, Setup};

fn serve(place: &Place) -> (Server, Client) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    (server, client)
}

fn create(client: &Client, body: &Value) -> String {
    let answer = client.post("/threads", body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["thread_id"].as_str().unwrap().to_owned()
}

fn agent_thread(client: &Client) -> String {
    create(
        client,
        &json!({"metadata": {"graph_id": "agent", "of": "T"}}),
    )
}

fn say(client: &Client, thread: &str, text: &str) -> Value {
    let input = json!({"messages": [{"role": "user", "content": text}]});
    client.run(thread, &json!({"assistant_id": "agent", "input": input}))
}

fn post(client: &Client, thread: &str, id: &str) -> Value {
    let role = match id.starts_with('a') {
        true => "assistant",
        false => "user",
    };
    let body = json!({"id": id, "role": role, "content": format!("text of {id}")});
    let answer = client.post(&format!("/threads/{thread}/messages"), &body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

/// A thread with these messages, each posted by itself.
fn thread_of(client: &Client, messages: &[&str]) -> String {
    let thread = agent_thread(client);
    for id in messages {
        post(client, &thread, id);
    }
    thread
}

fn try_fork(client: &Client, thread: &str, body: &Value) -> Answer {
    client.post(&format!("/threads/{thread}/fork"), body)
}

fn fork(client: &Client, thread: &str, body: &Value) -> Value {
    let answer = try_fork(client, thread, body);
    assert_eq!(answer.status, 201, "{body}: {}", answer.text());
    answer.json()
}

fn id_of(fork: &Value) -> String {
    fork["thread_id"].as_str().unwrap().to_owned()
}

fn page(client: &Client, thread: &str, query: &str) -> Value {
    let answer = client.get(&format!("/threads/{thread}/messages?{query}"));
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()
}

fn ids(page: &Value) -> Vec<String> {
    let messages = page["messages"].as_array().unwrap();
    let id = |one: &Value| one["message_id"].as_str().unwrap().to_owned();
    messages.iter().map(id).collect()
}

fn path(client: &Client, thread: &str) -> Vec<String> {
    ids(&page(client, thread, ""))
}

fn family(client: &Client, thread: &str) -> Value {
    let answer = client.get(&format!("/threads/{thread}/forks"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn relative<'a>(family: &'a Value, thread: &str) -> &'a Value {
    let all = family["threads"].as_array().unwrap();
    let found = all.iter().find(|one| one["thread_id"] == json!(thread));
    found.unwrap_or_else(|| panic!("{thread} is not in {family}"))
}

fn events(client: &Client, thread: &str) -> Vec<(i64, String)> {
    let answer = client.get(&format!("/threads/{thread}/events?limit=1000"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let of = |event: &Value| {
        let kind = event["event_type"].as_str().unwrap().to_owned();
        (event["event_number"].as_i64().unwrap(), kind)
    };
    answer.json()["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(of)
        .collect()
}

/// The code of an error answer.
fn code(answer: &Answer, status: u16) -> String {
    assert_eq!(answer.status, status, "{}", answer.text());
    let body = answer.json();
    assert!(body["detail"].is_string(), "{body}");
    body["code"].as_str().unwrap_or_default().to_owned()
}

fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}
