//! Streams of which something is gone: expired, deleted, rolled back; and two who do the same at once.

use std::thread;

use serde_json::json;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::Setup;
use test_support::talk::{self, until};

use super::*;

on_both_storages!(
    events_have_the_same_numbers_when_the_first_run_is_gone,
    of_an_expired_log_the_values_and_the_end_are_left,
    a_run_that_is_deleted_or_rolled_back_takes_its_events_along,
    of_a_pruned_thread_the_streams_of_runs_without_checkpoints_are_gone,
    odd_ids_of_last_events_are_no_harm,
);

fn counter(client: &Client, thread: &str) -> String {
    start(client, thread, "counter", json!({"count": 1, "log": []}))
}

fn events_have_the_same_numbers_when_the_first_run_is_gone(place: &Place) {
    let (_server, client) = serve(place);
    let thread = new_thread();
    let channels = &["values", "updates", "lifecycle", "checkpoints", "tasks"];
    let first = counter(&client, &thread);
    let before = events(&client, &thread, channels, 1);
    counter(&client, &thread);
    let both = events(&client, &thread, channels, 2);
    assert!(both.starts_with(&before));
    let path = format!("/threads/{thread}/runs/{first}");
    assert_eq!(client.send("DELETE", &path, &[], b"").status, 204);
    let left = events(&client, &thread, channels, 1);
    assert_eq!(left, both[before.len()..], "numbers, ids and all");
    let since = left[3]["seq"].as_u64().unwrap();
    let body = json!({"channels": channels, "since": since});
    assert_eq!(ends(&mut open(&client, &thread, body), 1), left[4..]);
}

fn of_an_expired_log_the_values_and_the_end_are_left(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_STREAM_RETENTION", "1s");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    let thread = new_thread();
    counter(&client, &thread);
    let channels = &["values", "lifecycle"];
    let whole = events(&client, &thread, channels, 1);
    until("the log is swept", || {
        // Each start begins with a sweep.
        server.restart();
        let client = Client::of(&server);
        // Of a part of the log the events of that are shown, after the beginning.
        events(&client, &thread, channels, 1)[0]["method"] == "values"
    });
    let client = Client::of(&server);
    let left = events(&client, &thread, channels, 1);
    let data = json!({"event": "completed", "graph_name": "counter"});
    let shown = [
        ("values", client.state(&thread)["values"].clone()),
        ("lifecycle", data),
    ];
    let shown = shown.map(|(method, data)| (method.to_owned(), data));
    assert_eq!(brief(&left), shown);
    let last = whole.len() - 1;
    assert_eq!(
        left[1]["event_id"], whole[last]["event_id"],
        "known to who was there"
    );
    // What comes then follows, for those who stayed and for those who come.
    let mut stayed = open(&client, &thread, json!({"channels": channels}));
    assert_eq!(ends(&mut stayed, 1), left);
    counter(&client, &thread);
    let next = ends(&mut stayed, 1);
    assert_eq!(next[0]["params"]["data"]["event"], "running");
    let numbers: Vec<_> = [&whole[..], &left, &next].concat();
    let numbers = numbers.iter().map(|event| event["seq"].as_u64().unwrap());
    assert!(numbers.is_sorted_by(|a, b| a < b));
    assert_eq!(events(&client, &thread, channels, 1), next);
}

fn a_run_that_is_deleted_or_rolled_back_takes_its_events_along(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let slow = |ms: u64, ticks: u64| talk::with(talk::slow(ms, ticks), "stream_resumable", true);
    let join = |run: &str| {
        let path = format!("/threads/{thread}/runs/{run}/stream");
        let mut open = client.open("GET", &path, &[("last-event-id", "-1")], b"");
        assert_eq!(open.status, 200);
        std::iter::from_fn(|| open.event()).collect::<Vec<_>>()
    };
    let deleted = talk::background(&client, &thread, &slow(1, 1));
    assert!(join(&deleted).iter().any(|event| event.name == "values"));
    let path = format!("/threads/{thread}/runs/{deleted}");
    assert_eq!(client.send("DELETE", &path, &[], b"").status, 204);
    let rolled_back = talk::background(&client, &thread, &slow(60_000, 1));
    let path = format!("/threads/{thread}/runs/{rolled_back}");
    let mut open = client.open(
        "GET",
        &format!("{path}/stream"),
        &[("last-event-id", "-1")],
        b"",
    );
    open.event_named("custom");
    let cancel = format!("{path}/cancel?action=rollback&wait=1");
    assert!(client.post(&cancel, &json!({})).status < 300);
    while open.event().is_some() {}
    for run in [deleted, rolled_back] {
        let missing = join(&run);
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert_eq!(missing[0].name, "error");
        assert_eq!(missing[0].data["message"], "404: Run not found");
    }
    let last = talk::background(&client, &thread, &slow(1, 1));
    let mut watched = client.open(
        "GET",
        &format!("/threads/{thread}/stream"),
        &[("last-event-id", "-")],
        b"",
    );
    let first = watched.event().unwrap();
    assert_eq!(
        (first.name.as_str(), &first.data["run_id"]),
        ("metadata", &json!(last))
    );
}

fn of_a_pruned_thread_the_streams_of_runs_without_checkpoints_are_gone(place: &Place) {
    let (mut server, client) = serve(place);
    let thread = client.thread();
    let slow = talk::with(talk::slow(1, 2), "stream_resumable", true);
    let [first, last] = [(); 2].map(|()| {
        let run = talk::background(&client, &thread, &slow);
        assert_eq!(client.end_of(&thread, &run), "success");
        run
    });
    let join = |client: &Client, run: &str| {
        let path = format!("/threads/{thread}/runs/{run}/stream");
        let mut open = client.open("GET", &path, &[("last-event-id", "-1")], b"");
        assert_eq!(open.status, 200);
        std::iter::from_fn(|| open.event()).collect::<Vec<_>>()
    };
    let whole = join(&client, &last);
    let channels = &["values", "lifecycle", "custom"];
    let both = events(&client, &thread, channels, 2);
    let prune = json!({"thread_ids": [thread], "strategy": "keep_latest"});
    assert!(client.post("/threads/prune", &prune).status < 300);
    let shown = |client: &Client| {
        let names = |events: &[test_support::client::Event]| {
            let names = events.iter().map(|event| event.name.clone());
            names.collect::<Vec<_>>()
        };
        let gone = join(client, &first);
        assert_eq!(names(&gone), ["gap", "metadata", "values"]);
        assert!(!gone.iter().any(|event| !event.data["tick"].is_null()));
        assert_eq!(join(client, &last), whole);
        let left = events(client, &thread, channels, 1);
        assert!(both.ends_with(&left), "numbers, ids and all");
        assert!(left.len() < both.len());
    };
    shown(&client);
    server.restart();
    shown(&Client::of(&server));
}

fn odd_ids_of_last_events_are_no_harm(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let slow = talk::with(talk::slow(1, 2), "stream_resumable", true);
    let other = talk::background(&client, &thread, &slow);
    let run = talk::background(&client, &thread, &slow);
    let join = |run: &str, after: &str| {
        let path = format!("/threads/{thread}/runs/{run}/stream");
        let mut open = client.open("GET", &path, &[("last-event-id", after)], b"");
        assert_eq!(open.status, 200, "{after}");
        std::iter::from_fn(|| open.event()).collect::<Vec<_>>()
    };
    let all = join(&run, "-1");
    assert!(all.len() > 3);
    // Each run counts by itself, so that the id of another run is one of this run too.
    let of_other = join(&other, "-1")[2].id.clone().unwrap();
    assert_eq!(join(&run, &of_other), all[3..]);
    for ahead in [
        "999999",
        "18446744073709551615",
        "bogus",
        "1-0",
        "",
        "\u{fc}",
        "-5",
        "1e3",
    ] {
        let rest = join(&run, ahead);
        assert!(all.ends_with(&rest), "{ahead}: {rest:?}");
    }
    for (after, status) in [("bogus", 422), ("1e3", 422), ("999999999999999999", 200)] {
        let path = format!("/threads/{thread}/stream");
        let open = client.open("GET", &path, &[("last-event-id", after)], b"");
        assert_eq!(open.status, status, "{after}");
    }
}

#[test]
fn of_two_responses_at_two_processes_one_is_taken() {
    let place = Place::postgres();
    let one = place.start(Setup::example("reference_server"));
    let two = one.replica();
    let clients = [Client::of(&one), Client::of(&two)];
    for _ in 0..10 {
        let thread = new_thread();
        start(&clients[0], &thread, "approve", json!({"request": "pay"}));
        let requested = events(&clients[0], &thread, &["input", "lifecycle"], 1);
        let id = &requested[1]["params"]["data"]["interrupt_id"];
        let replies: Vec<Value> = thread::scope(|scope| {
            let send = |number: usize| {
                let params = json!({"interrupt_id": id, "response": number});
                let (client, thread) = (&clients[number % 2], &thread);
                scope.spawn(move || command(client, thread, "input.respond", params))
            };
            let sent: Vec<_> = (0..6).map(send).collect();
            sent.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let is_taken = |at: &usize| replies[*at]["type"] == "success";
        let taken: Vec<_> = (0..6).filter(is_taken).collect();
        assert_eq!(taken.len(), 1, "{replies:?}");
        for reply in replies.iter().filter(|reply| reply["type"] == "error") {
            assert_eq!(reply["error"], "no_such_interrupt", "{reply}");
        }
        events(&clients[1], &thread, &["lifecycle"], 2);
        let state = clients[1].state(&thread);
        assert_eq!(state["values"]["answer"], json!(taken[0]));
    }
}
