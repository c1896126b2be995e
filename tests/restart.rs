//! What survives a crash and a shutdown.
#![allow(clippy::unwrap_used, reason = "a panic is the failure of the test")]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "child processes live in real time"
)]

mod support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::client::Client;
use support::place::{Place, serve};
use support::server::{Server, Setup};
use support::talk::{self, contents, turn, with};

on_both_storages!(
    a_conversation_goes_on_after_a_crash,
    an_old_turn_can_be_taken_up_after_a_crash,
    a_question_can_be_answered_after_a_crash,
    a_run_that_a_crash_cut_off_ends_as_error_and_frees_its_thread,
    runs_that_waited_behind_a_cut_off_run_are_executed,
    what_a_task_wrote_before_a_crash_is_kept_and_not_done_again,
    a_shutdown_lets_runs_finish_and_ends_streams_cleanly,
    an_idle_server_shuts_down_at_once,
);

fn crash(server: &mut Server) -> Client {
    server.restart();
    Client::of(server)
}

/// A slow run whose every step is on disk before the next.
fn slow(ms: u64, ticks: u64) -> Value {
    with(talk::slow(ms, ticks), "durability", "sync")
}

fn id(state: &Value) -> &str {
    state["checkpoint"]["checkpoint_id"].as_str().unwrap()
}

fn a_conversation_goes_on_after_a_crash(place: &Place) {
    let (mut server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &turn("one"));
    let second = client.run(&thread, &turn("two"));
    let (state, history) = (client.state(&thread), client.history(&thread));

    let client = crash(&mut server);
    assert_eq!(client.state(&thread), state);
    assert_eq!(client.history(&thread), history);
    let third = client.run(&thread, &turn("three"));
    let messages = third["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 6);
    assert_eq!(messages[..4], second["messages"].as_array().unwrap()[..]);
    assert_eq!(messages[4]["content"], "three");
    assert_eq!(client.history(&thread).len(), 9);
}

fn an_old_turn_can_be_taken_up_after_a_crash(place: &Place) {
    let (mut server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &turn("one"));
    let first = client.state(&thread);
    client.run(&thread, &turn("two"));
    let second = client.state(&thread);

    let client = crash(&mut server);
    let mut other = turn("two, otherwise");
    other["checkpoint_id"] = json!(id(&first));
    let third = client.run(&thread, &other);
    let said = contents(&third["messages"]);
    assert_eq!(said.len(), 4);
    assert_eq!((said[0], said[2]), ("one", "two, otherwise"));

    let history = client.history(&thread);
    let ids: Vec<&str> = history.iter().map(id).collect();
    let mut sorted = ids.clone();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(
        (ids.len(), &ids),
        (9, &sorted),
        "newest first, over both lineages"
    );
    // Every checkpoint but the first has its parent in the list, and two go on from turn one.
    let parents: Vec<Option<&str>> = history
        .iter()
        .map(|state| state["parent_checkpoint"]["checkpoint_id"].as_str())
        .collect();
    assert_eq!(parents[8], None);
    assert!(
        parents[..8]
            .iter()
            .all(|parent| ids.contains(&parent.unwrap()))
    );
    let children = parents.iter().filter(|parent| **parent == Some(id(&first)));
    assert_eq!(children.count(), 2);
    // Each lineage is still there as it was.
    for state in [&first, &second] {
        let again = client
            .get(&format!("/threads/{thread}/state/{}", id(state)))
            .json();
        assert_eq!(again["values"], state["values"]);
    }
    assert_eq!(contents(&client.state(&thread)["values"]["messages"]), said);
}

fn a_question_can_be_answered_after_a_crash(place: &Place) {
    let (mut server, client) = serve(place);
    let thread = client.thread();
    let asked = client.run(
        &thread,
        &json!({"assistant_id": "approve", "input": {"request": "pay"}}),
    );
    let question = asked["__interrupt__"][0].clone();
    let client = crash(&mut server);
    let row = client.get(&format!("/threads/{thread}")).json();
    assert_eq!(row["status"], "interrupted");
    let state = client.state(&thread);
    assert_eq!(state["next"], json!(["ask"]));
    assert_eq!(state["tasks"][0]["interrupts"][0]["id"], question["id"]);
    let answered = client.run(
        &thread,
        &json!({"assistant_id": "approve", "command": {"resume": "yes"}}),
    );
    assert_eq!(answered["result"], "answer=yes");
}

fn a_run_that_a_crash_cut_off_ends_as_error_and_frees_its_thread(place: &Place) {
    let (mut server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &slow(1, 1));
    let mut open = client.open_stream(&thread, &slow(60_000, 1));
    open.event_named("custom");
    let run = open.run();
    server.kill();
    assert!(open.breaks(), "a cut stream must not look complete");

    let client = crash(&mut server);
    let row = client.get(&format!("/threads/{thread}/runs/{run}")).json();
    if !place.is_postgres() {
        // One process per file: whoever held the run is dead.
        assert_eq!(row["status"], "error");
    }
    // On Postgres another process may live: its lease has to lapse.
    assert_eq!(client.end_of(&thread, &run), "error");
    let row = client.get(&format!("/threads/{thread}")).json();
    assert_eq!(row["status"], "error");
    assert!(
        row["error"]["message"]
            .as_str()
            .unwrap()
            .contains("process"),
        "{row}"
    );
    assert_eq!(client.state(&thread)["next"], json!(["work"]));
    let next = client.run(&thread, &slow(1, 1));
    assert_eq!(next["seen"], json!(["work", "rest", "work", "rest"]));
    assert_eq!(
        client.get(&format!("/threads/{thread}")).json()["status"],
        "idle"
    );
}

fn runs_that_waited_behind_a_cut_off_run_are_executed(place: &Place) {
    let (mut server, client) = serve(place);
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &slow(60_000, 1));
    open.event_named("custom");
    let waiting = client
        .post(&format!("/threads/{thread}/runs"), &slow(1, 1))
        .json();
    let waiting = waiting["run_id"].as_str().unwrap();
    let client = crash(&mut server);
    let newer = client
        .post(&format!("/threads/{thread}/runs"), &slow(1, 1))
        .json();
    assert_eq!(client.end_of(&thread, waiting), "success");
    assert_eq!(
        client.end_of(&thread, newer["run_id"].as_str().unwrap()),
        "success"
    );
    assert_eq!(
        client.state(&thread)["values"]["seen"],
        json!(["work", "rest", "work", "rest"])
    );
}

fn what_a_task_wrote_before_a_crash_is_kept_and_not_done_again(place: &Place) {
    let mut server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let [gate, trace] = ["gate", "trace"].map(|name| server.folder().join(name));
    let body = json!({"assistant_id": "pair", "input": {"gate": gate, "trace": trace}});
    let open = client.open_stream(&thread, &body);
    let run = open.run();
    let result = |client: &Client| {
        let state = client.state(&thread);
        let tasks = state["tasks"].as_array().unwrap();
        let quick = tasks.iter().find(|task| task["name"] == "quick");
        quick.map_or(Value::Null, |task| task["result"].clone())
    };
    while result(&client).is_null() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let client = crash(&mut server);
    assert_eq!(client.end_of(&thread, &run), "error");
    assert_eq!(result(&client), json!({"done": ["quick"]}));
    std::fs::write(&gate, "").unwrap();
    let values = client.run(&thread, &json!({"assistant_id": "pair"}));
    assert_eq!(values["done"], json!(["quick", "stuck"]));
    assert_eq!(std::fs::read_to_string(trace).unwrap(), "quick\n");
}

fn a_shutdown_lets_runs_finish_and_ends_streams_cleanly(place: &Place) {
    let (mut server, client) = serve(place);
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &slow(300, 2));
    open.event_named("custom");
    let run = open.run();
    let waiting = {
        let (client, thread) = (client.clone(), client.thread());
        std::thread::spawn(move || client.run(&thread, &slow(300, 2)))
    };
    std::thread::sleep(Duration::from_millis(100));
    let begin = Instant::now();
    let status = server.terminate();
    let took = begin.elapsed();
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(!open.breaks());
    assert_eq!(waiting.join().unwrap()["seen"], json!(["work", "rest"]));

    let client = crash(&mut server);
    assert_eq!(
        client.get(&format!("/threads/{thread}/runs/{run}")).json()["status"],
        "success"
    );
    assert_eq!(
        client.state(&thread)["values"]["seen"],
        json!(["work", "rest"])
    );
}

fn an_idle_server_shuts_down_at_once(place: &Place) {
    let (mut server, client) = serve(place);
    client.run(&client.thread(), &slow(1, 1));
    let begin = Instant::now();
    assert_eq!(server.terminate().code(), Some(0));
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
}
