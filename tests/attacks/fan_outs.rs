//! Wide fan-outs: bounded, linear in their tasks, and no obstacle to anybody else.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::talk::{background, ok, with};

use crate::siege::{MIB, Waits, Watch};

on_both_storages!(
    ten_times_the_tasks_cost_ten_times_as_much;
    postgres_in_long_form:
    more_tasks_than_allowed_fail_the_node_that_starts_them_at_once,
    tasks_of_several_nodes_count_together_and_the_operator_sets_how_many,
    others_are_served_while_a_wide_superstep_runs,
    a_wide_superstep_is_cancelled,
);

fn serve(place: &Place) -> (Server, Client) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    (server, client)
}

fn wide(count: u64, how: &str) -> Value {
    json!({"assistant_id": "wide", "input": {"count": count, "how": how}})
}

/// What a run failed with, by its `/wait`.
fn failure(client: &Client, thread: &str, body: &Value) -> String {
    let values = client.run(thread, body);
    let error = &values["__error__"];
    assert_eq!(error["error"], "FanOutError", "{error}");
    error["message"].as_str().unwrap().to_owned()
}

fn more_tasks_than_allowed_fail_the_node_that_starts_them_at_once(place: &Place) {
    let setup = Setup::example("faulty_server").env("BACKSTITCH_BODY_VALUES", "500000");
    let server = place.start(setup);
    let client = Client::of(&server);
    let thread = client.thread();
    let watch = Watch::of(&server);
    let began = Instant::now();
    let message = failure(&client, &thread, &wide(60_000, ""));
    // With the quadratic search for results it took minutes.
    assert!(began.elapsed() < Duration::from_secs(20), "{began:?}");
    for part in ["node `spread`", "60000", "10000", "BACKSTITCH_MAX_TASKS"] {
        assert!(message.contains(part), "{message}");
    }
    // Nothing of the fan-out is stored: what waits is the node that is to decide anew.
    let state = client.state(&thread);
    assert_eq!(state["next"], json!(["spread"]));
    assert_eq!(client.run(&thread, &wide(3, ""))["total"], 3);

    // A client may not start more either.
    let gotos: Vec<Value> = (0..60_000)
        .map(|n| json!({"node": "part", "input": {"n": n}}))
        .collect();
    let command = json!({"assistant_id": "wide", "command": {"goto": gotos}});
    let message = failure(&client, &thread, &command);
    assert!(message.contains("the command starts 60000"), "{message}");
    let again = json!({"assistant_id": "wide", "command": {"goto": ["gather"]}});
    assert_eq!(client.run(&thread, &again)["total"], 3);
    watch.held("sixty thousand tasks", 256 * MIB);
}

fn tasks_of_several_nodes_count_together_and_the_operator_sets_how_many(place: &Place) {
    let setup = Setup::example("faulty_server").env("BACKSTITCH_MAX_TASKS", "100");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    assert_eq!(client.run(&client.thread(), &wide(100, ""))["total"], 4950);
    failure(&client, &client.thread(), &wide(101, ""));

    // Two tasks at once, each of which starts 60.
    let thread = client.thread();
    let spread = json!({"node": "spread", "input": {"count": 60}});
    let command = json!({"assistant_id": "wide", "command": {"goto": [spread, spread]}});
    let message = failure(&client, &thread, &command);
    assert!(message.contains("120 tasks"), "{message}");

    // What was stored under another setting is not run either, and is not lost.
    let waiting = client.thread();
    client.run(&waiting, &wide(90, "ask"));
    assert_eq!(client.state(&waiting)["next"].as_array().unwrap().len(), 90);
    server.restart_with("BACKSTITCH_MAX_TASKS", "50");
    let client = Client::of(&server);
    let watch = Watch::of(&server);
    let resume = json!({"assistant_id": "wide", "command": {"resume": "yes"}});
    client.post(&format!("/threads/{waiting}/runs/wait"), &resume);
    assert_eq!(client.state(&waiting)["next"].as_array().unwrap().len(), 90);
    watch.held("tasks of several nodes", 128 * MIB);
}

fn ten_times_the_tasks_cost_ten_times_as_much(place: &Place) {
    let (server, client) = serve(place);
    let watch = Watch::of(&server);
    // What the first run alone has to pay.
    client.run(&client.thread(), &wide(100, "speak"));
    for how in ["", "speak", "ask", "fail"] {
        let cost = |count: u64| {
            let thread = client.thread();
            let before = server.ticks();
            let path = format!("/threads/{thread}/runs/wait");
            let answer = client.post(&path, &wide(count, how));
            assert_eq!(answer.status, 200, "{}", answer.text());
            let state = client.state(&thread);
            let waiting = matches!(how, "ask" | "fail");
            let tasks = state["tasks"].as_array().unwrap().len() as u64;
            assert_eq!(tasks, if waiting { count } else { 0 });
            server.ticks() - before
        };
        let (few, many) = (cost(500), cost(5_000));
        println!("{how:?}: {few} ticks for 500 tasks, {many} for 5,000");
        // Linear is 10 times, quadratic is 100 times.
        assert!(many <= 25 * few.max(4), "{how:?}: {few} and {many} ticks");
    }
    watch.held("fan-outs that grow", 512 * MIB);
}

fn others_are_served_while_a_wide_superstep_runs(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let watch = Watch::of(&server);
    let run = background(&client, &thread, &wide(10_000, ""));
    let path = format!("/threads/{thread}/runs/{run}");
    let mut waits = vec![];
    loop {
        let began = Instant::now();
        ok(client.get("/ok"), 200);
        waits.push(began.elapsed());
        let status = ok(client.get(&path), 200)["status"].clone();
        if status != "running" && status != "pending" {
            assert_eq!(status, "success");
            break;
        }
    }
    let waits = Waits::from_iter(waits);
    println!(
        "the slowest of {} requests took {:?}",
        waits.count(),
        waits.longest()
    );
    assert!(
        waits.longest() < Duration::from_secs(3),
        "{:?}",
        waits.longest()
    );
    watch.held("ten thousand tasks", 512 * MIB);
}

fn a_wide_superstep_is_cancelled(place: &Place) {
    let setup = Setup::example("faulty_server").env("BACKSTITCH_MAX_TASKS", "60000");
    let server = place.start(setup);
    let client = Client::of(&server);
    let thread = client.thread();
    let watch = Watch::of(&server);
    // Tasks that wait for ever, and as many as make a long loop over them.
    for (count, how) in [(10_000, "wait"), (60_000, "")] {
        let body = with(wide(count, how), "stream_mode", "tasks");
        let mut open = client.open_stream(&thread, &body);
        let run = open.run();
        while open.event_named("tasks").data["name"] != "part" {}
        let cancel = format!("/threads/{thread}/runs/{run}/cancel?wait=true");
        let (began, before) = (Instant::now(), server.ticks());
        let answer = client.send("POST", &cancel, &[], b"");
        assert!(answer.status < 300, "{}", answer.text());
        assert_eq!(client.end_of(&thread, &run), "interrupted");
        // In hundredths of a second of a processor, of which the long loop takes 900 if nobody stops it.
        let (time, work) = (began.elapsed(), server.ticks() - before);
        println!("{count} tasks are cancelled in {time:?} and {work} ticks");
        assert!(time < Duration::from_secs(10), "{time:?}");
        assert!(work < 300, "{work}");
    }
    watch.held("wide supersteps that are cancelled", 512 * MIB);
}
