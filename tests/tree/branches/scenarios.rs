//! The scenarios about branches and tags, by number.

use super::*;
use test_support::on_both_storages;

on_both_storages!(
    scenario_06_leaves_are_the_ends_of_paths,
    scenario_21_rewinding_names_branches_by_where_they_come_from,
    scenario_22_a_side_branch_runs_beside_the_main_one,
    scenario_23_a_tag_names_one_place_until_it_is_moved,
    scenario_25_rows_that_tags_and_branches_name_outlive_their_run,
);

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
