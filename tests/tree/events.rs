//! The event log: pages, streams, and the tables derived from it.

mod constant;
mod derived;
mod log;

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use test_support::client::{Client, Open};
use test_support::place::{Place, serve};
use test_support::server::Server;
use test_support::talk::{TURN, background, events, numbers, say, slow};

fn types(events: &[Value]) -> Vec<&str> {
    let types = events.iter().map(|event| event["event_type"].as_str());
    types.map(Option::unwrap).collect()
}

fn stream(client: &Client, thread: &str, query: &str, last: Option<&str>) -> Open {
    let mut headers = vec![("accept", "text/event-stream")];
    headers.extend(last.map(|last| ("last-event-id", last)));
    let path = format!("/threads/{thread}/events?{query}");
    let open = client.open("GET", &path, &headers, b"");
    assert_eq!(open.status, 200);
    open
}
