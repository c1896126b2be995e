//! Branches and tags: made, switched, renamed, deleted; and what that does to waiting runs.

use serde_json::{Value, json};

use crate::on_both_storages;
use crate::support;
use crate::support::client::Client;
use crate::support::place::{Place, serve};
use crate::support::talk::{self, code, extend, last_event, ok, patch, put, turn_as, until};

on_both_storages!(
    scenario_06_leaves_are_the_ends_of_paths,
    scenario_21_rewinding_names_branches_by_where_they_come_from,
    scenario_22_a_side_branch_runs_beside_the_main_one,
    scenario_23_a_tag_names_one_place_until_it_is_moved,
    scenario_25_rows_that_tags_and_branches_name_outlive_their_run,
    a_new_thread_has_one_empty_branch,
    rewinding_before_a_user_message_gives_its_text_back,
    rewinding_to_an_event_finds_what_there_was_then,
    a_branch_made_at_an_address_stays_inactive_until_asked,
    activating_is_idempotent_and_keeps_or_ends_what_waits,
    cancelling_the_running_run_fences_it_off,
    renaming_and_deleting_change_the_pointer_alone,
    names_with_slashes_are_encoded_in_paths,
    an_interrupted_branch_and_its_copy_are_answered_differently,
    a_branch_made_of_an_interrupted_copy_takes_its_question_over,
    a_branch_that_ends_in_open_tool_calls_warns_of_them,
    events_tell_of_every_change_of_branches_and_tags,
    bad_input_is_refused_with_a_code,
);

/// A run of `slow` with one tick.
pub fn slow(ms: u64, more: Value) -> Value {
    extend(talk::slow(ms, 1), more)
}

/// What the messages of a state say.
pub fn texts(state: &Value) -> Vec<String> {
    let messages = state["values"]["messages"].as_array();
    let text = |message: &Value| message["content"].as_str().unwrap().to_owned();
    messages.into_iter().flatten().map(text).collect()
}

/// A thread with two turns: m1, its answer, m3, its answer; and the ids of those messages.
pub fn two_turns(client: &Client) -> (String, Vec<String>) {
    let id = client.thread();
    client.run(&id, &turn_as("one", "m1", json!({})));
    client.run(&id, &turn_as("two", "m3", json!({})));
    let state = client.state(&id);
    let messages = state["values"]["messages"].as_array().unwrap();
    let ids = messages.iter().map(|one| one["id"].as_str().unwrap());
    (id, ids.map(str::to_owned).collect())
}

/// A thread with one run of `slow`, and an inactive branch `side` at its head.
pub fn with_side_branch(client: &Client) -> String {
    let id = client.thread();
    client.run(&id, &slow(1, json!({})));
    let side = client.post(&format!("/threads/{id}/btw"), &json!({"name": "side"}));
    ok(side, 201);
    id
}

/// Every branch: name, whether it is active, its messages.
pub fn branches(client: &Client, thread: &str) -> Vec<(String, bool, i64)> {
    let found = ok(client.get(&format!("/threads/{thread}/branches")), 200);
    let rows = found["branches"].as_array().unwrap();
    let active = rows.iter().filter(|row| row["is_active"] == true);
    assert_eq!(active.count(), 1, "{found}");
    rows.iter()
        .map(|row| {
            let name = row["name"].as_str().unwrap().to_owned();
            if row["is_active"] == true {
                assert_eq!(found["active"], *name);
            }
            let count = row["message_count"].as_i64().unwrap();
            (name, row["is_active"] == true, count)
        })
        .collect()
}

fn branch(client: &Client, thread: &str, name: &str) -> Value {
    let found = ok(client.get(&format!("/threads/{thread}/branches")), 200);
    let rows = found["branches"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("no {name} in {found}"))
        .clone()
}

fn scenario_06_leaves_are_the_ends_of_paths(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    client.run(&id, &turn_as("three", "m5", json!({})));
    client.run(
        &id,
        &turn_as("aside", "m7", json!({"parent_id": messages[1]})),
    );
    let found = ok(client.get(&format!("/threads/{id}/branches")), 200);
    let leaves: Vec<(i64, &Value)> = found["leaves"]
        .as_array()
        .unwrap()
        .iter()
        .map(|leaf| (leaf["depth"].as_i64().unwrap(), &leaf["branches"]))
        .collect();
    assert_eq!(
        leaves,
        [(6, &json!(["main"])), (4, &json!(["main-v2"]))],
        "{found}"
    );
    let expected = [("main".into(), false, 6), ("main-v2".into(), true, 4)];
    assert_eq!(branches(&client, &id), expected);
    assert_eq!(found["forks"], json!([]));
}

fn scenario_21_rewinding_names_branches_by_where_they_come_from(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let rewind = || {
        let body = json!({"message_id": messages[1]});
        ok(client.post(&format!("/threads/{id}/rewind"), &body), 201)
    };
    let made = rewind();
    assert_eq!(made["name"], "main-v2");
    assert_eq!(made["origin"], "rewind");
    assert_eq!(made["source_branch"], "main");
    assert_eq!(made["head_message_id"], *messages[1]);
    assert_eq!(made["status"], "idle");
    assert_eq!(made["cancelled_runs"], json!([]));
    assert_eq!(made["event_number"], last_event(&client, &id));
    assert!(made.get("prefill").is_none() && made.get("warnings").is_none());
    assert_eq!(texts(&client.state(&id)), ["one", "echo: one"]);
    client.run(&id, &turn_as("other", "m5", json!({})));
    let back = client.post(&format!("/threads/{id}/branches/main/activate"), &json!({}));
    assert_eq!(ok(back, 200)["name"], "main");
    assert_eq!(
        texts(&client.state(&id)),
        ["one", "echo: one", "two", "echo: two"]
    );
    assert_eq!(rewind()["name"], "main-v3");
    let path = format!("/threads/{id}/branches/main-v2/activate");
    ok(client.post(&path, &json!({})), 200);
    assert_eq!(rewind()["name"], "main-v2-v2");
    let expected = [
        ("main".into(), false, 4),
        ("main-v2".into(), false, 4),
        ("main-v3".into(), false, 2),
        ("main-v2-v2".into(), true, 2),
    ];
    assert_eq!(branches(&client, &id), expected);
    let main = ok(client.get(&format!("/threads/{id}/state?branch=main")), 200);
    assert_eq!(texts(&main), ["one", "echo: one", "two", "echo: two"]);
}

fn scenario_22_a_side_branch_runs_beside_the_main_one(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    let runs = format!("/threads/{id}/runs");
    let first = ok(client.post(&runs, &slow(5000, json!({}))), 200);
    until("the run moves its branch", || {
        !branch(&client, &id, "main")["head_checkpoint_id"].is_null()
    });
    let queued = ok(client.post(&runs, &slow(1, json!({}))), 200);
    assert_eq!(branch(&client, &id, "main")["status"], "busy");

    let made = ok(client.post(&format!("/threads/{id}/btw"), &json!({})), 201);
    assert_eq!(made["name"], "main-v2");
    assert_eq!(made["origin"], "btw");
    assert_eq!(made["is_active"], false);
    assert_eq!(
        made["status"], "interrupted",
        "what the run does there waits to be done"
    );
    let second = ok(
        client.post(&runs, &slow(200, json!({"branch": "main-v2"}))),
        200,
    );
    let ended = client.end_of(&id, second["run_id"].as_str().unwrap());
    assert_eq!(ended, "success");
    let still = ok(
        client.get(&format!("{runs}/{}", first["run_id"].as_str().unwrap())),
        200,
    );
    assert_eq!(still["status"], "running", "both ran at the same time");

    let path = format!("/threads/{id}/branches/main-v2/activate");
    let active = ok(client.post(&path, &json!({})), 200);
    assert_eq!(active["cancelled_runs"], json!([queued["run_id"]]));
    let queued = client.end_of(&id, queued["run_id"].as_str().unwrap());
    assert_eq!(queued, "interrupted");
    let first = client.end_of(&id, first["run_id"].as_str().unwrap());
    assert_eq!(first, "success");
    assert_eq!(branch(&client, &id, "main")["status"], "idle");
    assert_ne!(
        branch(&client, &id, "main")["head_checkpoint_id"],
        branch(&client, &id, "main-v2")["head_checkpoint_id"]
    );
}

fn scenario_23_a_tag_names_one_place_until_it_is_moved(place: &Place) {
    let (_server, client) = serve(place);
    let empty = client.thread();
    let nothing = put(&client, &format!("/threads/{empty}/tags/t"), &json!({}));
    assert_eq!(code(nothing, 409), "empty_branch");

    let (id, messages) = two_turns(&client);
    let path = format!("/threads/{id}/tags/before-choice");
    let set = ok(
        put(&client, &path, &json!({"message_id": messages[1]})),
        201,
    );
    assert_eq!(set["name"], "before-choice");
    assert_eq!(set["message_id"], *messages[1]);
    assert_eq!(set["event_number"], last_event(&client, &id));
    let moved = ok(put(&client, &path, &json!({})), 200);
    assert_eq!(moved["message_id"], *messages[3]);
    assert_eq!(moved["created_at"], set["created_at"]);
    let list = ok(client.get(&format!("/threads/{id}/tags")), 200);
    let tags = list["tags"].as_array().unwrap();
    assert_eq!(tags.len(), 1);
    let mut keys: Vec<&String> = tags[0].as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(
        keys,
        [
            "checkpoint_id",
            "created_at",
            "message_id",
            "name",
            "updated_at"
        ]
    );

    let restore = format!("/threads/{id}/restore");
    let made = ok(client.post(&restore, &json!({"tag": "before-choice"})), 201);
    assert_eq!(made["origin"], "restore");
    assert_eq!(made["is_active"], true);
    assert_eq!(made["head_checkpoint_id"], moved["checkpoint_id"]);
    client.run(&id, &turn_as("on", "m9", json!({})));
    assert_eq!(
        ok(client.get(&path), 200)["checkpoint_id"],
        moved["checkpoint_id"]
    );
    let unknown = client.post(&restore, &json!({"tag": "unknown"}));
    assert_eq!(code(unknown, 404), "tag_not_found");
    assert_eq!(
        code(client.post(&restore, &json!({})), 422),
        "invalid_request"
    );
    ok(client.delete(&path), 204);
    assert_eq!(code(client.delete(&path), 404), "tag_not_found");
    assert_eq!(code(client.get(&path), 404), "tag_not_found");
}

fn scenario_25_rows_that_tags_and_branches_name_outlive_their_run(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    client.run(&id, &slow(1, json!({})));
    let base = branch(&client, &id, "main")["head_checkpoint_id"].clone();
    let runs = format!("/threads/{id}/runs");
    let run = ok(client.post(&runs, &slow(5000, json!({}))), 200);
    until("the run moves its branch", || {
        branch(&client, &id, "main")["head_checkpoint_id"] != base
    });
    let tag = format!("/threads/{id}/tags/middle");
    let middle = ok(put(&client, &tag, &json!({})), 201);
    let side = ok(client.post(&format!("/threads/{id}/btw"), &json!({})), 201);
    let path = format!("/threads/{id}/state?branch=main-v2");
    let before = ok(client.get(&path), 200);

    let again = slow(1, json!({"multitask_strategy": "rollback"}));
    client.run(&id, &again);
    let gone = client.get(&format!("{runs}/{}", run["run_id"].as_str().unwrap()));
    assert_eq!(gone.status, 404);
    let history = client.history(&id);
    let first = history.iter().rev().find(|state| {
        state["parent_checkpoint"]["checkpoint_id"] == base
            && state["checkpoint"]["checkpoint_id"] != middle["checkpoint_id"]
    });
    assert!(first.is_some(), "the new run began at the base");
    assert_eq!(
        ok(client.get(&tag), 200)["checkpoint_id"],
        middle["checkpoint_id"]
    );
    assert_eq!(
        branch(&client, &id, "main-v2")["head_checkpoint_id"],
        side["head_checkpoint_id"]
    );
    assert_eq!(ok(client.get(&path), 200)["values"], before["values"]);
}

fn a_new_thread_has_one_empty_branch(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    let found = ok(client.get(&format!("/threads/{id}/branches")), 200);
    assert_eq!(found["active"], "main");
    assert_eq!(found["leaves"], json!([]));
    let row = &found["branches"][0];
    for (key, value) in [
        ("name", json!("main")),
        ("is_active", json!(true)),
        ("head_checkpoint_id", Value::Null),
        ("head_message_id", Value::Null),
        ("message_count", json!(0)),
        ("origin", json!("root")),
        ("source_branch", Value::Null),
        ("status", json!("idle")),
        ("version", json!(0)),
    ] {
        assert_eq!(row[key], value, "{key}");
    }
    assert_eq!(row.as_object().unwrap().len(), 11);
    let nothing = client.post(&format!("/threads/{id}/btw"), &json!({}));
    assert_eq!(code(nothing, 409), "empty_branch");
    let missing = "/threads/5a65802f-74fe-4e41-9a19-5fa219b2c04e/branches";
    assert_eq!(code(client.get(missing), 404), "thread_not_found");
}

fn rewinding_before_a_user_message_gives_its_text_back(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let path = format!("/threads/{id}/rewind");
    let before = |id: &str| json!({"message_id": id, "position": "before"});
    let made = ok(client.post(&path, &before(&messages[2])), 201);
    assert_eq!(made["prefill"], "two");
    assert_eq!(texts(&client.state(&id)), ["one", "echo: one"]);
    assert_eq!(client.state(&id)["next"], json!([]));
    let made = ok(client.post(&path, &before(&messages[1])), 201);
    assert!(made.get("prefill").is_none(), "{made}");
    assert_eq!(made["head_message_id"], "m1");
    assert_eq!(made["status"], "interrupted", "the answer waits to be made");
    let made = ok(client.post(&path, &before("m1")), 201);
    assert_eq!(made["prefill"], "one");
    assert_eq!(made["head_checkpoint_id"], Value::Null);
    assert_eq!(client.state(&id)["checkpoint"], Value::Null);
    client.run(&id, &turn_as("anew", "m9", json!({})));
    assert_eq!(texts(&client.state(&id)), ["anew", "echo: anew"]);
    // At a message of the user: what it asks is still to be done.
    let made = ok(client.post(&path, &json!({"message_id": "m3"})), 201);
    assert_eq!(made["status"], "interrupted");
    client.run(&id, &json!({"assistant_id": "agent", "input": null}));
    assert_eq!(
        texts(&client.state(&id)),
        ["one", "echo: one", "two", "echo: two"]
    );
}

fn rewinding_to_an_event_finds_what_there_was_then(place: &Place) {
    let (_server, client) = serve(place);
    let (id, _) = two_turns(&client);
    let page = ok(client.get(&format!("/threads/{id}/events?limit=1000")), 200);
    let number = |kind: &str| {
        let events = page["events"].as_array().unwrap();
        let event = events.iter().find(|event| event["event_type"] == kind);
        event.unwrap_or_else(|| panic!("no {kind} in {page}"))["event_number"].clone()
    };
    let path = format!("/threads/{id}/rewind");
    for (kind, expected) in [
        ("LLMResponseGenerated", vec!["one", "echo: one"]),
        ("UserMessageAdded", vec!["one"]),
        ("CheckpointCreated", vec!["one", "echo: one"]),
        ("RunFinished", vec!["one", "echo: one"]),
        ("ThreadCreated", vec![]),
    ] {
        ok(
            client.post(&path, &json!({"event_number": number(kind)})),
            201,
        );
        assert_eq!(texts(&client.state(&id)), expected, "{kind}");
    }
    let beyond = client.post(&path, &json!({"event_number": 100_000}));
    assert_eq!(beyond.status, 404, "{}", beyond.text());
}

fn a_branch_made_at_an_address_stays_inactive_until_asked(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let path = format!("/threads/{id}/branches");
    let checkpoint = client.state(&id)["checkpoint"]["checkpoint_id"].clone();
    let made = ok(client.post(&path, &json!({"name": "here"})), 201);
    assert_eq!(made["head_checkpoint_id"], checkpoint);
    assert_eq!(made["is_active"], false);
    assert_eq!(made["origin"], "checkpoint");
    assert_eq!(
        code(client.post(&path, &json!({"name": "here"})), 409),
        "name_taken"
    );
    let made = ok(
        client.post(&path, &json!({"branch": "here", "activate": true})),
        201,
    );
    assert_eq!(made["name"], "here-v2");
    assert_eq!(made["source_branch"], "here");
    assert_eq!(made["is_active"], true);
    let made = ok(
        client.post(
            &path,
            &json!({"branch": "main", "position": "before", "name": "x/y"}),
        ),
        201,
    );
    assert_eq!(made["head_message_id"], *messages[2]);
    let unknown = json!({"checkpoint_id": "1f1e52d3-b51d-655d-8000-078d7d9aa83f"});
    assert_eq!(
        code(client.post(&path, &unknown), 404),
        "checkpoint_not_found"
    );
    let unknown = client.post(&path, &json!({"message_id": "nope"}));
    assert_eq!(code(unknown, 404), "message_not_found");
}

fn activating_is_idempotent_and_keeps_or_ends_what_waits(place: &Place) {
    let (_server, client) = serve(place);
    let id = with_side_branch(&client);
    let runs = format!("/threads/{id}/runs");
    ok(client.post(&runs, &slow(800, json!({}))), 200);
    let queued = ok(client.post(&runs, &slow(1, json!({}))), 200);
    let activate = |name: &str, body: Value| {
        let path = format!("/threads/{id}/branches/{name}/activate");
        ok(client.post(&path, &body), 200)
    };
    let number = last_event(&client, &id);
    let same = activate("main", json!({}));
    assert_eq!(same["cancelled_runs"], json!([]));
    assert!(same["event_number"].as_i64().unwrap() >= number);
    let kept = activate("side", json!({"pending": "keep"}));
    assert_eq!(kept["cancelled_runs"], json!([]));
    let status = client.end_of(&id, queued["run_id"].as_str().unwrap());
    assert_eq!(status, "success");
    let side = ok(
        client.get(&format!("/threads/{id}/history?branch=side&limit=100")),
        200,
    );
    let main = ok(
        client.get(&format!("/threads/{id}/history?branch=main&limit=100")),
        200,
    );
    let count = |list: &Value| list.as_array().unwrap().len();
    assert_eq!(
        count(&main),
        3 * count(&side),
        "all three runs were on main"
    );
}

fn cancelling_the_running_run_fences_it_off(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    client.run(&id, &slow(1, json!({})));
    let head = branch(&client, &id, "main")["head_checkpoint_id"].clone();
    let runs = format!("/threads/{id}/runs");
    let run = ok(client.post(&runs, &slow(20_000, json!({}))), 200);
    let queued = ok(client.post(&runs, &slow(1, json!({}))), 200);
    let body = json!({"checkpoint_id": head, "cancel_running": true});
    let made = ok(client.post(&format!("/threads/{id}/rewind"), &body), 201);
    let mut cancelled = made["cancelled_runs"].as_array().unwrap().clone();
    cancelled.sort_by_key(Value::to_string);
    let mut expected = vec![run["run_id"].clone(), queued["run_id"].clone()];
    expected.sort_by_key(Value::to_string);
    assert_eq!(cancelled, expected);
    for run in &expected {
        assert_eq!(client.end_of(&id, run.as_str().unwrap()), "interrupted");
    }
    client.run(&id, &slow(1, json!({})));
}

fn renaming_and_deleting_change_the_pointer_alone(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let path = |name: &str| format!("/threads/{id}/branches/{name}");
    ok(
        client.post(
            &format!("/threads/{id}/rewind"),
            &json!({"message_id": messages[1]}),
        ),
        201,
    );
    let renamed = ok(
        patch(&client, &path("main"), &json!({"name": "first"})),
        200,
    );
    assert_eq!(renamed["name"], "first");
    assert_eq!(branch(&client, &id, "main-v2")["source_branch"], "first");
    let same = ok(
        patch(&client, &path("first"), &json!({"name": "first"})),
        200,
    );
    assert_eq!(same["event_number"], renamed["event_number"]);
    let taken = patch(&client, &path("first"), &json!({"name": "main-v2"}));
    assert_eq!(code(taken, 409), "name_taken");
    assert_eq!(code(client.delete(&path("main-v2")), 409), "branch_active");
    let run = slow(20_000, json!({"branch": "first"}));
    let run = ok(client.post(&format!("/threads/{id}/runs"), &run), 200);
    assert_eq!(code(client.delete(&path("first")), 409), "branch_busy");
    let cancel = format!(
        "/threads/{id}/runs/{}/cancel?wait=true",
        run["run_id"].as_str().unwrap()
    );
    ok(client.post(&cancel, &json!({})), 200);
    let before = client.history(&id).len();
    ok(client.delete(&path("first")), 204);
    assert_eq!(client.history(&id).len(), before);
    assert_eq!(
        branch(&client, &id, "main-v2")["source_branch"],
        Value::Null
    );
    assert_eq!(code(client.delete(&path("first")), 404), "branch_not_found");
    // What the branch held can be found again.
    let made = client.post(
        &format!("/threads/{id}/rewind"),
        &json!({"message_id": messages[3]}),
    );
    assert_eq!(ok(made, 201)["message_count"], 4);
}

fn names_with_slashes_are_encoded_in_paths(place: &Place) {
    let (_server, client) = serve(place);
    let (id, _) = two_turns(&client);
    let named = json!({"name": "feature/one"});
    ok(client.post(&format!("/threads/{id}/branches"), &named), 201);
    let path = format!("/threads/{id}/branches/feature%2Fone");
    ok(client.post(&format!("{path}/activate"), &json!({})), 200);
    let renamed = ok(patch(&client, &path, &json!({"name": "a/b/c"})), 200);
    assert_eq!(renamed["name"], "a/b/c");
    let tag = format!("/threads/{id}/tags/v1%2F0");
    assert_eq!(ok(put(&client, &tag, &json!({})), 201)["name"], "v1/0");
    assert_eq!(ok(client.get(&tag), 200)["name"], "v1/0");
}

fn an_interrupted_branch_and_its_copy_are_answered_differently(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    client.run(
        &id,
        &json!({"assistant_id": "approve", "input": {"request": "x"}}),
    );
    assert_eq!(branch(&client, &id, "main")["status"], "interrupted");
    let made = ok(client.post(&format!("/threads/{id}/btw"), &json!({})), 201);
    assert_eq!(made["status"], "interrupted");
    let state = |name: &str| {
        ok(
            client.get(&format!("/threads/{id}/state?branch={name}")),
            200,
        )
    };
    assert_eq!(state("main-v2")["interrupts"], state("main")["interrupts"]);
    let answer = |branch: &str, answer: &str| {
        let body =
            json!({"assistant_id": "approve", "branch": branch, "command": {"resume": answer}});
        client.run(&id, &body)
    };
    let second = answer("main-v2", "no");
    assert_eq!(state("main")["interrupts"].as_array().unwrap().len(), 1);
    let first = answer("main", "yes");
    assert_ne!(first, second);
    assert_eq!(state("main")["values"], first);
    assert_eq!(state("main-v2")["values"], second);
    let active = &branches(&client, &id)[0];
    assert_eq!((&*active.0, active.1), ("main", true));
}

fn a_branch_made_of_an_interrupted_copy_takes_its_question_over(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    client.run(
        &id,
        &json!({"assistant_id": "approve", "input": {"request": "x"}}),
    );
    ok(client.post(&format!("/threads/{id}/btw"), &json!({})), 201);
    client.run(
        &id,
        &json!({"assistant_id": "approve", "command": {"resume": "yes"}}),
    );
    let asked = branch(&client, &id, "main-v2")["head_checkpoint_id"].clone();
    let rewind = json!({"checkpoint_id": asked});
    let made = ok(client.post(&format!("/threads/{id}/rewind"), &rewind), 201);
    assert_eq!(made["status"], "interrupted");
    assert_eq!(made["source_branch"], "main-v2");
    let state = client.state(&id);
    assert_eq!(state["interrupts"].as_array().unwrap().len(), 1, "{state}");
    client.run(
        &id,
        &json!({"assistant_id": "approve", "command": {"resume": "no"}}),
    );
    assert_eq!(client.state(&id)["next"], json!([]));
    let side = ok(
        client.get(&format!("/threads/{id}/state?branch=main-v2")),
        200,
    );
    assert_eq!(side["interrupts"], state["interrupts"]);
}

fn a_branch_that_ends_in_open_tool_calls_warns_of_them(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    let body = turn_as("tool: 2 3", "m1", json!({"interrupt_before": ["tools"]}));
    client.run(&id, &body);
    let warnings = json!(["dangling_tool_calls"]);
    let head = branch(&client, &id, "main")["head_checkpoint_id"].clone();
    let rewind = json!({"checkpoint_id": head});
    let made = ok(client.post(&format!("/threads/{id}/rewind"), &rewind), 201);
    assert_eq!(made["warnings"], warnings);
    let made = ok(
        client.post(
            &format!("/threads/{id}/branches"),
            &json!({"branch": "main"}),
        ),
        201,
    );
    assert_eq!(made["warnings"], warnings);
    let made = ok(
        client.post(
            &format!("/threads/{id}/rewind"),
            &json!({"message_id": "m1"}),
        ),
        201,
    );
    assert!(made.get("warnings").is_none());
}

fn events_tell_of_every_change_of_branches_and_tags(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let before = last_event(&client, &id);
    let at = json!({"message_id": messages[1]});
    ok(client.post(&format!("/threads/{id}/rewind"), &at), 201);
    ok(
        put(&client, &format!("/threads/{id}/tags/t"), &json!({})),
        201,
    );
    ok(client.delete(&format!("/threads/{id}/tags/t")), 204);
    let path = format!("/threads/{id}/branches/main");
    ok(client.post(&format!("{path}/activate"), &json!({})), 200);
    let side = format!("/threads/{id}/branches/main-v2");
    ok(patch(&client, &side, &json!({"name": "side"})), 200);
    ok(client.delete(&format!("/threads/{id}/branches/side")), 204);
    let path = format!("/threads/{id}/events?limit=1000&after={before}");
    let page = ok(client.get(&path), 200);
    let types: Vec<&Value> = page["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["event_type"])
        .collect();
    assert_eq!(
        types,
        [
            "BranchCreated",
            "BranchActivated",
            "TagSet",
            "TagDeleted",
            "BranchActivated",
            "BranchRenamed",
            "BranchDeleted"
        ]
    );
}

fn bad_input_is_refused_with_a_code(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let before = last_event(&client, &id);
    let invalid = "invalid_request";
    for (path, body) in [
        ("rewind", json!({})),
        ("rewind", json!({"message_id": "m1", "branch": "main"})),
        ("rewind", json!({"message_id": "m1", "parent_id": "m3"})),
        ("rewind", json!({"message_id": "m1", "position": "after"})),
        ("rewind", json!({"message_id": 1})),
        ("rewind", json!({"message_id": "m1", "pending": "drop"})),
        (
            "rewind",
            json!({"message_id": "m1", "cancel_running": "yes"}),
        ),
        ("rewind", json!({"message_id": "m1", "name": "a b"})),
        ("rewind", json!({"event_number": 0})),
        ("rewind", json!({"event_number": "1"})),
        ("rewind", json!({"checkpoint_id": "nope"})),
        ("rewind", json!({"branch": "../x"})),
        ("rewind", json!([])),
        ("btw", json!({"name": ""})),
        ("btw", json!({"name": "a//b"})),
        ("restore", json!({"tag": 1})),
        ("restore", json!({"tag": "a b"})),
        ("branches", json!({"name": ".."})),
        ("branches", json!({"activate": 1})),
        ("branches", json!({"tag": "t", "branch": "main"})),
        ("branches/main/activate", json!({"pending": 1})),
        ("branches/a%20b/activate", json!({})),
    ] {
        let answer = client.post(&format!("/threads/{id}/{path}"), &body);
        assert_eq!(code(answer, 422), invalid, "{path} {body}");
    }
    for (path, body) in [
        ("branches/main", json!({})),
        ("branches/main", json!({"name": "x y"})),
        ("branches/%2E%2E", json!({"name": "x"})),
    ] {
        let answer = patch(&client, &format!("/threads/{id}/{path}"), &body);
        assert_eq!(code(answer, 422), invalid, "{path} {body}");
    }
    for (path, body) in [
        ("tags/a%20b", json!({})),
        ("tags/t", json!({"message_id": "m1", "branch": "main"})),
        ("tags/t", json!({"checkpoint_id": 1})),
    ] {
        let answer = put(&client, &format!("/threads/{id}/{path}"), &body);
        assert_eq!(code(answer, 422), invalid, "{path} {body}");
    }
    for (path, expected) in [("rewind", "branch"), ("branches", "branch")] {
        let answer = client.post(&format!("/threads/{id}/{path}"), &json!({"branch": "nope"}));
        assert_eq!(code(answer, 404), format!("{expected}_not_found"));
    }
    let answer = client.post(&format!("/threads/{id}/rewind"), &json!({"tag": "nope"}));
    assert_eq!(code(answer, 404), "tag_not_found");
    let answer = client.post("/threads/nope/rewind", &json!({"message_id": messages[0]}));
    assert_eq!(code(answer, 422), invalid);
    let answer = client.post_text(&format!("/threads/{id}/rewind"), "{not json");
    assert_eq!(code(answer, 422), invalid);
    assert_eq!(last_event(&client, &id), before, "nothing was written");
    assert_eq!(branches(&client, &id).len(), 1);
}
