//! Branches that are activated, renamed and deleted, and what is told of it.

use super::*;
use test_support::on_both_storages;

on_both_storages!(
    activating_is_idempotent_and_keeps_or_ends_what_waits,
    cancelling_the_running_run_fences_it_off,
    renaming_and_deleting_change_the_pointer_alone,
    events_tell_of_every_change_of_branches_and_tags,
    bad_input_is_refused_with_a_code,
    a_new_active_branch_leaves_what_waits_floating_unless_it_is_kept,
);

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

fn a_new_active_branch_leaves_what_waits_floating_unless_it_is_kept(place: &Place) {
    let (_server, client) = serve(place);
    for (pending, taker) in [(None, "new"), (Some("keep"), "main")] {
        let id = with_side_branch(&client);
        let first = talk::background(&client, &id, &slow(60_000, json!({})));
        let queued = talk::background(&client, &id, &slow(1, json!({})));
        let mut body = json!({"name": "new", "activate": true});
        if let Some(pending) = pending {
            body["pending"] = json!(pending);
        }
        let made = ok(client.post(&format!("/threads/{id}/branches"), &body), 201);
        let path = format!("/threads/{id}/runs/{first}/cancel?wait=true");
        if pending.is_some() {
            let waits = ok(client.get(&format!("/threads/{id}/runs/{queued}")), 200);
            assert_eq!(waits["status"], "pending", "it waits for the run on `main`");
            ok(client.post(&path, &json!({})), 200);
        }
        assert_eq!(client.end_of(&id, &queued), "success");
        let moved = branch(&client, &id, "new")["head_checkpoint_id"] != made["head_checkpoint_id"];
        assert_eq!(moved, taker == "new", "{pending:?}");
        if pending.is_none() {
            ok(client.post(&path, &json!({})), 200);
        }
    }
}
