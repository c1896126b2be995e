//! Large states that are looked at before something is changed, and those of subgraphs: they take memory of the
//! budget too.

use std::thread::scope;

use serde_json::{Value, json};
use test_support::client::{Answer, Client};
use test_support::http2::Unread;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk::{agent_thread, ok, until};

use crate::siege::{MIB, Watch, rounds};

on_both_storages!(
    states_that_branches_forks_and_messages_look_at_are_read_a_few_at_a_time,
    a_client_whose_memory_is_taken_changes_its_threads_all_the_same,
    states_of_subgraphs_take_memory_of_the_budget,
);

/// So many items take six mebibytes in memory, and a fifth of one where they are stored.
const ITEMS: usize = 200_000;
/// Clients at the same time.
const CLIENTS: usize = 28;

fn setup() -> Setup {
    Setup::example("reference_server")
        .env("BACKSTITCH_MEMORY_BUDGET", "96")
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
    for _ in 0..rounds() {
        scope(|scope| {
            for thread in threads {
                let request = &request;
                scope.spawn(move || {
                    until("the memory is free", || {
                        let answer = request(thread);
                        if answer.status == 503 {
                            assert!(answer.header("retry-after").is_some());
                            return false;
                        }
                        assert!(answer.status < 300, "{}", answer.text());
                        true
                    });
                });
            }
        });
    }
}

fn states_that_branches_forks_and_messages_look_at_are_read_a_few_at_a_time(place: &Place) {
    let mut server = place.start(setup());
    let threads = conversations(&Client::of(&server), CLIENTS);
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    all_at_once(&threads, |thread| {
        client.post(&format!("/threads/{thread}/branches"), &json!({}))
    });
    all_at_once(&threads, |thread| {
        client.post(&format!("/threads/{thread}/fork"), &json!({}))
    });
    watch.held("branches and forks of large states", 80 * MIB);
    // Nothing of them is in memory any more.
    server.restart();
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    let message = json!({"role": "user", "content": "and then?"});
    all_at_once(&threads, |thread| {
        client.post(&format!("/threads/{thread}/messages"), &message)
    });
    watch.held("messages posted to large states", 80 * MIB);
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
    watch.held("a client whose memory is taken", 96 * MIB);
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
    all_at_once(&vec![thread; CLIENTS], |_| {
        let answer = client.get(&path);
        if answer.status == 200 {
            let state = answer.json();
            let inside = &state["tasks"][0]["state"]["values"]["path"];
            assert!(inside.as_array().unwrap().len() > ITEMS);
        }
        answer
    });
    watch.held("states of subgraphs", 60 * MIB);
}
