//! Forks: made by command or by the first post, read, and independent of what they came from.

mod explicit;
mod implicit;
mod inside;
mod pages;
mod points;
mod questions;

use serde_json::{Value, json};

use test_support::client::{Answer, Client};
use test_support::place::{Place, serve};
use test_support::talk::{
    self, code, contents, create, extend, family, fork, id_of, ids, last_event, note, ok, put,
    read, say, thread_of, with,
};

fn try_fork(client: &Client, thread: &str, body: &Value) -> Answer {
    client.post(&format!("/threads/{thread}/fork"), body)
}

fn relative<'a>(family: &'a Value, thread: &str) -> &'a Value {
    let all = family["threads"].as_array().unwrap();
    let found = all.iter().find(|one| one["thread_id"] == json!(thread));
    found.unwrap_or_else(|| panic!("{thread} is not in {family}"))
}

/// The ids of the messages of a thread.
fn path(client: &Client, thread: &str) -> Vec<String> {
    talk::path(client, thread, "")
}

/// Number and type of a thread's events.
fn log(client: &Client, thread: &str) -> Vec<(i64, String)> {
    let of = |event: &Value| {
        let kind = event["event_type"].as_str().unwrap().to_owned();
        (event["event_number"].as_i64().unwrap(), kind)
    };
    let all = talk::events(client, thread, "limit=1000");
    all.iter().map(of).collect()
}

fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}
