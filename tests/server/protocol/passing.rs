//! Events of runs that are not stored: those who watch the thread get them, and nobody later.

use std::time::{Duration, Instant};

use serde_json::json;
use test_support::on_both_storages;
use test_support::place::{Place, block_on, serve};
use test_support::server::Setup;
use test_support::talk::{background, ok, slow, with};

use super::{websocket::connect, *};

on_both_storages!(
    runs_that_are_not_stored_are_shown_while_they_happen,
    a_run_that_works_already_is_shown_to_who_comes_then,
    who_comes_back_gets_what_is_stored_and_numbers_that_grow,
    a_subscription_of_a_connection_gets_them_once,
    a_later_subscription_of_a_connection_sees_that_a_run_works,
    a_run_that_ends_another_one_is_shown_behind_its_end,
    a_run_that_never_began_is_not_shown,
    the_events_of_a_thread_that_is_made_anew_are_shown,
    a_stateless_run_is_shown_as_it_ended,
);

const CHANNELS: [&str; 4] = ["lifecycle", "values", "updates", "input"];

/// Method, and data or what happened, of each event.
fn shown(events: &[Value]) -> Vec<(String, Value)> {
    let one = |(method, data): (String, Value)| match method.as_str() {
        "lifecycle" => (method, data["event"].clone()),
        "input.requested" => (method, data["payload"].clone()),
        _ => (method, data),
    };
    brief(events).into_iter().map(one).collect()
}

fn numbers(events: &[Value]) -> Vec<u64> {
    let numbers = events.iter().map(|event| event["seq"].as_u64().unwrap());
    numbers.collect()
}

fn grow(numbers: &[u64]) -> bool {
    numbers.is_sorted_by(|a, b| a < b)
}

fn expected(events: Vec<(&str, Value)>) -> Vec<(String, Value)> {
    let own = |(method, data): (&str, Value)| (method.to_owned(), data);
    events.into_iter().map(own).collect()
}

/// A run of `counter` to its end.
fn count(client: &Client, thread: &str) {
    client.run(thread, &json!({"assistant_id": "counter", "input": {}}));
}

/// What is shown of it, beginning with such values.
fn counted(before: u64, log: &[&str]) -> Vec<(String, Value)> {
    let after = |count: u64, more: &[&str]| {
        let log = [log, more].concat();
        ("values", json!({"count": before + count, "log": log}))
    };
    expected(vec![
        ("lifecycle", json!("running")),
        after(1, &["first"]),
        after(111, &["first", "left", "right"]),
        after(1111, &["first", "left", "right", "last"]),
        ("lifecycle", json!("completed")),
    ])
}

/// As the official server shows the same runs.
fn runs_that_are_not_stored_are_shown_while_they_happen(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let mut watch = open(&client, &thread, json!({"channels": CHANNELS}));
    count(&client, &thread);
    let first = ends(&mut watch, 1);
    assert_eq!(shown(&first), counted(0, &[]));

    let failing = json!({"assistant_id": "failing", "input": {"fail": true}});
    let run = background(&client, &thread, &failing);
    assert_eq!(client.end_of(&thread, &run), "error");
    let failed = ends(&mut watch, 1);
    let values = |done: Value| {
        let all = with(client.state(&thread)["values"].clone(), "done", done);
        ("values", all)
    };
    assert_eq!(
        shown(&failed),
        expected(vec![
            ("lifecycle", json!("running")),
            values(json!([])),
            values(json!(["good"])),
            ("lifecycle", json!("failed")),
        ])
    );
    let data = &failed[3]["params"]["data"];
    assert_eq!(data["error"], "boom from node bad", "{data}");

    let approve = json!({"assistant_id": "approve", "input": {"request": "pay"}});
    client.run(&thread, &approve);
    let asked = ends(&mut watch, 1);
    let question = json!({"question": "approve?", "request": "pay"});
    let names: Vec<_> = asked.iter().map(|event| &event["method"]).collect();
    let all = ["lifecycle", "values", "input.requested", "lifecycle"];
    assert_eq!(names, all);
    assert_eq!(asked[2]["params"]["data"]["payload"], question);
    let resume =
        json!({"assistant_id": "approve", "command": {"resume": "ok"}, "stream_mode": ["updates"]});
    client.run(&thread, &resume);
    let resumed = ends(&mut watch, 1);
    // The state at an interrupt comes behind its end.
    assert_eq!(resumed[0]["method"], "values");
    assert_eq!(
        shown(&resumed[1..]),
        expected(vec![
            ("lifecycle", json!("running")),
            ("updates", json!({"answer": "ok"})),
            ("updates", json!({"result": "answer=ok"})),
            ("lifecycle", json!("completed")),
        ])
    );
    assert!(grow(&numbers(&[first, failed, asked, resumed].concat())));

    // Who comes now gets what is stored, which is the next run.
    let run = start(&client, &thread, "counter", json!({"count": 1}));
    let later = events(&client, &thread, &CHANNELS, 1);
    let id = later[0]["event_id"].as_str().unwrap();
    assert!(id.contains(&run), "{id}");
    assert_eq!(ends(&mut watch, 1), later);
}

fn a_run_that_works_already_is_shown_to_who_comes_then(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let body = json!({"channels": ["lifecycle", "custom"]});
    let mut first = open(&client, &thread, body.clone());
    let run = background(&client, &thread, &slow(60_000, 2));
    first.event_named("custom");
    // Nothing happens for a minute.
    let mut second = open(&client, &thread, body);
    let begin = second.event().unwrap().data;
    assert_eq!(begin["params"]["data"]["event"], "running");
    let id = begin["event_id"].as_str().unwrap();
    assert!(id.contains(&run), "{id}");
    let cancel = format!("/threads/{thread}/runs/{run}/cancel?wait=1");
    ok(client.send("POST", &cancel, &[], b""), 200);
    for watch in [&mut first, &mut second] {
        let end = ends(watch, 1).pop().unwrap();
        assert_eq!(end["params"]["data"]["event"], "interrupted");
    }
}

fn who_comes_back_gets_what_is_stored_and_numbers_that_grow(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let channels = ["lifecycle", "values"];
    let mut watch = open(&client, &thread, json!({"channels": channels}));
    let back = |last: u64| {
        let body = json!({"channels": channels, "since": last});
        open(&client, &thread, body)
    };
    count(&client, &thread);
    let plain = ends(&mut watch, 1);
    let last = *numbers(&plain).last().unwrap();
    // Before anything is stored, and then behind what is.
    let mut second = back(last);
    start(&client, &thread, "counter", json!({}));
    let stored = ends(&mut watch, 1);
    assert_eq!(ends(&mut second, 1), stored);
    assert_eq!(events(&client, &thread, &channels, 1), stored);
    assert_eq!(ends(&mut back(last), 1), stored);
    count(&client, &thread);
    let between = ends(&mut watch, 1);
    assert_eq!(ends(&mut second, 1), between);
    let all = numbers(&[plain, stored.clone(), between].concat());
    assert!(grow(&all), "{all:?}");
    // In the middle of what is not there any more.
    let mut third = back(all[all.len() - 2]);
    count(&client, &thread);
    let next = ends(&mut third, 1);
    assert_eq!(shown(&next)[0].1, "running");
    assert!(numbers(&next)[0] > all[all.len() - 2], "{next:?} {all:?}");
    start(&client, &thread, "counter", json!({}));
    let last = ends(&mut third, 1);
    let whole = [stored, last].concat();
    assert_eq!(events(&client, &thread, &channels, 2), whole);
    assert_eq!(
        ends(&mut back(all[all.len() - 2]), 1),
        whole[whole.len() / 2..]
    );
}

fn a_subscription_of_a_connection_gets_them_once(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let counter =
        json!({"assistant_id": "counter", "input": {}, "stream_mode": ["values", "updates"]});
    let run = || {
        // The client waits in a thread of its own: here it would have the connection wait.
        std::thread::scope(|scope| {
            scope.spawn(|| background(&client, &thread, &counter));
        });
    };
    block_on(async {
        let mut socket = connect(&server, &thread, None).await.unwrap();
        let channels = json!({"channels": ["lifecycle", "values"]});
        socket.command("subscription.subscribe", channels).await;
        run();
        assert_eq!(shown(&socket.run().await), counted(0, &[]));
        let channels = json!({"channels": ["updates", "values"]});
        let reply = socket.command("subscription.subscribe", channels).await;
        assert_eq!(reply["result"]["replayed_events"], 0, "they are not stored");
        run();
        let log = ["first", "left", "right", "last"];
        let mut both = shown(&socket.run().await);
        both.retain(|(method, _)| method != "updates");
        assert_eq!(both, counted(1111, &log));
    });
}

fn a_later_subscription_of_a_connection_sees_that_a_run_works(place: &Place) {
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let run = || {
        std::thread::scope(|scope| {
            scope.spawn(|| background(&client, &thread, &slow(60_000, 2)));
        });
    };
    block_on(async {
        let mut socket = connect(&server, &thread, None).await.unwrap();
        let channels = json!({"channels": ["custom"]});
        socket.command("subscription.subscribe", channels).await;
        run();
        assert_eq!(socket.read().await.unwrap()["method"], "custom");
        let channels = json!({"channels": ["lifecycle"]});
        socket.command("subscription.subscribe", channels).await;
        let event = socket.read().await.unwrap();
        assert_eq!(event["params"]["data"]["event"], "running", "{event}");
    });
}

/// What happened to each run, in order: the id, and how far it had come.
fn lives(events: &[Value]) -> Vec<(String, String)> {
    let of = |event: &Value| {
        let id = event["event_id"].as_str().unwrap().to_owned();
        let run = id.split(':').nth(1).unwrap().to_owned();
        let how = event["params"]["data"]["event"].as_str().unwrap();
        (run, how.to_owned())
    };
    let all = events.iter();
    all.filter(|event| event["method"] == "lifecycle")
        .map(of)
        .collect()
}

fn a_run_that_never_began_is_not_shown(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let body = json!({"channels": ["lifecycle", "custom"]});
    let mut watch = open(&client, &thread, body);
    let works = background(&client, &thread, &slow(60_000, 2));
    watch.event_named("custom");
    let queued = || background(&client, &thread, &slow(1, 1));
    let of = |run: &str| format!("/threads/{thread}/runs/{run}");
    let cancelled = queued();
    let cancel = format!("{}/cancel?wait=1", of(&cancelled));
    ok(client.send("POST", &cancel, &[], b""), 200);
    let deleted = queued();
    assert_eq!(client.delete(&of(&deleted)).status, 204);
    let delayed = background(&client, &thread, &with(slow(1, 1), "after_seconds", 3600));
    let cancel = format!("{}/cancel", of(&delayed));
    assert_eq!(client.send("POST", &cancel, &[], b"").status, 202);
    let last = with(slow(1, 1), "multitask_strategy", "interrupt");
    let waits = queued();
    let last = background(&client, &thread, &last);
    assert_eq!(client.end_of(&thread, &waits), "interrupted");
    let how = lives(&ends(&mut watch, 2));
    let shown = [
        (&works, "interrupted"),
        (&last, "running"),
        (&last, "completed"),
    ];
    let shown = shown.map(|(run, how)| (run.clone(), how.to_owned()));
    assert_eq!(how, shown);
}

/// Positions in its log begin anew, while this process may have the feed of the old one.
fn the_events_of_a_thread_that_is_made_anew_are_shown(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let channels = ["lifecycle", "values"];
    let body = json!({"channels": channels});
    let mut first = open(&client, &thread, body.clone());
    start(&client, &thread, "counter", json!({}));
    ends(&mut first, 1);
    let path = format!("/threads/{thread}");
    assert_eq!(client.delete(&path).status, 204);
    ok(client.post("/threads", &json!({"thread_id": thread})), 200);
    let mut watch = open(&client, &thread, body);
    count(&client, &thread);
    let plain = ends(&mut watch, 1);
    assert_eq!(shown(&plain), counted(0, &[]));
    start(&client, &thread, "counter", json!({}));
    let stored = ends(&mut watch, 1);
    assert_eq!(events(&client, &thread, &channels, 1), stored);
    assert!(grow(&numbers(&[plain, stored].concat())));
}

/// Its row goes with its thread.
fn a_stateless_run_is_shown_as_it_ended(place: &Place) {
    let (_server, client) = serve(place);
    let row = ok(client.post("/runs", &slow(300, 4)), 200);
    let thread = row["thread_id"].as_str().unwrap();
    let body = json!({"channels": ["lifecycle"]});
    let mut watch = open(&client, thread, body);
    let how = lives(&ends(&mut watch, 1));
    assert_eq!(how.last().unwrap().1, "completed", "{how:?}");
}

/// A page that shows that a run works would else stop doing so when the end of the other one comes.
fn a_run_that_ends_another_one_is_shown_behind_its_end(place: &Place) {
    let (_server, client) = serve(place);
    for strategy in ["interrupt", "rollback"] {
        for is_stored in [true, false] {
            let thread = client.thread();
            let run = |ms: u64, ticks: u64| {
                let body = with(slow(ms, ticks), "multitask_strategy", strategy);
                background(&client, &thread, &with(body, "stream_resumable", is_stored));
            };
            let body = json!({"channels": ["lifecycle", "custom"]});
            let mut watch = open(&client, &thread, body);
            let mut in_time = 0;
            for _ in 0..5 {
                run(60_000, 2);
                watch.event_named("custom");
                let begin = Instant::now();
                run(1, 1);
                let mut ended = ends(&mut watch, 2);
                // The new run waits no longer than that for the end of the other one.
                if begin.elapsed() >= Duration::from_secs(2) {
                    continue;
                }
                in_time += 1;
                ended.retain(|event| event["method"] == "lifecycle");
                let how = shown(&ended).into_iter().map(|(_, how)| how);
                let order = ["interrupted", "running", "completed"];
                assert_eq!(how.collect::<Vec<_>>(), order, "{strategy}, {is_stored}");
            }
            assert!(in_time > 0, "the machine is quick enough once");
        }
    }
}

/// A process shows what runs elsewhere of the runs that were created there: its last values, and its end.
#[test]
fn a_run_that_another_process_executes_is_shown_where_it_was_created() {
    let place = Place::postgres();
    let setup = Setup::example("reference_server");
    let busy = place.start(setup.clone().env("BACKSTITCH_SLOTS", "1"));
    let _idle = place.start(setup);
    let client = Client::of(&busy);
    let other = client.thread();
    let mut works = client.open_stream(&other, &slow(60_000, 2));
    works.event_named("custom");
    let thread = client.thread();
    let mut watch = open(
        &client,
        &thread,
        json!({"channels": ["lifecycle", "values"]}),
    );
    background(
        &client,
        &thread,
        &json!({"assistant_id": "counter", "input": {}}),
    );
    let all = counted(0, &[]);
    let last = [&all[..1], &all[3..]].concat();
    assert_eq!(shown(&ends(&mut watch, 1)), last);
}
