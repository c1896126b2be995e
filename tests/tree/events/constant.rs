//! The log tells for ever what it told once.

use super::*;
use test_support::on_both_storages;
use test_support::talk::{fork, id_of, note, ok, patch};

on_both_storages!(
    renaming_and_deleting_branches_changes_no_event,
    pruning_and_undoing_changes_no_event,
    deleting_a_thread_changes_no_event_that_a_fork_inherits,
);

/// A thread's events, inherited ones too, without content: that may be gone.
fn log(client: &Client, thread: &str) -> Vec<Value> {
    let mut log = events(client, thread, "limit=1000&inherited=true");
    for event in &mut log {
        event["payload"].as_object_mut().unwrap().remove("content");
    }
    log
}

/// Does something that only adds to the log of a thread.
fn unchanged(client: &Client, thread: &str, what: &str, act: impl FnOnce()) {
    let before = log(client, thread);
    act();
    let after = log(client, thread);
    for (old, new) in before.iter().zip(&after) {
        assert_eq!(old, new, "{what}");
    }
    assert!(after.len() >= before.len(), "{what}");
}

fn post(client: &Client, thread: &str, path: &str, body: Value) -> Value {
    let answer = client.post(&format!("/threads/{thread}/{path}"), &body);
    assert!(answer.status < 300, "{path}: {}", answer.text());
    answer.json()
}

/// The branches that the events of a kind name, outside and inside.
fn branches(client: &Client, thread: &str, kind: &str) -> Vec<(Value, Value)> {
    let all = log(client, thread).into_iter();
    all.filter(|event| event["event_type"] == kind)
        .map(|event| (event["branch"].clone(), event["payload"]["branch"].clone()))
        .collect()
}

fn renaming_and_deleting_branches_changes_no_event(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let path = |name: &str| format!("/threads/{thread}/branches/{name}");
    note(&client, &thread, "u1");
    post(&client, &thread, "btw", json!({"name": "side"}));
    let rename = |from: &str, to: &str| {
        ok(patch(&client, &path(from), &json!({"name": to})), 200);
    };
    unchanged(&client, &thread, "renamed", || rename("main", "trunk"));
    note(&client, &thread, "u2");
    unchanged(&client, &thread, "renamed again", || {
        rename("trunk", "main")
    });
    unchanged(&client, &thread, "the other one", || {
        rename("side", "aside")
    });
    unchanged(&client, &thread, "deleted", || {
        ok(client.delete(&path("aside")), 204);
    });
    let both = |name: &str| (json!(name), json!(name));
    let of = |kind: &str| branches(&client, &thread, kind);
    assert_eq!(of("UserMessageAdded"), [both("main"), both("trunk")]);
    assert_eq!(of("BranchCreated"), [both("side")]);
    let renamed = [both("trunk"), both("main"), both("aside")];
    assert_eq!(of("BranchRenamed"), renamed);
    assert_eq!(of("BranchDeleted"), [both("aside")]);
}

fn pruning_and_undoing_changes_no_event(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    say(&client, &thread, "one");
    note(&client, &thread, "u1");
    say(&client, &thread, "two");
    let keep = json!({"thread_ids": [thread], "strategy": "keep_latest"});
    unchanged(&client, &thread, "pruned", || {
        assert_eq!(
            ok(client.post("/threads/prune", &keep), 200)["pruned_count"],
            1
        );
    });
    say(&client, &thread, "three");
    let runs = ok(client.get(&format!("/threads/{thread}/runs")), 200);
    let newest = runs[0]["run_id"].as_str().unwrap();
    unchanged(&client, &thread, "undone", || {
        let path = format!("/threads/{thread}/runs/{newest}");
        ok(client.delete(&path), 204);
    });
    unchanged(&client, &thread, "pruned again", || {
        ok(client.post("/threads/prune", &keep), 200);
    });
    let settled = log(&client, &thread).into_iter();
    let settled = settled.filter(|event| event["event_type"] == "CheckpointCreated");
    for event in settled {
        let payload = &event["payload"];
        assert!(payload["source"].is_string(), "{payload}");
        assert!(!payload["message_ids"].as_array().unwrap().is_empty());
    }
}

/// The log's part of scenario 16.
fn deleting_a_thread_changes_no_event_that_a_fork_inherits(place: &Place) {
    let (_server, client) = serve(place);
    let root = client.thread();
    say(&client, &root, "one");
    let inner = id_of(&fork(&client, &root, &json!({"branch": "main"})));
    say(&client, &inner, "two");
    note(&client, &inner, "u1");
    say(&client, &inner, "three");
    // Its first turn is on the path of the fork below, what follows is not, but is told before.
    let back = post(
        &client,
        &inner,
        "rewind",
        json!({"message_id": "u1", "position": "before"}),
    );
    let number = back["event_number"].clone();
    let outer = id_of(&fork(&client, &inner, &json!({"event_number": number})));
    say(&client, &outer, "four");
    for (gone, what) in [(&inner, "the thread between"), (&root, "the root")] {
        unchanged(&client, &outer, what, || {
            ok(client.delete(&format!("/threads/{gone}")), 204);
        });
    }
    let told = branches(&client, &outer, "LLMResponseGenerated");
    assert_eq!(told.len(), 4);
    assert!(told.iter().all(|(branch, _)| branch == "main"), "{told:?}");
}
