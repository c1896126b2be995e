//! Posting, sending and reading messages.

mod bad_input;
mod pages;
mod posts;
mod scenarios;
mod sends;

use serde_json::{Value, json};

use test_support::client::Client;
use test_support::talk::{agent_thread, store};

/// A conversation `M1` to `M<n>` of alternating roles, each posted by itself.
fn conversation(client: &Client, n: usize) -> String {
    let thread = agent_thread(client);
    for n in 1..=n {
        let role = if n % 2 == 1 { "user" } else { "assistant" };
        let message = json!({"id": format!("M{n}"), "role": role, "content": format!("text {n}")});
        store(client, &thread, &message);
    }
    thread
}

/// A conversation `M1` to `M4` of one step, and the answer to its post.
fn four_in_one_step(client: &Client) -> (String, Value) {
    let thread = agent_thread(client);
    let list: Vec<Value> = (1..=4)
        .map(|n| json!({"id": format!("M{n}"), "role": "user", "content": format!("t{n}")}))
        .collect();
    let answer = store(client, &thread, &json!({"messages": list}));
    (thread, answer)
}
