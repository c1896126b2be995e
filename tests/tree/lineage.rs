//! Runs and states on branches, by tag, message and checkpoint.

mod runs;
mod scenarios;
mod states;

use serde_json::{Value, json};

use super::branches::{branches, slow, texts, two_turns, with_side_branch};
use test_support::client::Client;
use test_support::place::{Place, serve};
use test_support::talk::{agent_thread, code, extend, note, ok, put, store, turn_as};

fn state(client: &Client, thread: &str, query: &str) -> Value {
    ok(client.get(&format!("/threads/{thread}/state?{query}")), 200)
}

/// Tags a message `t`.
fn tag(client: &Client, thread: &str, message: &str) {
    let path = format!("/threads/{thread}/tags/t");
    ok(put(client, &path, &json!({"message_id": message})), 201);
}

fn head(client: &Client, thread: &str, branch: &str) -> Value {
    state(client, thread, &format!("branch={branch}"))["checkpoint"]["checkpoint_id"].clone()
}

fn names(client: &Client, thread: &str) -> Vec<(String, bool)> {
    let found = branches(client, thread);
    found
        .into_iter()
        .map(|(name, active, _)| (name, active))
        .collect()
}

/// The checkpoint in which the first turn of a thread ended.
fn end_of_first_turn(client: &Client, thread: &str) -> Value {
    let history = client.history(thread);
    let found = history.iter().find(|state| {
        state["values"]["messages"].as_array().map(Vec::len) == Some(2)
            && state["metadata"]["source"] == "loop"
    });
    found.unwrap()["checkpoint"]["checkpoint_id"].clone()
}
