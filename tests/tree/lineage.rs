//! Runs and states on branches, by tag, message and checkpoint.

use serde_json::{Value, json};

use super::branches::{branches, slow, texts, two_turns, with_side_branch};
use crate::on_both_storages;
use crate::support;
use crate::support::client::Client;
use crate::support::place::{Place, serve};
use crate::support::talk::{code, extend, ok, put, turn_as};

on_both_storages!(
    scenario_02_an_old_checkpoint_begins_a_branch,
    scenario_03_a_replayed_question_is_answered_on_the_new_lineage,
    scenario_08_a_branch_shows_its_model_its_own_path,
    a_run_on_a_named_branch_moves_that_branch_alone,
    a_run_at_the_head_of_another_branch_goes_on_there,
    a_run_at_a_tag_or_message_begins_a_branch_there,
    a_run_before_the_first_message_begins_with_nothing,
    the_stream_names_the_branch_only_when_one_was_used,
    strategies_are_decided_per_branch,
    a_queued_run_without_address_follows_the_active_branch,
    an_answered_question_is_asked_again_at_its_checkpoint,
    states_and_histories_are_shown_by_branch_and_tag,
    a_fork_runs_and_shows_what_it_inherits_and_nothing_later,
    graphs_inside_are_shown_as_their_branch_left_them,
    edits_by_branch_leave_the_others,
    an_edit_on_a_branch_with_a_running_run_is_refused,
    addresses_that_make_no_sense_are_refused,
);

fn state(client: &Client, thread: &str, query: &str) -> Value {
    ok(client.get(&format!("/threads/{thread}/state?{query}")), 200)
}

/// Tags a message `t`.
fn tag(client: &Client, thread: &str, message: &str) {
    let path = format!("/threads/{thread}/tags/t");
    ok(put(client, &path, &json!({"message_id": message})), 201);
}

fn head(client: &Client, thread: &str, branch: &str) -> Value {
    state(client, thread, &format!("branch={branch}"))["checkpoint"]["checkpoint_id"].clone()
}

fn names(client: &Client, thread: &str) -> Vec<(String, bool)> {
    let found = branches(client, thread);
    found
        .into_iter()
        .map(|(name, active, _)| (name, active))
        .collect()
}

/// The checkpoint in which the first turn of a thread ended.
fn end_of_first_turn(client: &Client, thread: &str) -> Value {
    let history = client.history(thread);
    let found = history.iter().find(|state| {
        state["values"]["messages"].as_array().map(Vec::len) == Some(2)
            && state["metadata"]["source"] == "loop"
    });
    found.unwrap()["checkpoint"]["checkpoint_id"].clone()
}

fn scenario_02_an_old_checkpoint_begins_a_branch(place: &Place) {
    let (_server, client) = serve(place);
    let (id, _) = two_turns(&client);
    let before = client.history(&id);
    let old = end_of_first_turn(&client, &id);
    let events = client.stream(&id, &turn_as("again", "m5", json!({"checkpoint_id": old})));
    assert!(events[0].data.get("branch").is_none());
    assert_eq!(
        texts(&client.state(&id)),
        ["one", "echo: one", "again", "echo: again"]
    );
    let expected = [("main".into(), false, 4), ("main-v2".into(), true, 4)];
    assert_eq!(branches(&client, &id), expected);
    let after = client.history(&id);
    let ids: Vec<&str> = after
        .iter()
        .map(|state| state["checkpoint"]["checkpoint_id"].as_str().unwrap())
        .collect();
    assert!(ids.windows(2).all(|pair| pair[0] > pair[1]), "{ids:?}");
    let old: Vec<&Value> = after
        .iter()
        .filter(|state| {
            before
                .iter()
                .any(|old| old["checkpoint"] == state["checkpoint"])
        })
        .collect();
    assert_eq!(old, before.iter().collect::<Vec<_>>());
}

fn scenario_03_a_replayed_question_is_answered_on_the_new_lineage(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    let run = |more: Value| {
        let body = extend(json!({"assistant_id": "approve"}), more);
        client.run(&id, &body)
    };
    run(json!({"input": {"request": "x"}}));
    let asked = head(&client, &id, "main");
    let first = run(json!({"command": {"resume": "yes"}}));
    let stopped = run(json!({"checkpoint_id": asked, "input": null}));
    assert!(stopped["__interrupt__"].is_array(), "{stopped}");
    let second = run(json!({"command": {"resume": "no"}}));
    assert_ne!(first, second);
    assert_eq!(state(&client, &id, "branch=main")["values"], first);
    assert_eq!(client.state(&id)["values"], second);
    let expected = [("main".into(), false), ("main-v2".into(), true)];
    assert_eq!(names(&client, &id), expected);
}

fn scenario_08_a_branch_shows_its_model_its_own_path(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    client.run(&id, &turn_as("three", "m5", json!({})));
    let values = client.run(
        &id,
        &turn_as("aside", "m7", json!({"parent_id": messages[1]})),
    );
    let seen: Vec<&Value> = values["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| &message["content"])
        .collect();
    assert_eq!(seen, ["one", "echo: one", "aside", "echo: aside"]);
}

fn a_run_on_a_named_branch_moves_that_branch_alone(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let main = head(&client, &id, "main");
    let path = format!("/threads/{id}/branches");
    let body = json!({"message_id": messages[1], "name": "side"});
    let side = ok(client.post(&path, &body), 201);
    client.run(&id, &turn_as("aside", "m5", json!({"branch": "side"})));
    assert_eq!(head(&client, &id, "main"), main);
    assert_ne!(head(&client, &id, "side"), side["head_checkpoint_id"]);
    assert_eq!(
        names(&client, &id),
        [("main".into(), true), ("side".into(), false)]
    );
    client.run(
        &id,
        &turn_as("on", "m6", json!({"branch": "side", "activate": true})),
    );
    assert_eq!(
        names(&client, &id),
        [("main".into(), false), ("side".into(), true)]
    );
    assert_eq!(
        texts(&client.state(&id)),
        ["one", "echo: one", "aside", "echo: aside", "on", "echo: on"]
    );
    // Its head may be said as well.
    let both = json!({"branch": "main", "checkpoint_id": main});
    client.run(&id, &turn_as("main", "m7", both.clone()));
    assert_eq!(
        state(&client, &id, "branch=main")["values"]["messages"]
            .as_array()
            .unwrap()
            .len(),
        6
    );
    let answer = client.post(&format!("/threads/{id}/runs"), &turn_as("x", "m8", both));
    assert_eq!(code(answer, 409), "head_conflict");
    let unknown = client.post(
        &format!("/threads/{id}/runs"),
        &turn_as("x", "m8", json!({"branch": "no"})),
    );
    assert_eq!(code(unknown, 404), "branch_not_found");
}

fn a_run_at_the_head_of_another_branch_goes_on_there(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let rewind = json!({"message_id": messages[1]});
    ok(client.post(&format!("/threads/{id}/rewind"), &rewind), 201);
    let main = head(&client, &id, "main");
    client.run(&id, &turn_as("three", "m5", json!({"checkpoint_id": main})));
    assert_eq!(
        branches(&client, &id),
        [("main".into(), true, 6), ("main-v2".into(), false, 2)]
    );
    let side = head(&client, &id, "main-v2");
    client.run(
        &id,
        &turn_as("x", "m6", json!({"checkpoint_id": side, "activate": false})),
    );
    assert_eq!(
        branches(&client, &id),
        [("main".into(), true, 6), ("main-v2".into(), false, 4)]
    );
}

fn a_run_at_a_tag_or_message_begins_a_branch_there(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    tag(&client, &id, &messages[1]);
    client.run(&id, &turn_as("by tag", "m5", json!({"tag": "t"})));
    assert_eq!(
        texts(&client.state(&id)),
        ["one", "echo: one", "by tag", "echo: by tag"]
    );
    let quiet = json!({"message_id": messages[1], "activate": false});
    let events = client.stream(&id, &turn_as("quiet", "m6", quiet));
    assert_eq!(events[0].data["branch"], "main-v2-v2");
    let expected = [
        ("main".into(), false, 4),
        ("main-v2".into(), true, 4),
        ("main-v2-v2".into(), false, 4),
    ];
    assert_eq!(branches(&client, &id), expected);
    assert_eq!(
        texts(&state(&client, &id, "branch=main-v2-v2")),
        ["one", "echo: one", "quiet", "echo: quiet"]
    );
    // The last message of a path is where it goes on.
    client.run(&id, &turn_as("on", "m7", json!({"parent_id": messages[3]})));
    assert_eq!(names(&client, &id)[0], ("main".into(), true));
}

fn a_run_before_the_first_message_begins_with_nothing(place: &Place) {
    let (_server, client) = serve(place);
    let (id, _) = two_turns(&client);
    let before = json!({"message_id": "m1", "position": "before"});
    client.run(&id, &turn_as("anew", "m5", before));
    assert_eq!(texts(&client.state(&id)), ["anew", "echo: anew"]);
    assert_eq!(
        branches(&client, &id),
        [("main".into(), false, 4), ("main-v2".into(), true, 2)]
    );
}

fn the_stream_names_the_branch_only_when_one_was_used(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let named = |more: Value, mid: &str| {
        let events = client.stream(&id, &turn_as("x", mid, more));
        assert_eq!(events[0].name, "metadata");
        events[0].data.get("branch").cloned()
    };
    assert_eq!(named(json!({}), "a"), None);
    let old = end_of_first_turn(&client, &id);
    assert_eq!(named(json!({"checkpoint_id": old}), "b"), None);
    assert_eq!(named(json!({"branch": "main"}), "c"), Some(json!("main")));
    assert_eq!(
        named(json!({"activate": true}), "d"),
        Some(json!("main-v2"))
    );
    assert_eq!(
        named(json!({"parent_id": messages[0]}), "e"),
        Some(json!("main-v2-v2"))
    );
}

fn strategies_are_decided_per_branch(place: &Place) {
    let (_server, client) = serve(place);
    let id = with_side_branch(&client);
    let runs = format!("/threads/{id}/runs");
    let first = ok(client.post(&runs, &slow(20_000, json!({}))), 200);
    let refused = |more: Value| client.post(&runs, &slow(1, more)).status;
    assert_eq!(refused(json!({"multitask_strategy": "reject"})), 409);
    assert_eq!(
        refused(json!({"multitask_strategy": "reject", "branch": "main"})),
        409
    );
    let side = json!({"multitask_strategy": "reject", "branch": "side"});
    client.run(&id, &slow(1, side));
    for strategy in ["interrupt", "rollback"] {
        let body = slow(1, json!({"multitask_strategy": strategy, "branch": "side"}));
        client.run(&id, &body);
    }
    let path = format!("{runs}/{}", first["run_id"].as_str().unwrap());
    assert_eq!(ok(client.get(&path), 200)["status"], "running");
    let thread = ok(client.get(&format!("/threads/{id}")), 200);
    assert_eq!(thread["status"], "busy");
    client.run(&id, &slow(1, json!({"multitask_strategy": "interrupt"})));
    assert_eq!(ok(client.get(&path), 200)["status"], "interrupted");
}

fn a_queued_run_without_address_follows_the_active_branch(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    client.run(&id, &slow(1, json!({})));
    let runs = format!("/threads/{id}/runs");
    let running = ok(client.post(&runs, &slow(20_000, json!({}))), 200);
    let floating = ok(client.post(&runs, &slow(1, json!({}))), 200);
    let body = json!({"name": "side", "activate": true});
    let side = ok(client.post(&format!("/threads/{id}/branches"), &body), 201);
    assert!(side.get("cancelled_runs").is_none());
    let floating = floating["run_id"].as_str().unwrap();
    assert_eq!(client.end_of(&id, floating), "success");
    assert_ne!(
        head(&client, &id, "side"),
        side["head_checkpoint_id"],
        "it took the branch that is active now"
    );
    let running = running["run_id"].as_str().unwrap();
    let path = format!("{runs}/{running}");
    assert_eq!(ok(client.get(&path), 200)["status"], "running");
    ok(
        client.post(&format!("{path}/cancel?wait=true"), &json!({})),
        200,
    );
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

fn addresses_that_make_no_sense_are_refused(place: &Place) {
    let (_server, client) = serve(place);
    let (id, _) = two_turns(&client);
    let head = head(&client, &id, "main");
    let other = end_of_first_turn(&client, &id);
    let runs = format!("/threads/{id}/runs");
    for more in [
        json!({"branch": "main", "tag": "t"}),
        json!({"branch": "main", "parent_id": "m1"}),
        json!({"tag": "t", "checkpoint_id": head}),
        json!({"parent_id": "m1", "checkpoint_id": head}),
        json!({"checkpoint_id": head, "checkpoint": {"checkpoint_id": other}}),
        json!({"checkpoint_id": head, "config": {"configurable": {"checkpoint_id": other}}}),
        json!({"branch": 1}),
        json!({"branch": "a b"}),
        json!({"tag": ""}),
        json!({"activate": "yes"}),
        json!({"parent_id": "m1", "position": "after"}),
        json!({"event_number": 0}),
    ] {
        let answer = client.post(&runs, &turn_as("x", "m9", more.clone()));
        assert_eq!(answer.status, 422, "{more} {}", answer.text());
    }
    for (more, expected) in [
        (json!({"branch": "nope"}), "branch_not_found"),
        (json!({"tag": "nope"}), "tag_not_found"),
        (
            json!({"parent_id": "5a65802f-74fe-4e41-9a19-5fa219b2c04e"}),
            "message_not_found",
        ),
    ] {
        let answer = client.post(&runs, &turn_as("x", "m9", more));
        assert_eq!(code(answer, 404), expected);
    }
    let unknown = json!({"checkpoint_id": "1f1e52d3-b51d-655d-8000-078d7d9aa83f"});
    let answer = client.post(&runs, &turn_as("x", "m9", unknown));
    assert_eq!(code(answer, 404), "", "told as LangGraph's clients know it");
    // Equal values may repeat.
    let same = json!({"checkpoint_id": head, "checkpoint": {"checkpoint_id": head}});
    ok(client.post(&runs, &turn_as("x", "m9", same)), 200);
    assert_eq!(branches(&client, &id).len(), 1);
}
