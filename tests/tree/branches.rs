//! Branches and tags: made, switched, renamed, deleted; and what that does to waiting runs.

mod changing;
mod making;
mod scenarios;

use serde_json::{Value, json};

use test_support::client::Client;
use test_support::place::{Place, serve};
use test_support::talk::{self, code, extend, last_event, ok, patch, put, turn_as, until};

/// A run of `slow` with one tick.
pub fn slow(ms: u64, more: Value) -> Value {
    extend(talk::slow(ms, 1), more)
}

/// What the messages of a state say.
pub fn texts(state: &Value) -> Vec<String> {
    let messages = state["values"]["messages"].as_array();
    let text = |message: &Value| message["content"].as_str().unwrap().to_owned();
    messages.into_iter().flatten().map(text).collect()
}

/// A thread with two turns: m1, its answer, m3, its answer; and the ids of those messages.
pub fn two_turns(client: &Client) -> (String, Vec<String>) {
    let id = client.thread();
    client.run(&id, &turn_as("one", "m1", json!({})));
    client.run(&id, &turn_as("two", "m3", json!({})));
    let state = client.state(&id);
    let messages = state["values"]["messages"].as_array().unwrap();
    let ids = messages.iter().map(|one| one["id"].as_str().unwrap());
    (id, ids.map(str::to_owned).collect())
}

/// A thread with one run of `slow`, and an inactive branch `side` at its head.
pub fn with_side_branch(client: &Client) -> String {
    let id = client.thread();
    client.run(&id, &slow(1, json!({})));
    let side = client.post(&format!("/threads/{id}/btw"), &json!({"name": "side"}));
    ok(side, 201);
    id
}

/// Every branch: name, whether it is active, its messages.
pub fn branches(client: &Client, thread: &str) -> Vec<(String, bool, i64)> {
    let found = ok(client.get(&format!("/threads/{thread}/branches")), 200);
    let rows = found["branches"].as_array().unwrap();
    let active = rows.iter().filter(|row| row["is_active"] == true);
    assert_eq!(active.count(), 1, "{found}");
    rows.iter()
        .map(|row| {
            let name = row["name"].as_str().unwrap().to_owned();
            if row["is_active"] == true {
                assert_eq!(found["active"], *name);
            }
            let count = row["message_count"].as_i64().unwrap();
            (name, row["is_active"] == true, count)
        })
        .collect()
}

fn branch(client: &Client, thread: &str, name: &str) -> Value {
    let found = ok(client.get(&format!("/threads/{thread}/branches")), 200);
    let rows = found["branches"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("no {name} in {found}"))
        .clone()
}
