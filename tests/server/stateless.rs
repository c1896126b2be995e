//! Stateless runs by their id alone: where the `Location` of their streams leads.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::client::{Client, Event, Open};
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::{Server, Setup};
use test_support::talk::{ok, slow, until, with};

on_both_storages!(
    the_location_of_a_stateless_stream_leads_back_to_it,
    the_end_of_a_stateless_run_that_can_be_resumed_outlives_a_restart,
    a_stateless_run_is_joined_by_its_id_as_long_as_it_exists,
    a_stream_that_cannot_be_resumed_shows_what_comes_from_now_on,
    who_leaves_a_stateless_run_cancels_it_when_asked,
    ids_of_runs_that_are_not_there_are_refused,
    a_stateless_run_is_its_creators_also_after_its_end,
    a_stateless_run_that_is_deleted_leaves_no_thread,
    a_thread_that_has_outlived_its_stateless_run_stays_when_that_is_deleted,
);

fn open(client: &Client, body: &Value) -> Open {
    client.open("POST", "/runs/stream", &[], body.to_string().as_bytes())
}

fn rest(mut open: Open) -> Vec<Event> {
    assert_eq!(open.status, 200);
    std::iter::from_fn(|| open.event()).collect()
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| &*event.name).collect()
}

fn the_location_of_a_stateless_stream_leads_back_to_it(place: &Place) {
    let (_server, client) = serve(place);
    let mut first = open(&client, &with(slow(150, 3), "stream_resumable", true));
    let seen = first.event_named("custom");
    let path = first.header("location").unwrap().to_owned();
    assert_eq!(path, format!("/runs/{}/stream", first.run()));
    drop(first);
    let last = [("last-event-id", seen.id.as_deref().unwrap())];
    let again = client.open("GET", &path, &last, b"");
    assert_eq!(again.header("location"), Some(&*path));
    assert_eq!(
        names(&rest(again)),
        ["custom", "custom", "values", "values"]
    );
    // The run and its thread are gone now; its stream is there for a while.
    let whole = rest(client.open("GET", &path, &[("last-event-id", "-1")], b""));
    assert_eq!((whole.len(), &*whole[0].name), (7, "metadata"));
    let custom = rest(client.open(
        "GET",
        &format!("{path}?stream_mode=custom"),
        &[("last-event-id", "-1")],
        b"",
    ));
    assert_eq!(names(&custom), ["custom", "custom", "custom"]);
    let join = path.replace("/stream", "/join");
    let values = ok(client.get(&join), 200);
    assert_eq!(values, whole[6].data);
    assert_eq!(values["seen"], json!(["work", "rest"]));
}

/// A stateless run whose stream can be resumed, to its end: where its stream is.
fn ended(client: &Client, body: &Value) -> String {
    let mut first = open(client, &with(body.clone(), "stream_resumable", true));
    while first.event().is_some() {}
    let path = first.header("location").unwrap().to_owned();
    path.strip_suffix("/stream").unwrap().to_owned()
}

fn the_end_of_a_stateless_run_that_can_be_resumed_outlives_a_restart(place: &Place) {
    let (mut server, client) = serve(place);
    let values = ended(&client, &slow(1, 2));
    let only_custom = ended(&client, &with(slow(1, 2), "stream_mode", json!(["custom"])));
    let input = json!({"assistant_id": "failing", "input": {"fail": true}});
    let failed = ended(&client, &input);
    let input = json!({"assistant_id": "approve", "input": {"request": "pay"}});
    let waits = ended(&client, &input);
    let joined = |client: &Client| {
        let all = [&values, &only_custom, &failed, &waits];
        all.map(|run| ok(client.get(&format!("{run}/join")), 200))
    };
    let before = joined(&client);
    let [end, nothing, failure, interrupted] = &before;
    assert_eq!(end["seen"], json!(["work", "rest"]));
    // What it did not show is gone with its thread.
    assert_eq!(nothing, &json!({}));
    assert!(failure["__error__"]["error"].is_string(), "{failure}");
    assert_eq!(
        interrupted["__interrupt__"][0]["value"]["question"],
        "approve?"
    );
    server.restart();
    assert_eq!(joined(&Client::of(&server)), before);
    let foreign = format!("/threads/{}{}/join", uuid::Uuid::now_v7(), values);
    let body = Client::of(&server).get(&foreign).text().to_owned();
    assert!(!body.contains("seen"), "{body}");
}

#[test]
fn a_stateless_run_is_read_at_another_process_while_it_runs_and_after_its_end() {
    let place = Place::postgres();
    let (server, one) = serve(&place);
    let second = server.replica();
    let two = Client::of(&second);
    let mut live = open(&one, &with(slow(50, 10), "stream_resumable", true));
    live.event_named("custom");
    let path = live.header("location").unwrap().to_owned();
    let last = [("last-event-id", "-1")];
    let there = rest(two.open("GET", &path, &last, b""));
    assert_eq!(
        names(&there)
            .iter()
            .filter(|name| **name == "custom")
            .count(),
        10
    );
    while live.event().is_some() {}
    for client in [&one, &two] {
        assert_eq!(rest(client.open("GET", &path, &last, b"")), there);
        let join = path.replace("/stream", "/join");
        assert_eq!(ok(client.get(&join), 200)["seen"], json!(["work", "rest"]));
    }
    // Who waits elsewhere for one that is still executed gets its values too.
    let made = ok(
        one.post("/runs", &with(slow(100, 10), "stream_resumable", true)),
        200,
    );
    let join = format!("/runs/{}/join", made["run_id"].as_str().unwrap());
    assert_eq!(ok(two.get(&join), 200)["seen"], json!(["work", "rest"]));
}

fn a_stateless_run_is_joined_by_its_id_as_long_as_it_exists(place: &Place) {
    let (_server, client) = serve(place);
    let made = ok(client.post("/runs", &slow(1000, 2)), 200);
    let path = format!("/runs/{}", made["run_id"].as_str().unwrap());
    let joined = client.get(&format!("{path}/join"));
    assert_eq!(joined.json()["seen"], json!(["work", "rest"]));
    assert_eq!(joined.header("content-type"), Some("application/json"));
    for door in ["join", "stream"] {
        let path = format!("{path}/{door}");
        until("the run is gone", || client.get(&path).status == 404);
        assert_eq!(client.get(&path).refused(404), "Run not found");
    }
    // One that is kept goes on existing.
    let kept = with(slow(1, 1), "on_completion", "keep");
    let made = ok(client.post("/runs", &kept), 200);
    let (thread, run) = (&made["thread_id"], made["run_id"].as_str().unwrap());
    client.end_of(thread.as_str().unwrap(), run);
    let joined = client.get(&format!("/runs/{run}/join")).json();
    assert_eq!(joined["seen"], json!(["work", "rest"]));
    let stream = client.open("GET", &format!("/runs/{run}/stream"), &[], b"");
    assert_eq!(names(&rest(stream)), [""; 0]);
}

fn a_stream_that_cannot_be_resumed_shows_what_comes_from_now_on(place: &Place) {
    let (_server, client) = serve(place);
    let joined = || {
        let begin = Instant::now();
        let mut first = open(&client, &slow(2000, 2));
        first.event_named("custom");
        let path = first.header("location").unwrap().to_owned();
        let again = client.open("GET", &path, &[("last-event-id", "-1")], b"");
        // Later than that the second event may have been before.
        (begin.elapsed() < Duration::from_secs(2)).then_some((first, again))
    };
    let mut attempts = std::iter::repeat_with(joined).take(10).flatten();
    let (_first, again) = attempts.next().unwrap();
    let again = rest(again);
    assert_eq!(names(&again), ["custom", "values", "values"]);
    assert!(again.iter().all(|event| event.id.is_none()));
}

fn who_leaves_a_stateless_run_cancels_it_when_asked(place: &Place) {
    let (_server, client) = serve(place);
    let body = with(slow(100, 200), "on_completion", "keep");
    let made = ok(client.post("/runs", &body), 200);
    let (thread, run) = (&made["thread_id"], made["run_id"].as_str().unwrap());
    let path = format!("/runs/{run}/stream?cancel_on_disconnect=true");
    let mut watched = client.open("GET", &path, &[], b"");
    watched.event_named("custom");
    drop(watched);
    assert_eq!(client.end_of(thread.as_str().unwrap(), run), "interrupted");
}

fn ids_of_runs_that_are_not_there_are_refused(place: &Place) {
    let (_server, client) = serve(place);
    let id = uuid::Uuid::now_v7();
    for door in ["join", "stream"] {
        assert_eq!(
            client.get(&format!("/runs/{id}/{door}")).refused(404),
            "Run not found"
        );
        let detail = client.get(&format!("/runs/nope/{door}")).refused(422);
        assert_eq!(detail, "Invalid run ID: must be a UUID");
        let path = format!("/runs/{id}/{door}?cancel_on_disconnect=perhaps");
        client.get(&path).refused(422);
        let answer = client.post(&format!("/runs/{id}/{door}"), &json!({}));
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET")));
    }
    client
        .get(&format!("/runs/{id}/stream?stream_mode=bogus"))
        .refused(422);
}

fn a_stateless_run_is_its_creators_also_after_its_end(place: &Place) {
    let keys = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let mut server = place.start(keys);
    let client = Client::of(&server);
    let [ann, bob] = ["key-a", "key-b"].map(|key| client.with_key(key));
    let mut first = open(&ann, &with(slow(200, 2), "stream_resumable", true));
    first.event_named("custom");
    let path = first.header("location").unwrap().to_owned();
    let join = path.replace("/stream", "/join");
    for path in [&path, &join] {
        assert_eq!(bob.get(path).refused(404), "Run not found");
        client.get(path).refused(401);
    }
    while first.event().is_some() {}
    let last = [("last-event-id", "-1")];
    let whole = rest(ann.open("GET", &path, &last, b""));
    assert_eq!(names(&whole)[0], "metadata");
    let refused = bob.send("GET", &path, &last, b"");
    assert_eq!(refused.refused(404), "Run not found");
    assert!(!refused.text().contains("seen"));
    // Whose it was is stored.
    server.restart();
    let client = Client::of(&server);
    let [ann, bob] = ["key-a", "key-b"].map(|key| client.with_key(key));
    assert_eq!(rest(ann.open("GET", &path, &last, b"")), whole);
    let refused = bob.send("GET", &path, &last, b"");
    assert_eq!(refused.refused(404), "Run not found");
    assert_eq!(rest(ann.open("GET", &path, &[], b"")), []);
    assert_eq!(bob.get(&join).refused(404), "Run not found");
    assert_eq!(ok(ann.get(&join), 200)["seen"], json!(["work", "rest"]));
}

/// Two servers on one database with room for one run each, and a run that takes the room of the first
/// one as long as the servers live.
fn full_and_free() -> (Place, [Server; 2], [Client; 2]) {
    let place = Place::postgres();
    let first = place.start(Setup::example("reference_server").env("BACKSTITCH_SLOTS", "1"));
    let second = first.replica();
    let clients = [Client::of(&first), Client::of(&second)];
    let thread = clients[0].thread();
    clients[0]
        .open_stream(&thread, &slow(600_000, 1))
        .event_named("custom");
    (place, [first, second], clients)
}

#[test]
fn who_waits_for_a_stateless_run_gets_its_end_also_when_another_process_executes_it() {
    let (_place, _servers, [full, _free]) = full_and_free();
    let values = json!(["work", "rest"]);
    let waited = ok(full.post("/runs/wait", &slow(50, 2)), 200);
    assert_eq!(waited["seen"], values, "{waited}");
    let asked = ok(
        full.post(
            "/runs/wait",
            &json!({"assistant_id": "approve", "input": {"request": "pay"}}),
        ),
        200,
    );
    assert_eq!(asked["request"], "pay", "{asked}");
    assert_eq!(
        asked["__interrupt__"].as_array().map(Vec::len),
        Some(1),
        "{asked}"
    );
    let failed = ok(
        full.post(
            "/runs/wait",
            &json!({"assistant_id": "failing", "input": {"fail": true}}),
        ),
        200,
    );
    assert!(failed["__error__"]["error"].is_string(), "{failed}");
    // Its events are where it is executed; here its stream shows how it ended.
    let events = rest(open(&full, &slow(50, 2)));
    assert_eq!(names(&events), ["metadata", "values"]);
    assert_eq!(events[1].data["seen"], values);
}

#[test]
fn who_joins_a_stateless_run_at_another_process_gets_its_end() {
    let (_place, _servers, [full, free]) = full_and_free();
    let values = json!(["work", "rest"]);
    for at in [&full, &free] {
        // It is executed where there is room, until both have joined.
        let made = ok(free.post("/runs", &slow(1500, 2)), 200);
        let path = format!("/runs/{}", made["run_id"].as_str().unwrap());
        let mut stream = at.open("GET", &format!("{path}/stream"), &[], b"");
        let joined = ok(at.get(&format!("{path}/join")), 200);
        assert_eq!(joined["seen"], values, "{joined}");
        let events: Vec<Event> = std::iter::from_fn(|| stream.event()).collect();
        assert_eq!(events[events.len() - 1].data["seen"], values);
    }
}

/// The database has ended the run and deleted its thread, and the reply does not come: it is asked once more.
#[test]
fn who_waits_for_a_stateless_run_gets_its_end_though_the_reply_of_the_database_is_lost() {
    let point = "runs::gone=error@1";
    let place = Place::postgres();
    let server = place.start(Setup::example("reference_server").env("FAILPOINTS", point));
    let client = Client::of(&server);
    let values = ok(client.post("/runs/wait", &slow(1, 2)), 200);
    assert_eq!(values["seen"], json!(["work", "rest"]), "{values}");
    let output = server.output();
    assert!(output.contains("the reply is lost"), "{output}");
    assert_eq!(ok(client.post("/threads/count", &json!({})), 200), 0);
}

fn a_stateless_run_that_is_deleted_leaves_no_thread(place: &Place) {
    let (_server, client) = serve(place);
    let waiting = with(slow(1, 1), "after_seconds", 3600);
    for body in [slow(50, 200), waiting] {
        let run = ok(client.post("/runs", &body), 200);
        let [thread, id] = ["thread_id", "run_id"].map(|key| run[key].as_str().unwrap());
        let path = format!("/threads/{thread}/runs/{id}");
        let begins = body["after_seconds"].is_null();
        until("it is executed, or waits", || {
            let status = &client.get(&path).json()["status"];
            status == if begins { "running" } else { "pending" }
        });
        assert_eq!(client.delete(&path).status, 204);
        client.get(&format!("/threads/{thread}")).refused(404);
        assert_eq!(ok(client.post("/threads/count", &json!({})), 200), 0);
    }
}

fn a_thread_that_has_outlived_its_stateless_run_stays_when_that_is_deleted(place: &Place) {
    let (_server, client) = serve(place);
    let run = ok(client.post("/runs", &slow(50, 200)), 200);
    let [thread, id] = ["thread_id", "run_id"].map(|key| run[key].as_str().unwrap());
    let path = format!("/threads/{thread}/runs/{id}");
    until("it is executed", || {
        client.get(&path).json()["status"] == "running"
    });
    let next = with(slow(1, 1), "multitask_strategy", "interrupt");
    let state = client.run(thread, &next);
    assert_eq!(client.get(&path).json()["status"], "interrupted");
    assert_eq!(client.delete(&path).status, 204);
    client.get(&path).refused(404);
    assert_eq!(client.state(thread)["values"], state);
    client.run(thread, &slow(1, 1));
}
