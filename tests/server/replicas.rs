//! Several processes on one Postgres database.
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::tables::rows;
use test_support::talk::{self, background, ok, until, with};

/// Two servers on one database, and a client of each.
fn two() -> (Place, [Server; 2], [Client; 2]) {
    two_of("reference_server")
}

/// The same of another server. Neither takes over runs of the other one when that only waits for a processor.
fn two_of(example: &str) -> (Place, [Server; 2], [Client; 2]) {
    let place = Place::postgres();
    let setup = Setup::example(example).env("BACKSTITCH_LEASE", "6");
    let one = place.start(setup);
    let two = one.replica();
    let clients = [Client::of(&one), Client::of(&two)];
    (place, [one, two], clients)
}

/// A slow run whose every step is on disk before the next.
fn slow(ms: u64, ticks: u64) -> Value {
    with(talk::slow(ms, ticks), "durability", "sync")
}

/// A run of `faulty_server` that goes on until somebody makes this file, and whose every step is on disk before the next.
fn pair(server: &Server, gate: &str) -> Value {
    let [gate, trace] = [gate, "trace"].map(|name| server.folder().join(name));
    json!({
        "assistant_id": "pair",
        "input": {"gate": gate, "trace": trace},
        "stream_mode": ["values", "custom"],
        "durability": "sync",
    })
}

/// Lets such a run go on.
fn open_gate(server: &Server, gate: &str) {
    std::fs::write(server.folder().join(gate), "").unwrap();
}

#[test]
fn a_thread_goes_on_at_any_process() {
    let (_place, _servers, [one, two]) = two();
    let thread = one.thread();
    for (client, runs) in [(&one, 1), (&two, 2), (&one, 3), (&two, 4)] {
        let values = client.run(&thread, &slow(1, 1));
        assert_eq!(values["seen"].as_array().unwrap().len(), 2 * runs);
    }
    assert_eq!(one.state(&thread), two.state(&thread));
    assert_eq!(one.history(&thread), two.history(&thread));
}

#[test]
fn one_thread_has_one_run_at_a_time_over_all_processes() {
    let (_place, servers, [one, two]) = two_of("faulty_server");
    let thread = one.thread();
    let body = pair(&servers[0], "gate");
    let first = background(&one, &thread, &body);
    until("it is executed", || {
        !talk::result_of(&one, &thread, "quick").is_null()
    });
    let mut second = body;
    second["multitask_strategy"] = json!("reject");
    two.post(&format!("/threads/{thread}/runs"), &second)
        .refused(409);
    second["multitask_strategy"] = json!("enqueue");
    let queued = two.post(&format!("/threads/{thread}/runs"), &second).json();
    assert_eq!(queued["status"], "pending");
    open_gate(&servers[0], "gate");
    assert_eq!(
        two.end_of(&thread, queued["run_id"].as_str().unwrap()),
        "success"
    );
    assert_eq!(one.end_of(&thread, &first), "success");
    assert_eq!(
        two.state(&thread)["values"]["done"],
        json!(["quick", "stuck", "quick", "stuck"])
    );
}

#[test]
fn a_run_is_cancelled_from_another_process() {
    let (_place, _servers, [one, two]) = two();
    let thread = one.thread();
    let mut open = one.open_stream(&thread, &slow(100, 1000));
    open.event_named("custom");
    let run = open.run();
    let cancel = format!("/threads/{thread}/runs/{run}/cancel");
    let answer = two.send("POST", &cancel, &[], b"");
    assert_eq!(answer.status, 202, "{}", answer.text());
    assert_eq!(two.end_of(&thread, &run), "interrupted");
    // Whatever the first process still does, it writes nothing more.
    assert_eq!(
        two.run(&thread, &slow(1, 1))["seen"],
        json!(["work", "rest"])
    );
    while let Some(event) = open.event() {
        assert_ne!(event.name, "error", "{event:?}");
    }
    assert_eq!(
        two.state(&thread)["values"]["seen"],
        json!(["work", "rest"])
    );
    assert_eq!(one.end_of(&thread, &run), "interrupted");
}

#[test]
fn a_frozen_process_that_wakes_after_its_lease_writes_nothing() {
    let (_place, servers, [one, two]) = two();
    let thread = one.thread();
    let mut open = one.open_stream(&thread, &slow(400, 3));
    open.event_named("custom");
    let run = open.run();
    servers[0].signal("STOP");
    assert_eq!(two.end_of(&thread, &run), "success");
    let state = two.state(&thread);
    assert_eq!(state["values"]["seen"], json!(["work", "rest"]));
    servers[0].signal("CONT");
    // Its stream ends when it learns that the run has ended elsewhere.
    while let Some(event) = open.event() {
        assert_ne!(event.name, "error", "{event:?}");
    }
    assert_eq!(two.state(&thread), state);
    assert_eq!(one.end_of(&thread, &run), "success");
    // It is a healthy process again.
    let seen = one.run(&thread, &slow(1, 1))["seen"].clone();
    assert_eq!(seen, json!(["work", "rest", "work", "rest"]));
}

/// The one text that a statement selects.
fn select(place: &Place, server: &Server, statement: &str) -> String {
    rows(place, server, statement)[0][0].clone().unwrap()
}

/// Checks that one process alone has executed the run, from its beginning to its end.
fn nobody_took_over(place: &Place, servers: &[Server; 2]) {
    assert_eq!(
        select(place, &servers[0], "SELECT attempt::text FROM runs"),
        "1"
    );
    for server in servers {
        assert!(!server.output().contains("took over runs"));
    }
}

#[test]
fn a_process_that_freezes_for_less_than_its_lease_keeps_its_runs() {
    let place = Place::postgres();
    // The other process looks for lost runs often, and the one that freezes has time enough to renew its lease.
    let setup = |lease: &str| Setup::example("reference_server").env("BACKSTITCH_LEASE", lease);
    let servers = [place.start(setup("15")), place.start(setup("2"))];
    let [one, two] = [Client::of(&servers[0]), Client::of(&servers[1])];
    let thread = one.thread();
    let mut open = one.open_stream(&thread, &slow(100, 250));
    open.event_named("custom");
    let lease = "SELECT lease_until::text FROM workers JOIN runs USING (worker_id)";
    let lease = || select(&place, &servers[0], lease);
    for _ in 0..2 {
        let before = lease();
        until("the lease is renewed", || lease() != before);
        servers[0].signal("STOP");
        // Two of its renewals are missed.
        std::thread::sleep(Duration::from_secs(11));
        servers[0].signal("CONT");
        open.event_named("custom");
    }
    assert_eq!(two.end_of(&thread, &open.run()), "success");
    nobody_took_over(&place, &servers);
}

#[test]
fn a_process_whose_lease_has_lapsed_and_that_renews_it_before_others_look_keeps_its_runs() {
    let place = Place::postgres();
    // The other process looks for lost runs often, and this one has time enough to renew its lease.
    let setup = |lease: &str| Setup::example("reference_server").env("BACKSTITCH_LEASE", lease);
    let servers = [place.start(setup("6")), place.start(setup("2"))];
    let [one, two] = [Client::of(&servers[0]), Client::of(&servers[1])];
    let thread = one.thread();
    let mut open = one.open_stream(&thread, &slow(100, 60));
    open.event_named("custom");
    let valid = "SELECT count(*)::text FROM workers WHERE lease_until > now()";
    let valid = || select(&place, &servers[0], valid);
    for _ in 0..2 {
        servers[1].signal("STOP");
        servers[0].signal("STOP");
        until("all leases have lapsed", || valid() == "0");
        servers[0].signal("CONT");
        until("the lease is renewed", || valid() == "1");
        servers[1].signal("CONT");
        open.event_named("custom");
    }
    assert_eq!(two.end_of(&thread, &open.run()), "success");
    nobody_took_over(&place, &servers);
}

#[test]
fn who_waits_at_a_frozen_process_is_told_the_end_that_another_one_wrote() {
    let (_place, servers, [one, two]) = two();
    let thread = one.thread();
    let body = slow(4000, 1);
    let waiting = {
        let (client, thread) = (one, thread.clone());
        std::thread::spawn(move || client.run(&thread, &body))
    };
    let runs = format!("/threads/{thread}/runs");
    let run = loop {
        if let Some(run) = two.get(&runs).json()[0]["run_id"].as_str() {
            break run.to_owned();
        }
    };
    servers[0].signal("STOP");
    let path = format!("{runs}/{run}/stream");
    let taken = || {
        two.open("GET", &path, &[("last-event-id", "-")], b"")
            .event()
    };
    until("the other process has taken the run", || taken().is_some());
    // The other one is still at it.
    servers[0].signal("CONT");
    assert_eq!(waiting.join().unwrap()["seen"], json!(["work", "rest"]));
    assert_eq!(two.end_of(&thread, &run), "success");
    assert_eq!(
        two.state(&thread)["values"]["seen"],
        json!(["work", "rest"])
    );
}

#[test]
fn a_stream_ends_with_its_run_whichever_process_executes_it() {
    let (_place, _servers, [one, two]) = two();
    let thread = one.thread();
    let mut first = one.open_stream(&thread, &slow(300, 2));
    first.event_named("custom");
    // Queued at the second process; when the first run ends, the first process hears of it
    // before the other, and is likely to take it.
    let second = two.run(&thread, &slow(1, 1));
    assert_eq!(second["seen"].as_array().unwrap().len(), 4, "{second}");
    assert_eq!(one.state(&thread)["values"], second);
}

#[test]
fn a_stream_joined_at_another_process_tells_how_the_run_ends() {
    let (_place, servers, [one, two]) = two_of("faulty_server");
    let thread = one.thread();
    let mut open = one.open_stream(&thread, &pair(&servers[0], "gate"));
    open.event().unwrap();
    let path = format!("/threads/{thread}/runs/{}/stream", open.run());
    let mut joined = two.open("GET", &path, &[], b"");
    open_gate(&servers[0], "gate");
    let told: Vec<_> = std::iter::from_fn(|| joined.event()).collect();
    let names: Vec<&str> = told.iter().map(|event| &*event.name).collect();
    assert_eq!(names, ["metadata", "values"]);
    assert_eq!(told[0].data["run_id"], open.run());
    assert_eq!(told[1].data["done"], json!(["quick", "stuck"]));
    // Of one that has ended there is nothing more to come.
    let mut joined = two.open("GET", &path, &[], b"");
    assert_eq!(joined.event(), None);
}

#[test]
fn who_waits_at_another_process_gets_what_the_run_left_on_its_branch() {
    let (_place, servers, [one, two]) = two_of("faulty_server");
    let thread = one.thread();
    open_gate(&servers[0], "first");
    one.run(&thread, &pair(&servers[0], "first"));
    let side = json!({"name": "side", "activate": false});
    ok(one.post(&format!("/threads/{thread}/branches"), &side), 201);
    let body = with(pair(&servers[0], "gate"), "branch", "side");
    let mut open = one.open_stream(&thread, &body);
    open.event().unwrap();
    let path = format!("/threads/{thread}/runs/{}", open.run());
    let mut joined = two.open("GET", &format!("{path}/stream"), &[], b"");
    // Its head is there as soon as it waits.
    let mut waiting = two.open("GET", &format!("{path}/join"), &[], b"");
    assert_eq!(waiting.status, 200);
    open_gate(&servers[0], "gate");
    let values: Value = serde_json::from_slice(&waiting.rest()).unwrap();
    assert_eq!(values["done"].as_array().unwrap().len(), 4, "{values}");
    assert_eq!(joined.event_named("values").data, values);
    let shown = two.state(&thread)["values"]["done"].clone();
    assert_eq!(shown.as_array().unwrap().len(), 2, "{shown}");
}

#[test]
fn who_waits_at_another_process_gets_nothing_of_a_later_run() {
    let (_place, _servers, [one, two]) = two();
    let thread = one.thread();
    let mut open = one.open_stream(&thread, &slow(200, 4));
    open.event_named("custom");
    let path = format!("/threads/{thread}/runs/{}/join", open.run());
    let next = background(&one, &thread, &slow(100, 3000));
    let values = ok(two.get(&path), 200);
    assert_eq!((&values["ms"], &values["ticks"]), (&json!(200), &json!(4)));
    let cancel = format!("/threads/{thread}/runs/{next}/cancel?wait=true&action=rollback");
    assert_eq!(two.send("POST", &cancel, &[], b"").status, 200);
}

#[test]
fn cancelling_at_another_process_waits_until_the_run_has_stored_its_work_and_ended() {
    let (_place, _servers, [one, two]) = two();
    // A machine that is too slow for that once is so not each time.
    let in_time = (0..10).any(|_| is_cancelled_in_time(&one, &two));
    assert!(in_time, "the run stores its work in time once");
}

/// False if that takes so long that the run may be ended without its work: a second until the other process learns of
/// it, and two until it has stored it.
fn is_cancelled_in_time(one: &Client, two: &Client) -> bool {
    let thread = one.thread();
    // Its state is stored when it ends and not before: a run that is cut off has none.
    let body = with(talk::slow(6000, 1), "durability", "exit");
    let body = with(
        body,
        "input",
        json!({"ms": 6000, "ticks": 1, "seen": ["before"]}),
    );
    let mut open = one.open_stream(&thread, &body);
    open.event_named("values");
    let run = open.run();
    let cancel = format!("/threads/{thread}/runs/{run}/cancel?wait=1");
    let begin = Instant::now();
    let answer = two.send("POST", &cancel, &[], b"");
    if begin.elapsed() >= Duration::from_secs(3) {
        return false;
    }
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["seen"], json!(["before"]));
    let row = two.get(&format!("/threads/{thread}/runs/{run}")).json();
    assert_eq!(row["status"], "interrupted");
    let shown = two.get(&format!("/threads/{thread}")).json();
    assert_eq!(shown["error"]["error"], "UserInterrupt");
    assert_eq!(two.state(&thread)["values"]["seen"], json!(["before"]));
    assert_eq!(two.state(&thread)["next"], json!(["work"]));
    while let Some(event) = open.event() {
        assert!(["custom", "values"].contains(&&*event.name), "{event:?}");
    }
    two.send("POST", &cancel, &[], b"").refused(404);
    true
}

#[test]
fn a_run_of_a_frozen_process_is_cancelled_without_it() {
    let (_place, servers, [one, two]) = two();
    let thread = one.thread();
    let mut open = one.open_stream(&thread, &slow(200, 1000));
    open.event_named("custom");
    let run = open.run();
    servers[0].signal("STOP");
    let cancel = format!("/threads/{thread}/runs/{run}/cancel?wait=1");
    let answer = two.send("POST", &cancel, &[], b"");
    servers[0].signal("CONT");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(two.end_of(&thread, &run), "interrupted");
    // What it was about to write when it froze has no effect.
    while let Some(event) = open.event() {
        assert_ne!(event.name, "error", "{event:?}");
    }
    assert_eq!(one.end_of(&thread, &run), "interrupted");
}

#[test]
fn a_run_is_rolled_back_from_another_process() {
    let (_place, _servers, [one, two]) = two();
    let thread = one.thread();
    one.run(&thread, &slow(1, 1));
    let mut open = one.open_stream(&thread, &slow(100, 1000));
    open.event_named("custom");
    let run = open.run();
    let cancel = format!("/threads/{thread}/runs/{run}/cancel?wait=1&action=rollback");
    let answer = two.send("POST", &cancel, &[], b"");
    assert_eq!((answer.status, answer.json()), (200, json!({})));
    two.get(&format!("/threads/{thread}/runs/{run}"))
        .refused(404);
    assert_eq!(
        two.state(&thread)["values"]["seen"],
        json!(["work", "rest"])
    );
    // The process that executed it learns of that long before the run would have ended.
    while open.event().is_some() {}
}
