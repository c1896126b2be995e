//! What runs have of states in memory while they are executed.

use std::time::Duration;

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::talk::{background, copies, ok, until, until_within, with};

use crate::siege::{MIB, Watch, rounds};

on_both_storages!(; postgres_in_long_form:
    runs_with_small_states_hold_a_few_of_them_at_a_time,
    what_runs_grow_by_is_counted_and_others_wait_for_it,
    states_that_runs_load_of_graphs_inside_are_counted,
);

/// So many tiny items take more than three mebibytes in memory, and are a small state where they are stored.
const ITEMS: usize = 130_000;

/// A server of whose memory for states of runs one principal has 12 MiB.
fn started(place: &Place) -> Server {
    place.start(Setup::example("bench_server").env("BACKSTITCH_MEMORY_BUDGET", "96"))
}

/// A run that grows by so many items, and has them for a while.
fn run(items: usize, seconds: f64) -> Value {
    json!({"assistant_id": "grower", "input": {"n": items, "seconds": seconds}})
}

/// A thread after a run whose many values nobody asks for.
fn thread_after(client: &Client, body: &Value) -> String {
    let thread = client.thread();
    let run = background(client, &thread, body);
    assert_eq!(client.end_of(&thread, &run), "success");
    thread
}

/// Bytes of states that are in use.
fn used(client: &Client) -> u64 {
    let name = "backstitch_memory_used_bytes{budget=\"runs\"} ";
    let metrics = client.get("/metrics");
    let value = metrics
        .text()
        .lines()
        .find_map(|line| line.strip_prefix(name));
    value.unwrap().parse::<f64>().unwrap() as u64
}

fn runs_with_small_states_hold_a_few_of_them_at_a_time(place: &Place) {
    let mut server = started(place);
    let client = Client::of(&server);
    let thread = thread_after(&client, &run(ITEMS, 0.0));
    let threads = copies(&client, thread, 32 * rounds());
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    let begin = |thread: &String| (thread.clone(), background(&client, thread, &run(0, 0.4)));
    let runs: Vec<_> = std::thread::scope(|scope| {
        let all = threads
            .chunks(8)
            .map(|some| scope.spawn(|| some.iter().map(begin).collect()));
        let all: Vec<_> = all.collect();
        let runs = all.into_iter().map(|one| -> Vec<_> { one.join().unwrap() });
        runs.flatten().collect()
    });
    for (thread, run) in &runs {
        let end = client.end_within(thread, run, Duration::from_secs(120));
        assert_eq!(end, "success");
    }
    until("the memory is free", || used(&client) == 0);
    watch.held("small states of runs", 70 * MIB);
}

fn what_runs_grow_by_is_counted_and_others_wait_for_it(place: &Place) {
    let mut server = started(place);
    let client = Client::of(&server);
    let waits = thread_after(&client, &run(4 * ITEMS, 0.0));
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    assert_eq!(used(&client), 0);
    let grown: Vec<(String, String)> = (0..4)
        .map(|_| {
            let thread = client.thread();
            let run = background(&client, &thread, &run(2 * ITEMS, 3.0));
            (thread, run)
        })
        .collect();
    // All that a principal may have, and more: nothing of it was waited for.
    until("the runs have grown", || used(&client) > 30 * MIB);
    let large = background(&client, &waits, &run(0, 0.0));
    let status = |thread: &str, run: &str| {
        let row = ok(client.get(&format!("/threads/{thread}/runs/{run}")), 200);
        row["status"].as_str().unwrap().to_owned()
    };
    until_within(Duration::from_secs(60), "the large one ends", || {
        let ended = status(&waits, &large);
        let others = grown.iter().map(|(thread, run)| status(thread, run));
        let others = others.filter(|status| status == "success").count();
        assert!(ended != "success" || others > 1, "it has not waited");
        ended == "success"
    });
    for (thread, run) in &grown {
        assert_eq!(client.end_of(thread, run), "success");
    }
    until("the memory is free", || used(&client) == 0);
    watch.held("what runs grow by", 200 * MIB);
}

fn states_that_runs_load_of_graphs_inside_are_counted(place: &Place) {
    let mut server = started(place);
    let inside = |items, seconds| with(run(items, seconds), "assistant_id", "nested_grower");
    let thread = thread_after(&Client::of(&server), &inside(2 * ITEMS, 0.0));
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    let loaded = background(&client, &thread, &inside(0, 3.0));
    until("the state inside is there", || used(&client) > 6 * MIB);
    assert_eq!(client.end_of(&thread, &loaded), "success");
    until("the memory is free", || used(&client) == 0);
    watch.held("states of graphs inside", 96 * MIB);
}
