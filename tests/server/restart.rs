//! What survives a crash and a shutdown.
use std::time::{Duration, Instant};
use test_support::on_both_storages;

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::place::{Place, serve};
use test_support::server::{Server, Setup};
use test_support::tables::execute;
use test_support::talk::{self, background, contents, ok, turn, until, with};

on_both_storages!(
    a_conversation_goes_on_after_a_crash,
    an_old_turn_can_be_taken_up_after_a_crash,
    a_question_can_be_answered_after_a_crash,
    a_run_that_a_crash_cut_off_is_taken_up_where_it_stopped,
    runs_that_waited_behind_a_cut_off_run_are_executed_after_it,
    a_stored_request_that_cannot_be_read_fails_its_run_and_no_other,
    what_a_task_wrote_before_a_crash_is_kept_and_not_done_again,
    a_shutdown_lets_runs_finish_and_ends_streams_cleanly,
    a_shutdown_hands_over_what_does_not_end_in_time,
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

/// A server whose runs others may take over soon.
fn soon_replaced(place: &Place, example: &str) -> (Server, Client) {
    let server = place.start(Setup::example(example).env("BACKSTITCH_LEASE", "1"));
    let client = Client::of(&server);
    (server, client)
}

/// A run one of whose two nodes waits until somebody makes the file `gate` in the folder of the server.
fn pair(server: &Server) -> Value {
    let [gate, trace] = ["gate", "trace"].map(|name| server.folder().join(name));
    json!({"assistant_id": "pair", "input": {"gate": gate, "trace": trace}})
}

fn a_run_that_a_crash_cut_off_is_taken_up_where_it_stopped(place: &Place) {
    let (mut server, client) = soon_replaced(place, "reference_server");
    let thread = client.thread();
    client.run(&thread, &slow(1, 1));
    let mut body = slow(1500, 2);
    body["stream_resumable"] = json!(true);
    let mut open = client.open_stream(&thread, &body);
    let seen = open.event_named("custom").id.unwrap();
    let run = open.run();
    server.kill();
    assert!(open.breaks(), "a cut stream must not look complete");

    let client = crash(&mut server);
    if !place.is_postgres() {
        // One process per file: whoever held the run is dead.
        let row = client.get(&format!("/threads/{thread}/runs/{run}")).json();
        assert_eq!(row["status"], "running");
    }
    // Who saw some events of the first attempt is shown all of the second one.
    let path = format!("/threads/{thread}/runs/{run}/stream");
    let mut again = client.open("GET", &path, &[("last-event-id", &seen)], b"");
    let mut again = std::iter::from_fn(|| again.event());
    let metadata = again.next().unwrap();
    assert_eq!(
        (&*metadata.name, metadata.data),
        ("metadata", json!({"run_id": run, "attempt": 2}))
    );
    assert!(again.any(|event| event.name == "custom"));
    assert_eq!(client.end_of(&thread, &run), "success");
    let seen = client.state(&thread)["values"]["seen"].clone();
    assert_eq!(seen, json!(["work", "rest", "work", "rest"]));
    let row = client.get(&format!("/threads/{thread}")).json();
    assert_eq!(row["status"], "idle");
    // A checkpoint for each step, none twice.
    assert_eq!(client.history(&thread).len(), 8);
}

fn runs_that_waited_behind_a_cut_off_run_are_executed_after_it(place: &Place) {
    let (mut server, client) = soon_replaced(place, "reference_server");
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &slow(300, 2));
    open.event_named("custom");
    let cut = open.run();
    let waiting = client
        .post(&format!("/threads/{thread}/runs"), &slow(1, 1))
        .json();
    let waiting = waiting["run_id"].as_str().unwrap();
    let client = crash(&mut server);
    let newer = client
        .post(&format!("/threads/{thread}/runs"), &slow(1, 1))
        .json();
    for run in [&cut, waiting, newer["run_id"].as_str().unwrap()] {
        assert_eq!(client.end_of(&thread, run), "success");
    }
    let seen = client.state(&thread)["values"]["seen"].clone();
    assert_eq!(seen.as_array().unwrap().len(), 6);
}

fn a_stored_request_that_cannot_be_read_fails_its_run_and_no_other(place: &Place) {
    let (mut server, client) = soon_replaced(place, "faulty_server");
    let threads = [(); 2].map(|()| client.thread());
    // None of them ends before the gate is there.
    let gate = server.folder().join("gate");
    let body = pair(&server);
    let runs = threads.each_ref().map(|thread| {
        let run = background(&client, thread, &body);
        until("it is executed", || {
            !talk::result_of(&client, thread, "quick").is_null()
        });
        let queued = [(); 2].map(|()| background(&client, thread, &body));
        (run, queued)
    });
    server.kill();
    std::fs::write(&gate, "").unwrap();
    let [(first, _), (_, [second_queued, _])] = &runs;
    // One that was executed, and one that waits behind another.
    for run in [first, second_queued] {
        let sql = if place.is_postgres() {
            format!(r"UPDATE runs SET kwargs = '\xff' WHERE run_id = '{run}'")
        } else {
            let id = run.replace('-', "");
            format!("UPDATE runs SET kwargs = x'ff' WHERE run_id = x'{id}'")
        };
        assert_eq!(execute(place, &server, &sql), Ok(1));
    }
    let client = crash(&mut server);
    for (thread, (run, queued)) in threads.iter().zip(&runs) {
        for run in [run, &queued[0], &queued[1]] {
            let is_damaged = [first, second_queued].contains(&run);
            let end = if is_damaged { "error" } else { "success" };
            assert_eq!(client.end_of(thread, run), end);
        }
        let listed = ok(client.get(&format!("/threads/{thread}/runs")), 200);
        assert_eq!(listed.as_array().unwrap().len(), 3);
    }
    let path = format!("/threads/{}/runs/{first}/join", threads[0]);
    let joined = ok(client.get(&path), 200);
    let told = joined["__error__"]["message"].as_str().unwrap();
    assert!(told.contains("stored request cannot be read"), "{joined}");
}

fn what_a_task_wrote_before_a_crash_is_kept_and_not_done_again(place: &Place) {
    let (mut server, client) = soon_replaced(place, "faulty_server");
    let thread = client.thread();
    let [gate, trace] = ["gate", "trace"].map(|name| server.folder().join(name));
    let open = client.open_stream(&thread, &pair(&server));
    let run = open.run();
    let result = |client: &Client| talk::result_of(client, &thread, "quick");
    until("the result of the quick node is stored", || {
        !result(&client).is_null()
    });
    let client = crash(&mut server);
    assert_eq!(result(&client), json!({"done": ["quick"]}));
    std::fs::write(&gate, "").unwrap();
    assert_eq!(client.end_of(&thread, &run), "success");
    let values = client.state(&thread)["values"].clone();
    assert_eq!(values["done"], json!(["quick", "stuck"]));
    assert_eq!(std::fs::read_to_string(trace).unwrap(), "quick\n");
}

fn a_shutdown_lets_runs_finish_and_ends_streams_cleanly(place: &Place) {
    let (mut server, client) = serve(place);
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &slow(300, 4));
    open.event_named("custom");
    let run = open.run();
    let other = client.thread();
    let runs = format!("/threads/{other}/runs");
    let waiting = {
        let client = client.clone();
        std::thread::spawn(move || client.run(&other, &slow(300, 4)))
    };
    until("the other run works", || {
        client.get(&runs).json()[0]["status"] == "running"
    });
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

fn a_shutdown_hands_over_what_does_not_end_in_time(place: &Place) {
    let setup = Setup::example("faulty_server").env("BACKSTITCH_LEASE", "3");
    let mut server = place.start(setup.env("BACKSTITCH_DRAIN", "0"));
    let client = Client::of(&server);
    let thread = client.thread();
    let body = with(pair(&server), "durability", "sync");
    let waiting = {
        let (client, thread) = (client.clone(), thread.clone());
        let path = format!("/threads/{thread}/runs/wait");
        let body = body.to_string();
        std::thread::spawn(move || client.open("POST", &path, &[], body.as_bytes()).breaks())
    };
    let runs = format!("/threads/{thread}/runs");
    let run = loop {
        if let Some(run) = client.get(&runs).json()[0]["run_id"].as_str() {
            break run.to_owned();
        }
    };
    // More often than processes may die over it.
    for round in 0..5 {
        assert_eq!(server.terminate().code(), Some(0), "round {round}");
        server.restart();
        let row = Client::of(&server).get(&format!("{runs}/{run}")).json();
        assert_eq!(row["status"], "running", "round {round}");
    }
    assert!(waiting.join().unwrap(), "its client would not come back");
    std::fs::write(server.folder().join("gate"), "").unwrap();
    let client = Client::of(&server);
    assert_eq!(client.end_of(&thread, &run), "success");
    assert_eq!(
        client.state(&thread)["values"]["done"],
        json!(["quick", "stuck"])
    );
}

fn an_idle_server_shuts_down_at_once(place: &Place) {
    let (mut server, client) = serve(place);
    client.run(&client.thread(), &slow(1, 1));
    // Of several times the shortest: the others may have waited for a processor.
    let mut shortest = Duration::MAX;
    for _ in 0..5 {
        let begin = Instant::now();
        assert_eq!(server.terminate().code(), Some(0));
        shortest = shortest.min(begin.elapsed());
        if shortest < Duration::from_secs(1) {
            return;
        }
        server.restart();
        let client = Client::of(&server);
        client.run(&client.thread(), &slow(1, 1));
    }
    panic!("{shortest:?}");
}
