//! Values of tiny items, which take many times the memory of what is stored of them.

use std::time::Duration;

use serde_json::{Value, json};
use test_support::client::{Client, Open};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::tables::execute;
use test_support::talk::{copies, ok, slow, until, until_within, with};

use crate::siege::{MIB, Watch, rounds};

on_both_storages!(; postgres_in_long_form:
    states_of_tiny_items_are_shown_one_by_one_in_little_memory_and_at_once_or_are_refused,
    runs_with_requests_of_tiny_items_are_executed_a_few_at_a_time,
    runs_with_requests_of_tiny_items_that_become_due_together_begin_a_few_at_a_time,
    requests_of_tiny_items_that_are_read_at_once_are_shown_or_refused,
    lists_of_tiny_items_that_nobody_reads_take_what_was_reserved,
    lists_of_threads_with_metadata_of_tiny_items_take_little_memory,
);

/// More of them.
const LARGE: usize = 450_000;

/// So many items take six mebibytes in memory, and a fifth of one where they are stored.
const ITEMS: usize = 200_000;

fn setup() -> Setup {
    Setup::example("reference_server")
        .env("BACKSTITCH_MEMORY_BUDGET", "96")
        .env("BACKSTITCH_BODY_VALUES", "500000")
}

/// So many take two thirds of that.
const FEWER: usize = 133_000;

/// One with the least memory that a server may have.
fn least() -> Setup {
    setup().env("BACKSTITCH_MEMORY_BUDGET", "64")
}

/// One that takes larger requests.
fn larger() -> Setup {
    setup().env("BACKSTITCH_MEMORY_BUDGET", "192")
}

fn items() -> Value {
    json!(vec![Value::Null; ITEMS])
}

/// Threads with such a state each.
fn threads(client: &Client, count: usize) -> Vec<String> {
    let begin = json!({"assistant_id": "approve", "input": {"request": "r"}});
    let edit = json!({"values": {"answer": items()}, "as_node": "ask"});
    let thread = client.thread();
    client.run(&thread, &begin);
    ok(client.post(&format!("/threads/{thread}/state"), &edit), 200);
    copies(client, thread, count)
}

fn states_of_tiny_items_are_shown_one_by_one_in_little_memory_and_at_once_or_are_refused(
    place: &Place,
) {
    let mut server = place.start(setup());
    let threads = threads(&Client::of(&server), 20 * rounds());
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    for thread in &threads {
        let state = ok(client.get(&format!("/threads/{thread}/state")), 200);
        assert_eq!(state["values"]["answer"].as_array().unwrap().len(), ITEMS);
    }
    // They take no more of the cache than other states.
    watch.held("states of tiny items one by one", 80 * MIB);
    // Nothing of them is in memory any more.
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    for path in ["/state", ""] {
        for _ in 0..rounds() {
            std::thread::scope(|scope| {
                let one = |thread| {
                    let path = format!("/threads/{thread}{path}");
                    let client = &client;
                    scope.spawn(move || client.get(&path).status)
                };
                let all: Vec<_> = threads.iter().map(one).collect();
                let all: Vec<u16> = all.into_iter().map(|one| one.join().unwrap()).collect();
                assert!(all.contains(&200), "{all:?}");
                assert!(all.iter().all(|status| [200, 503].contains(status)));
            });
        }
        let last = format!("/threads/{}{path}", threads[0]);
        until("the memory is free", || client.get(&last).status == 200);
    }
    watch.held("states of tiny items at once", 72 * MIB);
}

/// A run that takes two times so many milliseconds, with a request of so many tiny items.
fn dense(ms: u64, items: usize) -> Value {
    let mut run = slow(ms, 1);
    run["input"]["tiny"] = json!(vec![Value::Null; items]);
    run
}

/// Waits until a run has a status, without reading its request.
fn reaches(client: &Client, thread: &str, run: &str, expected: &str) {
    let path = format!("/threads/{thread}/runs?select=run_id&select=status");
    until_within(Duration::from_secs(180), "a run has its status", || {
        let rows = ok(client.get(&path), 200);
        assert_eq!(rows[0]["run_id"], *run);
        let status = rows[0]["status"].as_str().unwrap();
        assert_ne!(status, "error");
        status == expected
    });
}

/// So many runs, on a thread each.
fn created(client: &Client, count: usize, run: &Value) -> Vec<(String, String)> {
    // The response repeats all of it; who made it and who reads it are most of what the test itself does.
    let run = run.to_string();
    let one = |_| {
        let thread = client.thread();
        let made = client.post_text(&format!("/threads/{thread}/runs"), &run);
        assert_eq!(made.status, 200, "{}", made.text());
        let location = made.header("content-location").unwrap();
        let run = location.rsplit('/').next().unwrap().to_owned();
        (thread, run)
    };
    (0..count).map(one).collect()
}

fn cancel(client: &Client, thread: &str, run: &str) -> u16 {
    let path = format!("/threads/{thread}/runs/{run}/cancel");
    client.post(&path, &json!({})).status
}

fn runs_with_requests_of_tiny_items_are_executed_a_few_at_a_time(place: &Place) {
    let server = place.start(least());
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    // They last until they are cancelled, which makes room for others.
    let runs = created(&client, 30 * rounds(), &dense(3_600_000, FEWER));
    for (thread, run) in &runs {
        reaches(&client, thread, run, "running");
        assert_eq!(cancel(&client, thread, run), 202);
    }
    watch.held("runs with requests of tiny items", 110 * MIB);
}

fn runs_with_requests_of_tiny_items_that_become_due_together_begin_a_few_at_a_time(place: &Place) {
    let server = place.start(larger());
    let client = Client::of(&server);
    let runs = created(&client, 12, &with(dense(500, LARGE), "after_seconds", 3600));
    let watch = Watch::of(&server);
    let due = "UPDATE runs SET run_at = created_at";
    execute(place, &server, due).unwrap();
    let (first, others) = runs.split_at(5);
    for (thread, run) in first {
        reaches(&client, thread, run, "success");
    }
    // The others would go on in the same way. Some have ended meanwhile.
    for (thread, run) in others {
        let status = cancel(&client, thread, run);
        assert!(matches!(status, 202 | 404), "{status}");
    }
    watch.held("runs of tiny items that become due", 130 * MIB);
}

fn requests_of_tiny_items_that_are_read_at_once_are_shown_or_refused(place: &Place) {
    let mut server = place.start(least());
    let client = Client::of(&server);
    let runs = created(&client, 8, &dense(1, FEWER));
    let path = |(thread, run): &(String, String)| {
        reaches(&client, thread, run, "success");
        format!("/threads/{thread}/runs/{run}")
    };
    let paths: Vec<String> = runs.iter().map(path).collect();
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    for _ in 0..rounds() {
        std::thread::scope(|scope| {
            let one = |path: &String| {
                let (client, path) = (&client, path.clone());
                scope.spawn(move || client.get(&path).status)
            };
            let all: Vec<_> = (0..8).flat_map(|_| paths.iter().map(one)).collect();
            let all: Vec<u16> = all.into_iter().map(|one| one.join().unwrap()).collect();
            assert!(all.contains(&200), "{all:?}");
            assert!(all.iter().all(|status| [200, 503].contains(status)));
        });
        until("the memory is free", || client.get(&paths[0]).status == 200);
    }
    watch.held("requests of tiny items at once", 44 * MIB);
}

fn lists_of_tiny_items_that_nobody_reads_take_what_was_reserved(place: &Place) {
    let mut server = place.start(setup().env("BACKSTITCH_MEMORY_BUDGET", "192"));
    let client = Client::of(&server);
    threads(&client, 6);
    let one = client.thread();
    let input = json!({"assistant_id": "approve", "input": {"request": "r", "answer": items()}});
    let input = input.to_string();
    for _ in 0..6 {
        // The response repeats all of it.
        let made = client.post_text(&format!("/threads/{one}/runs/wait"), &input);
        assert_eq!(made.status, 200, "{}", made.text());
    }
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    let all = json!({"limit": 1000}).to_string();
    let mut open: Vec<Open> = Vec::new();
    for _ in 0..8 * rounds() {
        let runs = format!("/threads/{one}/runs?limit=1000");
        let history = format!("/threads/{one}/history");
        open.push(client.open("POST", "/threads/search", &[], all.as_bytes()));
        open.push(client.open("GET", &runs, &[], b""));
        open.push(client.open("POST", &history, &[], all.as_bytes()));
    }
    let with = |status: u16| open.iter().filter(|open| open.status == status).count();
    assert!(with(200) > 0);
    assert_eq!(with(200) + with(503), open.len());
    drop(open);
    let mut found = None;
    until("the memory is free", || {
        let answer = client.post("/threads/search", &json!({"limit": 1000}));
        found = Some(answer).filter(|answer| answer.status == 200);
        found.is_some()
    });
    let rows = found.unwrap().json();
    let whole = rows.as_array().unwrap().iter().filter(|row| {
        let answer = row["values"]["answer"].as_array();
        answer.is_some_and(|items| items.len() == ITEMS)
    });
    assert_eq!(whole.count(), 7);
    watch.held("unread lists of tiny items", 90 * MIB);
}

fn lists_of_threads_with_metadata_of_tiny_items_take_little_memory(place: &Place) {
    let server = place.start(setup());
    let client = Client::of(&server);
    let tiny = json!({"tiny": vec![json!({}); 5000]});
    let create = json!({"metadata": tiny}).to_string();
    for _ in 0..120 {
        let made = client.post_text("/threads", &create);
        assert_eq!(made.status, 200, "{}", made.text());
    }
    let watch = Watch::of(&server);
    let search = json!({"limit": 1000, "select": ["thread_id", "metadata"]});
    let mut checked = Vec::<u8>::new();
    for _ in 0..rounds() {
        std::thread::scope(|scope| {
            let one = || scope.spawn(|| client.post("/threads/search", &search));
            let all: Vec<_> = (0..16).map(|_| one()).collect();
            for one in all {
                let answer = one.join().unwrap();
                if answer.status != 503 {
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    // To parse a page takes longer than to make it, and all have the same bytes.
                    if answer.body != checked {
                        let rows = answer.json();
                        let rows = rows.as_array().unwrap();
                        assert_eq!(rows.len(), 120);
                        assert!(rows.iter().all(|row| row["metadata"] == tiny));
                        checked = answer.body;
                    }
                }
            }
        });
    }
    watch.held("lists of metadata of tiny items", 160 * MIB);
}
