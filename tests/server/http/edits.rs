//! Edits of states: commands in place of values, many at once, graphs that are not there.

use super::*;
use test_support::gate::{Gate, reached};
use test_support::on_both_storages;
use test_support::server::Setup;
use test_support::talk::{background, code, create, extend, ok, turn, until, user};

on_both_storages!(
    supersteps_take_commands_in_place_of_values,
    edits_that_meet_are_all_stored,
    a_thread_whose_graph_is_not_here_says_so,
    a_copy_of_a_checkpoint_is_no_runs,
    a_state_is_not_edited_while_a_run_waits_on_its_branch,
    a_run_that_was_created_during_an_edit_refuses_it,
);

fn made(client: &Client, updates: Value) -> test_support::client::Answer {
    let body = json!({"metadata": {"graph_id": "counter"}, "supersteps": [{"updates": [updates]}]});
    client.post("/threads", &body)
}

fn supersteps_take_commands_in_place_of_values(place: &Place) {
    let (_server, client) = serve(place);
    for (update, count, next) in [
        (
            json!({"values": null, "command": {"update": {"count": 4}, "goto": "last"}}),
            4,
            json!(["left", "right", "last"]),
        ),
        (
            json!({"command": {"update": [["count", 4], ["count", 3]]}}),
            7,
            json!(["left", "right"]),
        ),
        (
            json!({"values": {"count": 7}, "command": {"goto": {"node": "last", "input": {"count": 9}}}}),
            0,
            json!(["last", "left", "right"]),
        ),
        (
            json!({"values": {"count": 7}, "command": {}}),
            7,
            json!(["left", "right"]),
        ),
    ] {
        let row = ok(made(&client, with(update.clone(), "as_node", "first")), 200);
        assert_eq!(row["values"]["count"], count, "{update}");
        assert_eq!(row["status"], "interrupted", "{update}");
        let state = client.state(row["thread_id"].as_str().unwrap());
        assert_eq!(state["next"], next, "{update}");
    }
    let row = made(
        &client,
        json!({"command": {"update": {"count": 4}}, "as_node": "__input__"}),
    );
    let thread = ok(row, 200)["thread_id"].clone();
    let thread = thread.as_str().unwrap();
    assert_eq!(client.state(thread)["next"], json!(["__start__"]));
    client.run(thread, &json!({"assistant_id": "counter", "input": null}));
    assert_eq!(client.state(thread)["values"]["count"], 1115);

    for (update, status, detail) in [
        (
            json!({"values": {"count": 1}}),
            422,
            "\"as_node\" is a required property",
        ),
        (
            json!({"values": "x", "as_node": "first"}),
            422,
            "not of type \"object\"",
        ),
        (
            json!({"command": {"goto": "last"}, "as_node": "__end__"}),
            400,
            "Node __end__ does not exist",
        ),
        (
            json!({"command": {"goto": "nope"}, "as_node": "first"}),
            400,
            "nope",
        ),
        (
            json!({"command": {"goto": 1}, "as_node": "first"}),
            422,
            "`command.goto`",
        ),
    ] {
        let said = made(&client, update.clone()).refused(status);
        assert!(said.contains(detail), "{update}: {said}");
    }
}

fn edits_that_meet_are_all_stored(place: &Place) {
    let (_server, client) = serve(place);
    let thread = create(&client, &json!({"metadata": {"graph_id": "counter"}}));
    let path = format!("/threads/{thread}/state");
    let edit = json!({"values": {"count": 1}, "as_node": "last"});
    std::thread::scope(|scope| {
        for _ in 0..15 {
            scope.spawn(|| ok(client.post(&path, &edit), 200));
        }
    });
    assert_eq!(client.state(&thread)["values"]["count"], 15);
    assert_eq!(client.history(&thread).len(), 15, "one after the other");
    assert_eq!(
        client.get(&format!("/threads/{thread}")).json()["status"],
        "idle"
    );
    let at = client.history(&thread)[14]["checkpoint_id"].clone();
    ok(client.post(&path, &with(edit, "checkpoint_id", at)), 200);
    assert_eq!(client.state(&thread)["values"]["count"], 2);
}

fn a_thread_whose_graph_is_not_here_says_so(place: &Place) {
    let (_server, client) = serve(place);
    let thread = create(&client, &json!({"metadata": {"graph_id": "nope"}}));
    let (state, history) = (
        format!("/threads/{thread}/state"),
        format!("/threads/{thread}/history"),
    );
    for answer in [
        client.get(&state),
        client.post(&state, &json!({"values": {"a": 1}})),
        client.get(&history),
        client.post(&history, &json!({})),
    ] {
        let detail = answer.refused(404);
        let begin = "Graph 'nope' not found. Expected one of: ['agent', 'approve', ";
        assert!(detail.starts_with(begin), "{detail}");
    }
    assert_eq!(client.get(&format!("/threads/{thread}")).status, 200);
}

fn a_copy_of_a_checkpoint_is_no_runs(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &with(counter(), "metadata", json!({"m": 1})));
    let body = json!({"values": null, "as_node": "__copy__"});
    ok(client.post(&format!("/threads/{thread}/state"), &body), 200);
    let said = client.state(&thread)["metadata"].clone();
    let wanted = json!({"source": "fork", "step": 4, "parents": {}, "thread_id": thread});
    assert_eq!(said, wanted);
    let run = client.get(&format!("/threads/{thread}/runs")).json()[0]["run_id"].clone();
    let gone = client.delete(&format!("/threads/{thread}/runs/{}", run.as_str().unwrap()));
    assert_eq!(gone.status, 204);
    until("the copy is what is left to see", || {
        client.state(&thread)["metadata"] == wanted
    });
}

fn a_run_that_was_created_during_an_edit_refuses_it(place: &Place) {
    let mut server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    client.run(&thread, &turn("hi"));
    // An edit waits when its state has been computed, and nothing is locked yet.
    let gate = Gate::new();
    server.restart_with("FAILPOINTS", &gate.at("threads.before_edit"));
    let closed = gate.close();
    let client = Client::of(&server);
    let history = || client.get(&format!("/threads/{thread}/history")).json();
    let before = history();
    let values = json!({"values": {"messages": []}, "as_node": "model"});
    let path = format!("/threads/{thread}/state");
    std::thread::scope(|scope| {
        let edit = scope.spawn(|| client.post(&path, &values));
        until("the edit is about to be written", || reached(&server) > 0);
        background(
            &client,
            &thread,
            &extend(turn("later"), json!({"after_seconds": 1000})),
        );
        drop(closed);
        assert_eq!(code(edit.join().unwrap(), 409), "branch_busy");
    });
    assert_eq!(history(), before, "nothing was written");
}

fn a_state_is_not_edited_while_a_run_waits_on_its_branch(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &turn("hi"));
    let btw = format!("/threads/{thread}/btw");
    ok(client.post(&btw, &json!({"name": "side"})), 201);
    let edit = |at: Value| {
        let path = format!("/threads/{thread}/state");
        let values = json!({"values": {"messages": []}, "as_node": "model"});
        client.post(&path, &extend(values, at))
    };
    let history = || client.get(&format!("/threads/{thread}/history")).json();
    let before = history();
    // A run without an address goes to the branch that is active when it begins.
    let later = |at: Value| extend(turn("later"), extend(json!({"after_seconds": 1000}), at));
    let floating = background(&client, &thread, &later(json!({})));
    let old = before[1]["checkpoint_id"].clone();
    for at in [
        json!({}),
        json!({"branch": "main"}),
        json!({"checkpoint_id": old}),
        json!({"as_node": "__copy__", "values": null}),
    ] {
        assert_eq!(code(edit(at.clone()), 409), "branch_busy", "{at}");
    }
    assert_eq!(history(), before, "nothing was written");
    ok(edit(json!({"branch": "side"})), 200);
    let cancel = |run: &str| {
        let path = format!("/threads/{thread}/runs/{run}/cancel");
        assert_eq!(client.post(&path, &json!({})).status, 202);
    };
    cancel(&floating);
    let pinned = background(&client, &thread, &later(json!({"branch": "side"})));
    assert_eq!(code(edit(json!({"branch": "side"})), 409), "branch_busy");
    ok(edit(json!({})), 200);
    // Messages may be posted while runs only wait.
    let path = format!("/threads/{thread}/messages");
    let post = json!({"branch": "side", "activate": false});
    ok(client.post(&path, &extend(user("and"), post)), 201);
    cancel(&pinned);
    ok(edit(json!({"branch": "side"})), 200);
}
