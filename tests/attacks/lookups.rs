//! Requests of runs of which a few fields are looked up: as many as come at once are read a few at a time.

use std::thread::scope;

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk::{background, extend, ok, slow, until};

use crate::siege::{MIB, Memory, rounds};

on_both_storages!(
    requests_that_joins_of_streams_look_up_are_read_a_few_at_a_time,
    requests_that_events_of_a_thread_look_up_are_read_a_few_at_a_time,
    requests_that_answers_to_interrupts_look_up_are_read_a_few_at_a_time,
);

/// So many items take some fifteen mebibytes in memory, and half of one where they are stored.
const ITEMS: usize = 450_000;
/// Threads with such a request each.
const THREADS: usize = 20;

fn setup() -> Setup {
    Setup::example("reference_server")
        .env("BACKSTITCH_MEMORY_BUDGET", "192")
        .env("BACKSTITCH_BODY_VALUES", "500000")
}

fn dense(more: Value) -> Value {
    let mut run = extend(slow(1, 1), more);
    run["input"]["tiny"] = json!(vec![Value::Null; ITEMS]);
    run
}

/// Threads with a run of this request each, which has ended.
fn ended(client: &Client, run: &Value) -> Vec<(String, String)> {
    let one = |_| {
        let thread = client.thread();
        let id = background(client, &thread, run);
        // Without its request.
        let path = format!("/threads/{thread}/runs?select=status");
        until("a run ends", || {
            ok(client.get(&path), 200)[0]["status"] == "success"
        });
        (thread, id)
    };
    (0..THREADS).map(one).collect()
}

/// Eight requests for each of these at the same time.
fn all_at_once<T: Sync>(all: &[T], request: impl Fn(&T) + Sync) {
    for _ in 0..rounds() {
        scope(|scope| {
            for one in (0..8).flat_map(|_| all) {
                let request = &request;
                scope.spawn(move || request(one));
            }
        });
    }
}

fn requests_that_joins_of_streams_look_up_are_read_a_few_at_a_time(place: &Place) {
    let mut server = place.start(setup());
    let runs = ended(&Client::of(&server), &dense(json!({})));
    server.restart();
    let client = Client::of(&server);
    let memory = Memory::of(&server);
    all_at_once(&runs, |(thread, run)| {
        let path = format!("/threads/{thread}/runs/{run}/stream");
        let joined = client.send("GET", &path, &[("Last-Event-ID", "0")], b"");
        assert_eq!(joined.status, 200, "{}", joined.text());
    });
    memory.held("requests that joins look up", 100 * MIB);
}

fn requests_that_events_of_a_thread_look_up_are_read_a_few_at_a_time(place: &Place) {
    let mut server = place.start(setup());
    let runs = ended(
        &Client::of(&server),
        &dense(json!({"stream_resumable": true})),
    );
    server.restart();
    let client = Client::of(&server);
    let memory = Memory::of(&server);
    let all = json!({"channels": ["values", "lifecycle"]}).to_string();
    all_at_once(&runs, |(thread, _)| {
        let path = format!("/threads/{thread}/stream/events");
        let mut events = client.open("POST", &path, &[], all.as_bytes());
        assert_eq!(events.status, 200);
        assert!(events.event().is_some());
    });
    memory.held("requests that events look up", 100 * MIB);
}

fn requests_that_answers_to_interrupts_look_up_are_read_a_few_at_a_time(place: &Place) {
    let mut server = place.start(setup());
    let client = Client::of(&server);
    let waits = dense(json!({"after_seconds": 1000}));
    let one = |_| {
        let thread = client.thread();
        background(&client, &thread, &waits);
        thread
    };
    let threads: Vec<_> = (0..THREADS).map(one).collect();
    server.restart();
    let client = Client::of(&server);
    let memory = Memory::of(&server);
    let resume = json!({
        "assistant_id": "slow", "command": {"resume": 1}, "after_seconds": 1000,
    });
    all_at_once(&threads, |thread| {
        let answer = client.post(&format!("/threads/{thread}/runs"), &resume);
        assert!([200, 409].contains(&answer.status), "{}", answer.text());
    });
    for thread in &threads {
        let path = format!("/threads/{thread}/runs?select=run_id");
        let rows = ok(client.get(&path), 200);
        assert_eq!(rows.as_array().unwrap().len(), 2, "one answer was taken");
    }
    memory.held("requests that answers look up", 100 * MIB);
}
