//! Runs that are awaited, left, cancelled and queued.

use super::*;
use test_support::on_both_storages;
use test_support::server::{Server, Setup};

on_both_storages!(
    the_run_row_is_final_before_the_stream_ends,
    a_run_goes_on_when_its_client_leaves,
    a_run_is_cancelled_with_its_client_when_asked,
    a_cancelled_run_ends_interrupted_and_frees_its_thread,
    waiting_answers_the_final_values,
    a_stateless_run_leaves_no_thread,
    a_stateless_run_is_kept_when_asked,
    enqueued_runs_execute_in_the_order_they_came,
    a_second_run_is_refused_when_asked,
    a_second_run_interrupts_the_first_when_asked,
    a_second_run_rolls_the_first_back_when_asked,
    deleting_a_thread_during_a_run_drops_both,
    a_stream_whose_run_or_thread_is_deleted_ends_with_an_error,
    a_resumable_stream_is_replayed_after_the_last_seen_event,
    a_thread_is_busy_until_its_last_run_ends,
    a_join_that_was_left_waiting_runs_again_after_a_run_of_another_graph,
    a_failure_is_a_text_where_a_run_goes_on_after_it,
);

fn the_run_row_is_final_before_the_stream_ends(place: &Place) {
    let (_server, client) = serve(place);
    for _ in 0..10 {
        let thread = client.thread();
        let mut open = client.open_stream(&thread, &counter());
        let run = open.run();
        while open.event().is_some() {}
        let row = client.get(&format!("/threads/{thread}/runs/{run}")).json();
        assert_eq!(row["status"], "success");
        assert_eq!(
            client.get(&format!("/threads/{thread}")).json()["status"],
            "idle"
        );
        assert_eq!(client.state(&thread)["values"]["count"], 1111);
    }
}

fn a_run_goes_on_when_its_client_leaves(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &slow(150, 2));
    open.event_named("custom");
    let run = open.run();
    drop(open);
    assert_eq!(client.end_of(&thread, &run), "success");
    assert_eq!(
        client.state(&thread)["values"]["seen"],
        json!(["work", "rest"])
    );
}

fn a_run_is_cancelled_with_its_client_when_asked(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    // Durable before the next superstep: what the events tell of is stored.
    let body = with(slow(300, 100), "durability", "sync");
    let body = with(body, "on_disconnect", "cancel");
    let mut open = client.open_stream(&thread, &body);
    open.event_named("custom");
    let run = open.run();
    drop(open);
    assert_eq!(client.end_of(&thread, &run), "interrupted");
    assert_eq!(
        client.get(&format!("/threads/{thread}")).json()["status"],
        "interrupted"
    );
    // What it had not done is still to do.
    assert_eq!(client.state(&thread)["next"], json!(["work"]));
}

fn a_cancelled_run_ends_interrupted_and_frees_its_thread(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &slow(300, 100));
    open.event_named("custom");
    let run = open.run();
    let cancel = format!("/threads/{thread}/runs/{run}/cancel");
    let answer = client.send("POST", &format!("{cancel}?wait=1"), &[], b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(client.end_of(&thread, &run), "interrupted");
    // The stream ends silently.
    while let Some(event) = open.event() {
        assert!(["custom", "values"].contains(&&*event.name), "{event:?}");
    }
    let again = client.send("POST", &cancel, &[], b"").refused(404);
    assert!(again.starts_with("No matching runs to cancel."), "{again}");
    assert_eq!(
        client.run(&thread, &slow(1, 1))["seen"],
        json!(["work", "rest"])
    );
}

fn waiting_answers_the_final_values(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    assert_eq!(client.run(&thread, &counter())["count"], 1111);
    let asked = client.run(
        &client.thread(),
        &json!({"assistant_id": "approve", "input": {"request": "pay"}}),
    );
    assert_eq!(asked["request"], "pay");
    assert_eq!(
        asked["__interrupt__"][0]["value"],
        json!({"question": "approve?", "request": "pay"})
    );
    let failed = client.run(
        &client.thread(),
        &json!({"assistant_id": "failing", "input": {"fail": true}}),
    );
    assert_eq!(
        failed,
        json!({"__error__": {"error": "ValueError", "message": "boom from node bad"}})
    );
    let runs = client.get(&format!("/threads/{thread}/runs")).json();
    let run = runs[0]["run_id"].as_str().unwrap();
    let joined = client
        .get(&format!("/threads/{thread}/runs/{run}/join"))
        .json();
    assert_eq!(joined["count"], 1111);
}

fn a_stateless_run_leaves_no_thread(place: &Place) {
    let (_server, client) = serve(place);
    let answer = client.post("/runs/wait", &counter());
    assert_eq!(answer.json()["count"], 1111);
    let location = answer.header("content-location").unwrap();
    let thread = location.split('/').nth(2).unwrap();
    assert!(
        client
            .get(&format!("/threads/{thread}"))
            .refused(404)
            .contains(thread)
    );

    let mut open = client.open(
        "POST",
        "/runs/stream",
        &[],
        counter().to_string().as_bytes(),
    );
    let run = open.run();
    assert_eq!(
        open.header("content-location"),
        Some(&*format!("/runs/{run}"))
    );
    let mut last = None;
    while let Some(event) = open.event() {
        last = Some(event);
    }
    assert_eq!(last.unwrap().data["count"], 1111);
}

fn a_stateless_run_is_kept_when_asked(place: &Place) {
    let (_server, client) = serve(place);
    let answer = client.post("/runs/wait", &with(counter(), "on_completion", "keep"));
    let location = answer.header("content-location").unwrap();
    let thread = location.split('/').nth(2).unwrap();
    assert_eq!(client.state(thread)["values"]["count"], 1111);
}

/// A server, a client of it, and a run there that goes on until somebody makes the file `gate` in the folder of the server.
fn held(place: &Place) -> (Server, Client, Value) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let [gate, trace] = ["gate", "trace"].map(|name| server.folder().join(name));
    let body = json!({"assistant_id": "pair", "input": {"gate": gate, "trace": trace}});
    (server, client, body)
}

fn enqueued_runs_execute_in_the_order_they_came(place: &Place) {
    let (server, client, mut body) = held(place);
    let thread = client.thread();
    let runs = format!("/threads/{thread}/runs");
    let first = client.post(&runs, &body).json();
    let mut ids = vec![first["run_id"].as_str().unwrap().to_owned()];
    for text in ["a", "b", "c", "d"] {
        body["input"]["done"] = json!([text]);
        let run = client.post(&runs, &body).json();
        assert_eq!(run["status"], "pending");
        ids.push(run["run_id"].as_str().unwrap().to_owned());
    }
    std::fs::write(server.folder().join("gate"), "").unwrap();
    for id in &ids {
        assert_eq!(client.end_of(&thread, id), "success");
    }
    let done = client.state(&thread)["values"]["done"].clone();
    let expected = json!([
        "quick", "stuck", "a", "quick", "stuck", "b", "quick", "stuck", "c", "quick", "stuck", "d",
        "quick", "stuck"
    ]);
    assert_eq!(done, expected);
    let listed = client.get(&runs).json();
    let listed: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["run_id"].as_str().unwrap())
        .collect();
    ids.reverse();
    assert_eq!(listed, ids, "newest first");
}

fn a_second_run_is_refused_when_asked(place: &Place) {
    let (server, client, body) = held(place);
    let thread = client.thread();
    let mut first = client.open_stream(&thread, &body);
    first.event().unwrap();
    let second = with(body, "multitask_strategy", "reject");
    for door in ["", "/stream", "/wait"] {
        let detail = client
            .post(&format!("/threads/{thread}/runs{door}"), &second)
            .refused(409);
        assert!(detail.contains("already running a task"), "{detail}");
    }
    let run = first.run();
    std::fs::write(server.folder().join("gate"), "").unwrap();
    while first.event().is_some() {}
    assert_eq!(client.end_of(&thread, &run), "success");
    let runs = client.get(&format!("/threads/{thread}/runs")).json();
    assert_eq!(
        runs.as_array().unwrap().len(),
        1,
        "a refused run leaves no row"
    );
    assert_eq!(
        client.run(&thread, &second)["done"],
        json!(["quick", "stuck", "quick", "stuck"])
    );
}

fn a_second_run_interrupts_the_first_when_asked(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let mut first = client.open_stream(&thread, &with(slow(200, 50), "durability", "sync"));
    first.event_named("custom");
    let run = first.run();
    let second = with(slow(1, 1), "multitask_strategy", "interrupt");
    assert_eq!(
        client.run(&thread, &second)["seen"],
        json!(["work", "rest"])
    );
    assert_eq!(client.end_of(&thread, &run), "interrupted");
    while let Some(event) = first.event() {
        assert_ne!(event.name, "error", "{event:?}");
    }
    // The new input continues from the last checkpoint of the first run.
    let steps: Vec<Value> = client
        .history(&thread)
        .iter()
        .map(|state| state["metadata"]["step"].clone())
        .collect();
    assert_eq!(steps, [4, 3, 2, 1, 0, -1].map(Value::from));
}

fn a_second_run_rolls_the_first_back_when_asked(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let mut first = client.open_stream(&thread, &slow(200, 50));
    first.event_named("custom");
    let run = first.run();
    let second = with(slow(1, 1), "multitask_strategy", "rollback");
    assert_eq!(
        client.run(&thread, &second)["seen"],
        json!(["work", "rest"])
    );
    while let Some(event) = first.event() {
        assert_ne!(event.name, "error", "{event:?}");
    }
    assert_eq!(
        client
            .get(&format!("/threads/{thread}/runs/{run}"))
            .refused(404),
        "Not Found"
    );
    let steps: Vec<Value> = client
        .history(&thread)
        .iter()
        .map(|state| state["metadata"]["step"].clone())
        .collect();
    assert_eq!(steps, [2, 1, 0, -1].map(Value::from));
}

fn deleting_a_thread_during_a_run_drops_both(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &slow(150, 50));
    open.event_named("custom");
    let run = open.run();
    let deleted = client.delete(&format!("/threads/{thread}"));
    assert_eq!((deleted.status, &*deleted.body), (204, &b""[..]));
    // The stream ends, long before the run would have.
    while open.event().is_some() {}
    client.get(&format!("/threads/{thread}")).refused(404);
    client
        .get(&format!("/threads/{thread}/runs/{run}"))
        .refused(404);
    // Nothing of it holds up who uses the id again.
    let again = client.post("/threads", &json!({"thread_id": thread}));
    assert_eq!(again.status, 200, "{}", again.text());
    assert_eq!(
        client.run(&thread, &slow(1, 1))["seen"],
        json!(["work", "rest"])
    );
}

fn a_resumable_stream_is_replayed_after_the_last_seen_event(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let body = with(slow(100, 3), "stream_resumable", true);
    let mut open = client.open_stream(&thread, &body);
    let seen = open.event_named("custom");
    let path = open.header("location").unwrap().to_owned();
    drop(open);
    let last = [("last-event-id", seen.id.as_deref().unwrap())];
    let mut again = client.open("GET", &path, &last, b"");
    let mut names = Vec::new();
    while let Some(event) = again.event() {
        assert_ne!(event.id, seen.id);
        names.push(event.name);
    }
    assert_eq!(names, ["custom", "custom", "values", "values"]);
    let mut whole = client.open("GET", &path, &[("last-event-id", "-1")], b"");
    let first = whole.event().unwrap();
    assert_eq!(first.name, "metadata");
    assert_eq!(std::iter::from_fn(|| whole.event()).count(), 6);
}

fn a_thread_is_busy_until_its_last_run_ends(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let status = || client.get(&format!("/threads/{thread}")).json()["status"].clone();
    assert_eq!(status(), "idle");
    let runs = format!("/threads/{thread}/runs");
    let first = client.post(&runs, &slow(1500, 1)).json();
    assert_eq!(status(), "busy");
    let second = client.post(&runs, &slow(1, 1)).json();
    let edit = format!("/threads/{thread}/state");
    let detail = client
        .post(&edit, &json!({"values": {"ms": 1}}))
        .refused(409);
    assert!(detail.contains("in-flight runs"), "{detail}");
    for run in [first, second] {
        client.end_of(&thread, run["run_id"].as_str().unwrap());
    }
    assert_eq!(status(), "idle");
}

/// A run of another graph says nothing of the channels for which the nodes of the first one wait.
fn a_join_that_was_left_waiting_runs_again_after_a_run_of_another_graph(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let run = |body: Value| client.run(&thread, &body)["count"].clone();
    let stop = json!({"assistant_id": "counter", "input": {}, "interrupt_before": ["last"]});
    assert_eq!(run(stop), 111);
    run(json!({"assistant_id": "slow", "input": {"ms": 1}}));
    for count in [1222, 2333] {
        assert_eq!(run(json!({"assistant_id": "counter", "input": {}})), count);
    }
}

/// Of a run that is executed, and of one that waits for its time.
fn a_stream_whose_run_or_thread_is_deleted_ends_with_an_error(place: &Place) {
    let (_server, client) = serve(place);
    for of_run in [true, false] {
        for later in [json!({}), json!({"after_seconds": 3600})] {
            let thread = client.thread();
            let waits = later["after_seconds"].is_number();
            let body = test_support::talk::extend(slow(60_000, 2), later);
            let run = test_support::talk::background(&client, &thread, &body);
            let path = format!("/threads/{thread}/runs/{run}");
            let mut open = client.open("GET", &format!("{path}/stream"), &[], b"");
            if !waits {
                test_support::talk::until("the run has begun", || {
                    client.get(&path).json()["status"] == "running"
                });
            }
            let gone = if of_run {
                path
            } else {
                format!("/threads/{thread}")
            };
            assert_eq!(client.delete(&gone).status, 204);
            let error = open.event_named("error");
            let expected = json!({"error": "HTTPException", "message": "404: Run not found"});
            assert_eq!(error.data, expected, "{gone}");
            assert!(open.event().is_none());
        }
    }
}

fn a_failure_is_a_text_where_a_run_goes_on_after_it(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let failing = json!({"assistant_id": "failing", "input": {"fail": true}});
    let run = test_support::talk::background(&client, &thread, &failing);
    assert_eq!(client.end_of(&thread, &run), "error");
    let text = "ValueError('boom from node bad')";
    assert_eq!(client.state(&thread)["tasks"][0]["error"], text);
    let again = json!({"assistant_id": "failing", "input": null, "stream_mode": ["checkpoints"]});
    let events = client.stream(&thread, &again);
    let first = events.iter().find(|event| event.name == "checkpoints");
    assert_eq!(first.unwrap().data["tasks"][0]["error"], text);
}
