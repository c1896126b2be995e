//! States as each branch shows and edits them.

use super::*;
use test_support::{on_both_storages, talk};

on_both_storages!(
    an_answered_question_is_asked_again_at_its_checkpoint,
    states_and_histories_are_shown_by_branch_and_tag,
    a_fork_runs_and_shows_what_it_inherits_and_nothing_later,
    graphs_inside_are_shown_as_their_branch_left_them,
    an_edit_inside_a_graph_builds_on_what_a_fork_and_a_branch_have_there,
    edits_by_branch_leave_the_others,
    an_edit_on_a_branch_with_a_running_run_is_refused,
    what_was_posted_is_shown_before_anything_has_run,
    an_edit_before_the_first_message_begins_anew,
    an_edit_between_messages_of_one_step_leaves_the_later_ones_out,
    a_checkpoint_is_an_address_in_queries_too,
    bad_addresses_are_refused_alike,
);

fn what_was_posted_is_shown_before_anything_has_run(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    assert_eq!(client.state(&id)["values"], json!({}));
    note(&client, &id, "a1");
    tag(&client, &id, "a1");
    let one = client.state(&id);
    assert_eq!(texts(&one), ["text of a1"]);
    assert_eq!(one["next"], json!([]));
    let now = ok(client.get(&format!("/threads/{id}/head")), 200);
    assert_eq!(
        one["checkpoint"]["checkpoint_id"],
        now["latest_checkpoint_id"]
    );
    note(&client, &id, "u2");
    let two = client.state(&id);
    assert_eq!(texts(&two), ["text of a1", "text of u2"]);
    assert_eq!(state(&client, &id, "tag=t"), one);
    assert_eq!(state(&client, &id, "branch=main"), two);
    let history = client.history(&id);
    assert_eq!(history.len(), 2);
    assert_eq!(history[0]["values"], two["values"]);
    let thread = ok(client.get(&format!("/threads/{id}")), 200);
    assert_eq!(thread["values"], two["values"]);
    // The first graph answers what waits, and shows the same.
    let run = json!({"assistant_id": "agent", "input": null});
    let values = client.run(&id, &run);
    for at in [0, 1] {
        assert_eq!(values["messages"][at], two["values"]["messages"][at]);
    }
    assert_eq!(texts(&client.state(&id)).len(), 3);
}

fn an_answered_question_is_asked_again_at_its_checkpoint(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    client.run(
        &id,
        &json!({"assistant_id": "approve", "input": {"request": "x"}}),
    );
    let asked = head(&client, &id, "main");
    let answer = |more: Value| {
        let body = extend(json!({"assistant_id": "approve"}), more);
        client.run(&id, &body)
    };
    let first = answer(json!({"command": {"resume": "yes"}}));
    let second = answer(json!({"command": {"resume": "no"}, "checkpoint_id": asked}));
    assert_ne!(first, second, "the new answer counts");
    assert_eq!(state(&client, &id, "branch=main")["values"], first);
    assert_eq!(client.state(&id)["values"], second);
    let expected = [("main".into(), false), ("main-v2".into(), true)];
    assert_eq!(names(&client, &id), expected);
    // Each path shows its own answer at the checkpoint that both began at.
    let shown = |branch: &str| {
        let path = format!("/threads/{id}/history?branch={branch}&limit=100");
        let history = ok(client.get(&path), 200);
        let states = history.as_array().unwrap().clone();
        let at = states
            .iter()
            .find(|state| state["checkpoint"]["checkpoint_id"] == asked);
        at.unwrap()["tasks"][0]["result"].clone()
    };
    assert_ne!(shown("main"), shown("main-v2"));
    assert!(!shown("main").is_null() && !shown("main-v2").is_null());
}

fn states_and_histories_are_shown_by_branch_and_tag(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    tag(&client, &id, &messages[1]);
    client.run(&id, &turn_as("aside", "m5", json!({"tag": "t"})));
    assert_eq!(texts(&state(&client, &id, "tag=t")), ["one", "echo: one"]);
    assert_eq!(
        texts(&state(&client, &id, "branch=main")),
        ["one", "echo: one", "two", "echo: two"]
    );
    let list = |query: &str| {
        let path = format!("/threads/{id}/history?limit=100&{query}");
        let list = ok(client.get(&path), 200);
        list.as_array().unwrap().clone()
    };
    let (all, main, side, tag) = (
        list(""),
        list("branch=main"),
        list("branch=main-v2"),
        list("tag=t"),
    );
    assert_eq!((all.len(), main.len(), side.len(), tag.len()), (9, 6, 6, 3));
    for path in [&main, &side] {
        for pair in path.windows(2) {
            assert_eq!(pair[0]["parent_checkpoint"], pair[1]["checkpoint"]);
        }
    }
    assert_eq!(main[3..], side[3..], "the shared part is the same");
    let body =
        json!({"branch": "main", "limit": 2, "before": main[1]["checkpoint"]["checkpoint_id"]});
    let page = ok(client.post(&format!("/threads/{id}/history"), &body), 200);
    assert_eq!(page.as_array().unwrap()[..], main[2..4]);
    let body = json!({"branch": "main", "limit": 100, "metadata": {"source": "input"}});
    let page = ok(client.post(&format!("/threads/{id}/history"), &body), 200);
    assert_eq!(page.as_array().unwrap().len(), 2);
    for query in ["branch=nope", "tag=nope"] {
        for what in ["state", "history"] {
            let answer = client.get(&format!("/threads/{id}/{what}?{query}"));
            let kind = query.split('=').next().unwrap();
            assert_eq!(code(answer, 404), format!("{kind}_not_found"));
        }
    }
    let answer = client.get(&format!("/threads/{id}/state?branch=main&tag=t"));
    assert_eq!(answer.status, 422);
    let answer = client.get(&format!("/threads/{id}/state?branch=a%20b"));
    assert_eq!(answer.status, 422);
}

fn a_fork_runs_and_shows_what_it_inherits_and_nothing_later(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let later = head(&client, &id, "main");
    let first = end_of_first_turn(&client, &id);
    let body = json!({"message_id": messages[1]});
    let made = ok(client.post(&format!("/threads/{id}/fork"), &body), 201);
    let fork = made["thread_id"].as_str().unwrap();
    assert_eq!(texts(&client.state(fork)), ["one", "echo: one"]);
    let history = client.history(fork);
    assert_eq!(history.len(), 3, "inherited rows are shown");
    assert!(
        history
            .iter()
            .all(|state| state["metadata"]["thread_id"] == fork)
    );
    client.run(fork, &turn_as("mine", "m5", json!({})));
    assert_eq!(branches(&client, fork), [("main".into(), true, 4)]);
    assert_eq!(client.history(fork).len(), 6);
    let path = format!(
        "/threads/{fork}/history?limit=2&before={}",
        first.as_str().unwrap()
    );
    let page = ok(client.get(&path), 200);
    assert_eq!(page.as_array().unwrap()[..], history[1..]);

    // An inherited checkpoint may be run from; one that came later in the parent is not there.
    let inherited = history[1]["checkpoint"]["checkpoint_id"].clone();
    let at = json!({"checkpoint_id": inherited, "input": null});
    client.run(fork, &turn_as("unused", "m6", at));
    assert_eq!(branches(&client, fork).len(), 2);
    let at = json!({"checkpoint_id": later});
    let answer = client.post(&format!("/threads/{fork}/runs"), &turn_as("x", "m7", at));
    assert_eq!(answer.status, 404, "{}", answer.text());
    let path = format!("/threads/{fork}/state/{}", later.as_str().unwrap());
    assert_eq!(ok(client.get(&path), 200)["values"], json!({}));
    let path = format!("/threads/{fork}/state/{}", inherited.as_str().unwrap());
    assert_eq!(texts(&ok(client.get(&path), 200)), ["one"]);
    let answer = client.post(
        &format!("/threads/{fork}/rewind"),
        &json!({"message_id": messages[3]}),
    );
    assert_eq!(code(answer, 404), "message_not_found");
    assert_eq!(head(&client, &id, "main"), later, "the parent is untouched");
}

fn graphs_inside_are_shown_as_their_branch_left_them(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    let body = json!({"assistant_id": "subgraph", "input": {"pause": true}});
    client.run(&id, &body);
    let state = |branch: &str| {
        let query = format!("subgraphs=true&branch={branch}");
        self::state(&client, &id, &query)
    };
    let before = state("main");
    let inner = before["tasks"][0]["state"]["checkpoint"].clone();
    assert!(inner.is_object(), "it stops inside: {before}");
    ok(client.post(&format!("/threads/{id}/btw"), &json!({})), 201);
    assert_eq!(state("main-v2")["tasks"], before["tasks"]);
    let answer = json!({"assistant_id": "subgraph", "command": {"resume": "a"}});
    let first = client.run(&id, &answer);
    assert_eq!(state("main-v2")["tasks"], before["tasks"]);
    let answer =
        json!({"assistant_id": "subgraph", "branch": "main-v2", "command": {"resume": "b"}});
    let second = client.run(&id, &answer);
    assert_ne!(first, second);
    assert_eq!(state("main")["values"], first);
    assert_eq!(state("main-v2")["values"], second);
}

fn an_edit_inside_a_graph_builds_on_what_a_fork_and_a_branch_have_there(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    let body = json!({"assistant_id": "subgraph", "input": {"pause": true}});
    client.run(&id, &body);
    let fork = talk::id_of(&talk::fork(&client, &id, &json!({})));
    ok(client.post(&format!("/threads/{id}/btw"), &json!({})), 201);
    let answer = json!({"assistant_id": "subgraph", "branch": "main", "command": {"resume": "a"}});
    client.run(&id, &answer);
    // The branch that waits is the active one again.
    let activate = format!("/threads/{id}/branches/main-v2/activate");
    ok(client.post(&activate, &json!({})), 200);
    for thread in [&fork, &id] {
        let inside = || state(&client, thread, "subgraphs=true")["tasks"][0]["state"].clone();
        let before = inside();
        assert_eq!(before["values"]["path"], json!(["before", "enter"]));
        let ns = before["checkpoint"]["checkpoint_ns"].clone();
        let edit = json!({"values": {"path": ["x"]}, "checkpoint": {"checkpoint_ns": ns}, "as_node": "enter"});
        ok(client.post(&format!("/threads/{thread}/state"), &edit), 200);
        let path = inside()["values"]["path"].clone();
        assert_eq!(path, json!(["before", "enter", "x"]));
    }
}

fn edits_by_branch_leave_the_others(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let rewind = json!({"message_id": messages[1]});
    ok(client.post(&format!("/threads/{id}/rewind"), &rewind), 201);
    let path = format!("/threads/{id}/state");
    let edit = |more: Value| {
        let message = json!({"role": "user", "content": "edited"});
        let body = extend(
            json!({"values": {"messages": [message]}, "as_node": "model"}),
            more,
        );
        client.post(&path, &body)
    };
    let made = ok(edit(json!({"branch": "main"})), 200);
    assert_eq!(made["checkpoint_id"], head(&client, &id, "main"));
    assert_eq!(texts(&client.state(&id)), ["one", "echo: one"]);
    assert_eq!(
        branches(&client, &id),
        [("main".into(), false, 5), ("main-v2".into(), true, 2)]
    );
    let main = head(&client, &id, "main");
    ok(edit(json!({"branch": "main", "checkpoint_id": main})), 200);
    let old = edit(json!({"branch": "main", "checkpoint_id": main}));
    assert_eq!(code(old, 409), "head_conflict");
    assert_eq!(
        code(edit(json!({"branch": "nope"})), 404),
        "branch_not_found"
    );
    // Further back it begins a branch, as without a name.
    ok(
        edit(json!({"message_id": messages[1], "position": "before"})),
        200,
    );
    assert_eq!(branches(&client, &id).len(), 3);
    assert_eq!(texts(&client.state(&id)), ["one", "edited"]);
}

fn an_edit_on_a_branch_with_a_running_run_is_refused(place: &Place) {
    let (_server, client) = serve(place);
    let id = with_side_branch(&client);
    let run = ok(
        client.post(&format!("/threads/{id}/runs"), &slow(20_000, json!({}))),
        200,
    );
    let edit = |more: Value| {
        let body = extend(json!({"values": {"ticks": 3}}), more);
        client.post(&format!("/threads/{id}/state"), &body)
    };
    assert_eq!(code(edit(json!({})), 409), "branch_busy");
    assert_eq!(code(edit(json!({"branch": "main"})), 409), "branch_busy");
    ok(edit(json!({"branch": "side"})), 200);
    let cancel = format!(
        "/threads/{id}/runs/{}/cancel?wait=true",
        run["run_id"].as_str().unwrap()
    );
    ok(client.post(&cancel, &json!({})), 200);
    ok(edit(json!({})), 200);
}

fn an_edit_before_the_first_message_begins_anew(place: &Place) {
    let (_server, client) = serve(place);
    let (id, _) = two_turns(&client);
    let path = format!("/threads/{id}/state");
    let edit = |as_node: Value| {
        let message = json!({"role": "user", "content": "anew"});
        json!({"values": {"messages": [message]}, "as_node": as_node, "message_id": "m1",
            "position": "before"})
    };
    for (number, as_node) in [json!("__start__"), json!("model"), Value::Null]
        .into_iter()
        .enumerate()
    {
        let made = ok(client.post(&path, &edit(as_node)), 200);
        let found = client.state(&id);
        assert_eq!(made["checkpoint_id"], found["checkpoint"]["checkpoint_id"]);
        assert_eq!(found["parent_checkpoint"], Value::Null);
        assert_eq!(texts(&found), ["anew"]);
        assert_eq!(branches(&client, &id).len(), number + 2);
    }
    let wrong = client.post(&path, &edit(json!("nobody")));
    wrong.refused(400);
    assert_eq!(branches(&client, &id).len(), 4, "nothing of it is left");
    client.run(&id, &json!({"assistant_id": "agent", "input": null}));
    assert_eq!(texts(&client.state(&id)), ["anew", "echo: anew"]);
}

fn an_edit_between_messages_of_one_step_leaves_the_later_ones_out(place: &Place) {
    let (_server, client) = serve(place);
    let id = agent_thread(&client);
    let list: Vec<Value> = ["one", "two", "three"]
        .iter()
        .map(|text| json!({"id": text, "role": "user", "content": text}))
        .collect();
    store(&client, &id, &json!({"messages": list}));
    let edit = |as_node: &str| {
        let values = json!({"messages": [{"role": "assistant", "content": "edited"}]});
        let body = json!({"values": values, "as_node": as_node, "message_id": "two"});
        client.post(&format!("/threads/{id}/state"), &body)
    };
    edit("nobody").refused(400);
    assert_eq!(branches(&client, &id).len(), 1, "nothing of it is left");
    let made = ok(edit("model"), 200);
    let found = client.state(&id);
    assert_eq!(made["checkpoint_id"], found["checkpoint"]["checkpoint_id"]);
    assert_eq!(texts(&found), ["one", "two", "edited"]);
    assert_eq!(found["next"], json!([]));
    assert_eq!(
        texts(&state(&client, &id, "branch=main")),
        ["one", "two", "three"]
    );
    let expected = [("main".into(), false, 3), ("main-v2".into(), true, 3)];
    assert_eq!(branches(&client, &id), expected);
}

fn a_checkpoint_is_an_address_in_queries_too(place: &Place) {
    let (_server, client) = serve(place);
    let (id, _) = two_turns(&client);
    let old = end_of_first_turn(&client, &id);
    let old = old.as_str().unwrap();
    let turn = ["one", "echo: one"];
    assert_eq!(
        texts(&state(&client, &id, &format!("checkpoint_id={old}"))),
        turn
    );
    let before = state(
        &client,
        &id,
        &format!("checkpoint_id={old}&position=before"),
    );
    assert_eq!(texts(&before), ["one"]);
    let path = format!("/threads/{id}/history");
    let by_query = ok(client.get(&format!("{path}?checkpoint_id={old}")), 200);
    let by_body = ok(client.post(&path, &json!({"checkpoint_id": old})), 200);
    assert_eq!(by_query, by_body);
    assert_eq!(by_query.as_array().unwrap().len(), 1);
    // With a position it is a path, on both verbs.
    let by_query = client.get(&format!("{path}?checkpoint_id={old}&position=before"));
    let by_query = ok(by_query, 200);
    let body = json!({"checkpoint_id": old, "position": "before"});
    assert_eq!(by_query, ok(client.post(&path, &body), 200));
    assert_eq!(texts(&by_query[0]), ["one"]);
    for what in ["state", "history"] {
        for query in [
            "checkpoint_id=x".to_owned(),
            format!("checkpoint_id={old}&branch=main"),
        ] {
            client
                .get(&format!("/threads/{id}/{what}?{query}"))
                .refused(422);
        }
    }
    let other = client.get(&format!("/threads/{id}/state/{old}?checkpoint_id={id}"));
    other.refused(422);
}

fn bad_addresses_are_refused_alike(place: &Place) {
    let (_server, client) = serve(place);
    let (id, _) = two_turns(&client);
    let head = head(&client, &id, "main");
    let at_head = json!({"checkpoint": {"checkpoint_id": head}});
    for wrong in [
        json!({"branch": ""}),
        json!({"branch": 5}),
        json!({"tag": 5}),
        json!({"position": "foo"}),
        json!({"event_number": "x"}),
        json!({"parent_id": []}),
        json!({"tag": "t", "branch": "main"}),
    ] {
        for (path, body) in [
            ("runs/wait", turn_as("x", "x", json!({}))),
            ("state", json!({"values": {}})),
            ("state/checkpoint", at_head.clone()),
            ("history", json!({})),
        ] {
            let body = extend(body, wrong.clone());
            let answer = client.post(&format!("/threads/{id}/{path}"), &body);
            assert_eq!(code(answer, 422), "invalid_request", "{path} {wrong}");
        }
    }
    // Reading takes one address; a run and an edit may name the branch of their checkpoint.
    let both = extend(at_head, json!({"branch": "main"}));
    for path in ["state/checkpoint", "history"] {
        let answer = client.post(&format!("/threads/{id}/{path}"), &both);
        assert_eq!(code(answer, 422), "invalid_request", "{path}");
    }
    ok(
        client.post(
            &format!("/threads/{id}/state"),
            &extend(both, json!({"values": null})),
        ),
        200,
    );
    let run = turn_as("x", "x", json!({"activate": "yes"}));
    let answer = client.post(&format!("/threads/{id}/runs/wait"), &run);
    assert_eq!(code(answer, 422), "invalid_request");
}
