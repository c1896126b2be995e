//! What those are told who wait for a run that somebody ends, and where they can ask.

use std::io::Write;
use std::net::TcpStream;

use super::*;
use test_support::on_both_storages;
use test_support::talk::{background, ok, until};

on_both_storages!(
    who_waits_for_a_run_that_is_taken_away_is_told_that_there_is_none,
    the_end_of_a_run_is_found_at_its_place,
    a_run_that_ended_with_a_question_answers_the_question,
    who_ended_a_run_is_said_as_langgraph_says_it,
    what_was_streamed_before_a_cancel_is_stored,
    a_cancel_goes_on_when_its_client_leaves_before_the_end,
    a_run_that_never_began_leaves_the_thread_as_it_was,
    a_breakpoint_after_the_last_node_leaves_the_thread_idle,
);

fn a_cancel_goes_on_when_its_client_leaves_before_the_end(place: &Place) {
    let (server, client) = serve(place);
    let address = server.base_url().trim_start_matches("http://").to_owned();
    for action in ["interrupt", "rollback"] {
        let thread = client.thread();
        let mut open = client.open_stream(&thread, &slow(300, 100));
        open.event_named("custom");
        let run = format!("/threads/{thread}/runs/{}", open.run());
        let request = format!(
            "POST {run}/cancel?wait=1&action={action} HTTP/1.1\r\nhost: {address}\r\ncontent-length: 0\r\n\r\n"
        );
        // Nobody waits for a response. A client that leaves before its request was begun has not
        // asked for anything, so that it may take several.
        until("the run is cancelled", || {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            drop(stream);
            let answer = client.get(&run);
            match action {
                "interrupt" => answer.json()["status"] == "interrupted",
                _ => answer.status == 404,
            }
        });
        // The thread is free for the next one.
        assert_eq!(
            client.run(&thread, &slow(1, 1))["seen"],
            json!(["work", "rest"])
        );
    }
}

fn gone() -> Value {
    json!({"__error__": {"error": "HTTPException", "message": "404: Run not found"}})
}

fn who_waits_for_a_run_that_is_taken_away_is_told_that_there_is_none(place: &Place) {
    let (_server, client) = serve(place);
    let body = slow(30, 400);
    for joins in [false, true] {
        for end in ["thread", "run", "rollback", "another"] {
            let thread = client.thread();
            std::thread::scope(|scope| {
                let (client, thread, body) = (&client, &thread, &body);
                let joined = joins.then(|| background(client, thread, body));
                let waiting = scope.spawn(move || match joined {
                    Some(run) => client.get(&format!("/threads/{thread}/runs/{run}/join")),
                    None => client.post(&format!("/threads/{thread}/runs/wait"), body),
                });
                until("it works", || {
                    client.state(thread)["next"] == json!(["work"])
                });
                let runs = client.get(&format!("/threads/{thread}/runs")).json();
                let run = format!(
                    "/threads/{thread}/runs/{}",
                    runs[0]["run_id"].as_str().unwrap()
                );
                let ended = match end {
                    "thread" => client.delete(&format!("/threads/{thread}")),
                    "run" => client.delete(&run),
                    "rollback" => client.post(&format!("{run}/cancel?action=rollback"), &json!({})),
                    _ => {
                        let next = with(slow(1, 1), "multitask_strategy", "rollback");
                        client.post(&format!("/threads/{thread}/runs"), &next)
                    }
                };
                assert!((200..=204).contains(&ended.status), "{}", ended.text());
                assert_eq!(
                    waiting.join().unwrap().json(),
                    gone(),
                    "{end}, joins: {joins}"
                );
            });
        }
    }
}

fn the_end_of_a_run_is_found_at_its_place(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let run = background(&client, &thread, &slow(30, 400));
    let path = format!("/threads/{thread}/runs/{run}");
    until("it works", || {
        client.state(&thread)["next"] == json!(["work"])
    });
    for answer in [
        client.post(&format!("{path}/cancel?wait=1"), &json!({})),
        client.get(&format!("{path}/join")),
    ] {
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("location"), Some(&*format!("{path}/join")));
        assert_eq!(answer.header("content-location"), Some(&*path));
    }
}

fn a_run_that_ended_with_a_question_answers_the_question(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let body = json!({"assistant_id": "approve", "input": {"request": "r"}});
    let waited = client.run(&thread, &body);
    let asked = &waited["__interrupt__"][0];
    assert!(asked["response_schema"].is_null() && asked.get("response_schema").is_some());
    let runs = client.get(&format!("/threads/{thread}/runs")).json();
    let run = runs[0]["run_id"].as_str().unwrap();
    let joined = client
        .get(&format!("/threads/{thread}/runs/{run}/join"))
        .json();
    let question = json!({"id": asked["id"], "value": asked["value"]});
    assert_eq!(joined, json!({"__interrupt__": [question]}));
}

fn who_ended_a_run_is_said_as_langgraph_says_it(place: &Place) {
    let (_server, client) = serve(place);
    for (action, class) in [("interrupt", "UserInterrupt"), ("rollback", "UserRollback")] {
        let thread = client.thread();
        let run = background(&client, &thread, &slow(30, 400));
        until("it works", || {
            client.state(&thread)["next"] == json!(["work"])
        });
        let path = format!("/threads/{thread}/runs/{run}/cancel?wait=1&action={action}");
        let left = client.post(&path, &json!({})).json();
        let undone = action == "rollback";
        assert_eq!(left == json!({}), undone, "{left}");
        if !undone {
            // Who comes later gets the values as well, and not why it was ended.
            let path = format!("/threads/{thread}/runs/{run}/join");
            assert_eq!(client.get(&path).json(), left);
        }
        let row = client.get(&format!("/threads/{thread}")).json();
        let why =
            format!("{action} requested via POST /threads/{{thread_id}}/runs/{{run_id}}/cancel");
        assert_eq!(row["error"], json!({"error": class, "message": why}));
    }
    let thread = client.thread();
    let mut open = client.open_stream(&thread, &with(slow(30, 400), "on_disconnect", "cancel"));
    open.event_named("custom");
    drop(open);
    until("it ended", || {
        let row = client.get(&format!("/threads/{thread}")).json();
        row["error"]["message"] == "client disconnected from the run stream (on_disconnect=cancel)"
    });
}

fn what_was_streamed_before_a_cancel_is_stored(place: &Place) {
    let (_server, client) = serve(place);
    for _ in 0..10 {
        let thread = client.thread();
        let mut open = client.open_stream(&thread, &slow(300, 300));
        open.event_named("values");
        let path = format!("/threads/{thread}/runs/{}/cancel?wait=1", open.run());
        assert_eq!(client.post(&path, &json!({})).status, 200);
        let state = client.state(&thread);
        assert_eq!(state["next"], json!(["work"]));
        assert_eq!(state["metadata"]["source"], "loop");
        let row = client.get(&format!("/threads/{thread}")).json();
        assert_eq!(row["status"], "interrupted");
    }
}

fn a_run_that_never_began_leaves_the_thread_as_it_was(place: &Place) {
    let (_server, client) = serve(place);
    let row = |thread: &str| {
        let row = ok(client.get(&format!("/threads/{thread}")), 200);
        let keep = ["status", "error", "interrupts", "values"];
        json!(keep.map(|key| row[key].clone()))
    };
    for (graph, input, status) in [
        ("counter", Value::Null, "idle"),
        ("counter", json!({"count": 0}), "idle"),
        ("approve", json!({"request": "pay"}), "interrupted"),
        ("failing", json!({"fail": true}), "error"),
    ] {
        for how in [
            "interrupt",
            "rollback",
            "wait",
            "delete",
            "many",
            "superseded",
        ] {
            let thread = client.thread();
            if !input.is_null() {
                client.run(&thread, &json!({"assistant_id": graph, "input": input}));
            }
            let before = row(&thread);
            assert_eq!(before[0], status, "{graph}");
            let later = json!({"assistant_id": graph, "input": {}, "after_seconds": 1000});
            let run = background(&client, &thread, &later);
            assert_eq!(row(&thread)[0], "busy");
            let edit = client.post(&format!("/threads/{thread}/state"), &json!({"values": {}}));
            assert_eq!(edit.status, 409, "{}", edit.text());
            let path = format!("/threads/{thread}/runs/{run}");
            let ended = match how {
                "delete" => client.delete(&path),
                "wait" => client.post(&format!("{path}/cancel?wait=1"), &json!({})),
                "many" => {
                    let runs = json!({"thread_id": thread, "run_ids": [run]});
                    client.post("/runs/cancel", &runs)
                }
                "superseded" => {
                    let next = with(later, "multitask_strategy", "rollback");
                    let next = background(&client, &thread, &next);
                    client.delete(&format!("/threads/{thread}/runs/{next}"))
                }
                action => client.post(&format!("{path}/cancel?action={action}"), &json!({})),
            };
            assert!((200..=204).contains(&ended.status), "{}", ended.text());
            assert_eq!(row(&thread), before, "{graph}, {how}");
        }
    }
}

fn a_breakpoint_after_the_last_node_leaves_the_thread_idle(place: &Place) {
    let (_server, client) = serve(place);
    for durability in ["async", "exit"] {
        for (after, next) in [
            (json!(["last"]), json!([])),
            (json!(["left"]), json!(["last"])),
            (json!(["first"]), json!(["left", "right"])),
        ] {
            let thread = client.thread();
            let body = with(counter(), "interrupt_after", after.clone());
            client.run(&thread, &with(body, "durability", durability));
            let status = if next == json!([]) {
                "idle"
            } else {
                "interrupted"
            };
            let row = ok(client.get(&format!("/threads/{thread}")), 200);
            assert_eq!(row["status"], status, "{durability} {after}");
            assert_eq!(client.state(&thread)["next"], next, "{durability} {after}");
            let page = format!("/threads?status={status}&limit=100");
            let listed = ok(client.get(&page), 200);
            let mut listed = listed.as_array().unwrap().iter();
            assert!(listed.any(|row| row["thread_id"] == *thread), "{after}");
        }
    }
}
