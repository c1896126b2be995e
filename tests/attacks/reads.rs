//! Large states that are looked at before something is changed, and those of subgraphs: they take memory of the
//! budget too.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::scope;

use serde_json::{Value, json};
use test_support::client::{Answer, Client};
use test_support::gate::{Gate, reached};
use test_support::http2::Unread;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk::{agent_thread, ok, until};

use crate::siege::{MIB, Watch, rounds};

on_both_storages!(
    states_that_branches_forks_and_messages_look_at_are_read_a_few_at_a_time;
    postgres_in_long_form:
    a_client_whose_memory_is_taken_changes_its_threads_all_the_same,
    states_of_subgraphs_take_memory_of_the_budget,
);

/// So many items take four mebibytes in memory, and an eighth of one where they are stored.
const ITEMS: usize = 133_000;
/// Mebibytes of memory for all of them, the least that a server may have; one client may have half.
const BUDGET: u64 = 64;
/// Clients at the same time.
const CLIENTS: usize = 20;

fn setup() -> Setup {
    Setup::example("reference_server")
        .env("BACKSTITCH_MEMORY_BUDGET", BUDGET.to_string())
        .env("BACKSTITCH_BODY_VALUES", "500000")
}

fn items() -> Value {
    json!(vec![Value::Null; ITEMS])
}

/// Threads with one message of so many items.
fn conversations(client: &Client, count: usize) -> Vec<String> {
    let message = json!({
        "role": "assistant", "id": "a1", "content": "hi", "additional_kwargs": {"tiny": items()},
    });
    let edit = json!({"values": {"messages": [message]}, "as_node": "model"}).to_string();
    let one = |_| {
        let thread = agent_thread(client);
        let path = format!("/threads/{thread}/state");
        ok(client.post_text(&path, &edit), 200);
        thread
    };
    (0..count).map(one).collect()
}

/// Every client sends its request at the same time, and again until it is carried out: nobody is refused for
/// ever, nor for another reason than memory.
fn all_at_once(threads: &[String], request: impl Fn(&str) -> Answer + Sync) {
    all_at_once_beside(threads, request, |_| {});
}

/// The same while somebody watches how many clients were refused so far.
fn all_at_once_beside(
    threads: &[String],
    request: impl Fn(&str) -> Answer + Sync,
    watch: impl FnOnce(&AtomicUsize),
) {
    let mut watch = Some(watch);
    for _ in 0..rounds() {
        let refused = AtomicUsize::new(0);
        scope(|scope| {
            for thread in threads {
                let (request, refused) = (&request, &refused);
                scope.spawn(move || {
                    let mut is_first = true;
                    until("the memory is free", || {
                        let answer = request(thread);
                        if answer.status == 503 {
                            assert!(answer.header("retry-after").is_some());
                            refused.fetch_add(usize::from(is_first), Ordering::Relaxed);
                            is_first = false;
                            return false;
                        }
                        assert!(answer.status < 300, "{}", answer.text());
                        true
                    });
                });
            }
            if let Some(watch) = watch.take() {
                watch(&refused);
            }
        });
    }
}

/// Bytes of a budget that are in use.
fn used(client: &Client, budget: &str) -> u64 {
    let name = format!("backstitch_memory_used_bytes{{budget=\"{budget}\"}} ");
    let metrics = client.get("/metrics");
    let mut lines = metrics.text().lines();
    let value = lines.find_map(|line| line.strip_prefix(&name));
    value.unwrap().parse::<f64>().unwrap() as u64
}

fn states_that_branches_forks_and_messages_look_at_are_read_a_few_at_a_time(place: &Place) {
    let mut server = place.start(setup());
    let threads = conversations(&Client::of(&server), CLIENTS);
    for path in ["branches", "fork"] {
        // Whoever has read its state waits until every other client has done so too or was refused: else few would be
        // at it at the same time on a machine with few processors.
        let gate = Gate::new();
        server.restart_with("FAILPOINTS", &gate.at("threads.content"));
        let client = Client::of(&server);
        let watch = Watch::of(&server);
        let (closed, before) = (gate.close(), reached(&server));
        let request = |thread: &str| client.post(&format!("/threads/{thread}/{path}"), &json!({}));
        all_at_once_beside(&threads, request, |refused| {
            until("each has its memory or was refused", || {
                reached(&server) - before + refused.load(Ordering::Relaxed) >= CLIENTS
            });
            let used = used(&client, "responses");
            println!("{path}: {} MiB of memory, {refused:?} refused", used / MIB);
            assert!(used > 0 && used <= BUDGET * MIB / 2, "{used} bytes");
            drop(closed);
        });
        watch.held(&format!("{path} of large states"), 54 * MIB);
    }
    // Nothing of them is in memory any more.
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    let message = json!({"role": "user", "content": "and then?"});
    all_at_once(&threads, |thread| {
        client.post(&format!("/threads/{thread}/messages"), &message)
    });
    watch.held("messages posted to large states", 54 * MIB);
}

fn a_client_whose_memory_is_taken_changes_its_threads_all_the_same(place: &Place) {
    let keys = setup().env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let mut server = place.start(keys.env("BACKSTITCH_STALL", "120"));
    let client = Client::of(&server).with_key("key-a");
    let threads = conversations(&client, 8);
    let waits = json!({"assistant_id": "approve", "input": {"request": "r", "answer": items()}});
    let waiting = client.thread();
    client.run(&waiting, &waits);
    server.restart();
    let client = Client::of(&server).with_key("key-a");
    let watch = Watch::beside(&server, &client.with_key("key-b"));
    let state = format!("/threads/{}/state", threads[7]);
    let unread = Unread::fill(&server, "key-a", &state);
    client.get(&state).refused(503);
    let copy = json!({"values": null, "as_node": "__copy__"});
    let changes = [
        ("branches", json!({}), 201),
        ("fork", json!({}), 201),
        ("messages", json!({"role": "user", "content": "b"}), 201),
        (
            "messages",
            json!({"role": "user", "content": "b", "parent_id": "a1"}),
            201,
        ),
        ("rewind", json!({"message_id": "a1"}), 201),
        ("state", copy, 200),
    ];
    for (thread, (path, body, status)) in threads.iter().zip(changes) {
        ok(
            client.post(&format!("/threads/{thread}/{path}"), &body),
            status,
        );
    }
    let sent = json!({"thread_id": threads[6], "content": "c"});
    ok(client.post("/commands/send-message", &sent), 202);
    let answer = json!({
        "id": 1, "method": "run.start", "params": {"assistant_id": "approve", "input": "yes"},
    });
    let resumed = ok(
        client.post(&format!("/threads/{waiting}/commands"), &answer),
        200,
    );
    assert!(resumed["result"]["run_id"].is_string(), "{resumed}");
    client.get(&state).refused(503);
    drop(unread);
    until("the memory is free", || client.get(&state).status == 200);
    let run = resumed["result"]["run_id"].as_str().unwrap();
    assert_eq!(client.end_of(&waiting, run), "success");
    watch.held("a client whose memory is taken", 64 * MIB);
}

fn states_of_subgraphs_take_memory_of_the_budget(place: &Place) {
    let mut server = place.start(setup());
    let client = Client::of(&server);
    let thread = client.thread();
    let run = json!({"assistant_id": "subgraph", "input": {"path": [], "pause": true}});
    client.run(&thread, &run);
    // The state of the thread stays small: what is in its subgraph alone is large.
    let state = client.state(&thread);
    let ns = &state["tasks"][0]["checkpoint"]["checkpoint_ns"];
    let edit = json!({
        "values": {"path": items()}, "as_node": "enter", "checkpoint": {"checkpoint_ns": ns},
    });
    ok(client.post(&format!("/threads/{thread}/state"), &edit), 200);
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    let path = format!("/threads/{thread}/state?subgraphs=true");
    // All are shown the same state, which takes longer to parse than to make: the same bytes are not parsed again.
    let checked = Mutex::new(Vec::<u8>::new());
    all_at_once(&vec![thread; CLIENTS], |_| {
        let answer = client.get(&path);
        let mut checked = checked.lock().unwrap();
        if answer.status == 200 && answer.body != *checked {
            let state = answer.json();
            let inside = &state["tasks"][0]["state"]["values"]["path"];
            assert!(inside.as_array().unwrap().len() > ITEMS);
            checked.clone_from(&answer.body);
        }
        answer
    });
    watch.held("states of subgraphs", 42 * MIB);
}
