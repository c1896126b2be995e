//! Threads that are deleted, with relatives or without, copied and pruned.

use serde_json::{Value, json};

use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::talk::{
    self, background, code, id_of, note, path, say, slow, thread_of, until, whole,
};

on_both_storages!(
    scenario_15_a_tree_is_deleted_as_a_whole_while_a_run_is_in_flight,
    scenario_16_what_a_deleted_thread_shared_stays_with_its_forks,
    a_deleted_id_is_free_again_once_nothing_hangs_on_it,
    a_dry_run_says_what_would_go_and_deletes_nothing,
    a_copy_has_the_same_history_and_no_lineage,
    scenario_25_rollback_and_prune_leave_tags_branches_and_forks_as_they_are,
    pruning_answers_how_many_threads_it_found,
    deletions_that_make_no_sense_are_refused,
);

fn forked(client: &Client, thread: &str, body: &Value) -> String {
    id_of(&talk::fork(client, thread, body))
}

/// The threads of a family, and whether the parent of each is gone.
fn relatives(client: &Client, thread: &str) -> Vec<(String, bool)> {
    let family = talk::family(client, thread);
    let threads = family["threads"].as_array().unwrap().iter();
    threads
        .map(|one| (id_of(one), one["parent_deleted"].as_bool().unwrap()))
        .collect()
}

fn gone(client: &Client, thread: &str) {
    for path in [
        "",
        "/state",
        "/history",
        "/messages",
        "/branches",
        "/forks",
        "/events",
        "/runs",
    ] {
        client.get(&format!("/threads/{thread}{path}")).refused(404);
    }
    client.delete(&format!("/threads/{thread}")).refused(404);
}

/// Starts a slow run and waits for its first checkpoint.
fn start(client: &Client, thread: &str) -> String {
    let run = background(client, thread, &slow(20, 500));
    until("the run works", || {
        client.state(thread)["next"] == json!(["work"])
    });
    run
}

fn scenario_15_a_tree_is_deleted_as_a_whole_while_a_run_is_in_flight(place: &Place) {
    let (mut server, client) = serve(place);
    for member in 0..3 {
        let root = thread_of(&client, &["u1"]);
        let child = forked(&client, &root, &json!({}));
        let grand = forked(&client, &child, &json!({}));
        let all = [root, child, grand];
        start(&client, &all[1]);
        let answer = client.delete(&format!("/threads/{}?scope=tree", all[member]));
        assert_eq!(answer.status, 204, "{}", answer.text());
        for thread in &all {
            gone(&client, thread);
        }
        // A late first post does not bring it back.
        let late = json!({"role": "user", "content": "x", "forkedAtConversationId": all[0]});
        let answer = client.post(&format!("/threads/{}/messages", all[1]), &late);
        assert!([404, 409].contains(&answer.status), "{}", answer.text());
    }
    assert_eq!(client.get("/threads").json(), json!([]));
    // Everything that was still at work has ended when the process has.
    server.terminate();
    server.restart();
    let client = Client::of(&server);
    assert_eq!(
        client.get("/threads").json(),
        json!([]),
        "{}",
        server.output()
    );
}

fn scenario_16_what_a_deleted_thread_shared_stays_with_its_forks(place: &Place) {
    let (_server, client) = serve(place);
    let root = thread_of(&client, &["u1", "u2"]);
    let child = forked(&client, &root, &json!({"message_id": "u1"}));
    note(&client, &child, "u3");
    note(&client, &child, "u4");
    let grand = forked(&client, &child, &json!({"message_id": "u3"}));
    note(&client, &grand, "u5");
    let (of_root, of_grand) = (whole(&client, &root), whole(&client, &grand));
    assert_eq!(path(&client, &grand, ""), ["u1", "u3", "u5"]);

    assert_eq!(client.delete(&format!("/threads/{child}")).status, 204);
    gone(&client, &child);
    assert_eq!(whole(&client, &root)[1..4], of_root[1..4]);
    assert_eq!(whole(&client, &grand), of_grand);
    assert_eq!(
        relatives(&client, &grand),
        [(root.clone(), false), (grand.clone(), true)]
    );
    let late = json!({"role": "user", "content": "x", "forkedAtConversationId": root});
    let late = client.post(&format!("/threads/{child}/messages"), &late);
    assert_eq!(code(&late, 409), "thread_deleted");
    let again = client.post("/commands/create-thread", &json!({"thread_id": child}));
    assert_eq!(code(&again, 409), "thread_deleted");
    let id = json!({"thread_id": child});
    let again = client.post(&format!("/threads/{root}/fork"), &id);
    assert_eq!(code(&again, 409), "thread_deleted");
    let from_dead = client.post(&format!("/threads/{child}/fork"), &json!({}));
    assert_eq!(code(&from_dead, 404), "thread_not_found");

    assert_eq!(client.delete(&format!("/threads/{root}")).status, 204);
    gone(&client, &root);
    assert_eq!(whole(&client, &grand), of_grand);
    assert_eq!(relatives(&client, &grand), [(grand.clone(), true)]);
    // It goes on, and can be forked anywhere on its path.
    note(&client, &grand, "u6");
    let early = forked(&client, &grand, &json!({"message_id": "u1"}));
    assert_eq!(path(&client, &early, ""), ["u1"]);
    for thread in [&grand, &early] {
        assert_eq!(client.delete(&format!("/threads/{thread}")).status, 204);
        gone(&client, thread);
    }
    assert_eq!(client.get("/threads").json(), json!([]));
}

fn a_deleted_id_is_free_again_once_nothing_hangs_on_it(place: &Place) {
    let (_server, client) = serve(place);
    let thread = thread_of(&client, &["u1"]);
    assert_eq!(client.delete(&format!("/threads/{thread}")).status, 204);
    let again = client.post("/threads", &json!({"thread_id": thread}));
    assert_eq!(again.status, 200, "{}", again.text());
    assert!(path(&client, &thread, "").is_empty());
}

fn a_dry_run_says_what_would_go_and_deletes_nothing(place: &Place) {
    let (_server, client) = serve(place);
    let root = thread_of(&client, &["u1"]);
    let child = forked(&client, &root, &json!({}));
    let would = |thread: &str, query: &str| {
        let answer = client.delete(&format!("/threads/{thread}?{query}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    assert_eq!(would(&child, "dry_run=true"), json!({"threads": [child]}));
    assert_eq!(
        would(&root, "dry_run=1&scope=thread"),
        json!({"threads": [root]})
    );
    let both = json!({"threads": [root, child]});
    assert_eq!(would(&child, "scope=tree&dry_run=true"), both);
    assert_eq!(relatives(&client, &root).len(), 2);
}

fn a_copy_has_the_same_history_and_no_lineage(place: &Place) {
    let (_server, client) = serve(place);
    let root = thread_of(&client, &["u1", "u2"]);
    let child = forked(&client, &root, &json!({"message_id": "u1"}));
    note(&client, &child, "u3");
    let rewound = client.post(
        &format!("/threads/{child}/rewind"),
        &json!({"message_id": "u1"}),
    );
    assert_eq!(rewound.status, 201, "{}", rewound.text());
    note(&client, &child, "u4");
    let before = whole(&client, &child);
    let copied = client.post(&format!("/threads/{child}/copy"), &json!({}));
    assert_eq!(copied.status, 200, "{}", copied.text());
    let row = copied.json();
    let copy = row["thread_id"].as_str().unwrap().to_owned();
    assert_eq!(row["values"], before[0]["values"]);
    assert_eq!(row["metadata"], before[0]["metadata"]);
    assert_eq!(path(&client, &copy, ""), ["u1", "u4"]);
    assert_eq!(path(&client, &copy, "branch=main"), ["u1", "u3"]);
    assert_eq!(relatives(&client, &copy), [(copy.clone(), false)]);
    assert_eq!(relatives(&client, &root).len(), 2);
    note(&client, &copy, "u5");
    assert_eq!(path(&client, &copy, ""), ["u1", "u4", "u5"]);
    assert_eq!(whole(&client, &child), before);
    assert_eq!(
        client.delete(&format!("/threads/{root}?scope=tree")).status,
        204
    );
    assert_eq!(path(&client, &copy, ""), ["u1", "u4", "u5"]);
    let gone = uuid::Uuid::now_v7();
    client
        .post(&format!("/threads/{gone}/copy"), &json!({}))
        .refused(404);
}

fn scenario_25_rollback_and_prune_leave_tags_branches_and_forks_as_they_are(place: &Place) {
    let (_server, client) = serve(place);
    let thread = thread_of(&client, &[]);
    let say = |text: &str| say(&client, &thread, text);
    say("one");
    say("two");
    let base = client.state(&thread)["checkpoint_id"].clone();
    say("tool: 1 2");
    let middle = client.history(&thread)[2].clone();
    let at = json!({"checkpoint_id": middle["checkpoint_id"]});
    let tag = format!("/threads/{thread}/tags/t");
    let set = client.send("PUT", &tag, &[], at.to_string().as_bytes());
    assert_eq!(set.status, 201, "{}", set.text());
    let side = client.post(&format!("/threads/{thread}/branches"), &at);
    assert_eq!(side.status, 201, "{}", side.text());
    let child = forked(&client, &thread, &at);
    let of_child = whole(&client, &child);
    let by_branch = |name: &str| path(&client, &thread, &format!("branch={name}"));
    let (of_side, of_tag) = (by_branch("main-v2"), client.get(&tag).json());

    let runs = client.get(&format!("/threads/{thread}/runs")).json();
    let newest = runs[0]["run_id"].as_str().unwrap();
    assert_eq!(
        client
            .delete(&format!("/threads/{thread}/runs/{newest}"))
            .status,
        204
    );
    assert_eq!(
        client.state(&thread)["checkpoint_id"],
        base,
        "the head is at the base"
    );
    assert_eq!(path(&client, &thread, "").len(), 4);
    assert_eq!(by_branch("main-v2"), of_side);
    assert_eq!(client.get(&tag).json(), of_tag);
    assert_eq!(whole(&client, &child), of_child);

    let first = path(&client, &thread, "")[0].clone();
    let values = client.state(&thread)["values"].clone();
    let prune = json!({"thread_ids": [thread], "strategy": "keep_latest"});
    let pruned = client.post("/threads/prune", &prune);
    assert_eq!(
        pruned.json(),
        json!({"pruned_count": 1}),
        "{}",
        pruned.text()
    );
    assert_eq!(client.state(&thread)["values"], values);
    assert_eq!(client.state(&thread)["checkpoint_id"], base);
    assert_eq!(by_branch("main-v2"), of_side);
    assert_eq!(path(&client, &child, ""), of_side);
    assert_eq!(client.get(&tag).json(), of_tag);
    let refused = client.post(
        &format!("/threads/{thread}/fork"),
        &json!({"message_id": first}),
    );
    assert_eq!(code(&refused, 409), "checkpoint_pruned");
    say("three");
    assert_eq!(path(&client, &thread, "").len(), 6);
}

fn pruning_answers_how_many_threads_it_found(place: &Place) {
    let (_server, client) = serve(place);
    let (one, two) = (
        thread_of(&client, &["u1"]),
        thread_of(&client, &["u1", "u2"]),
    );
    let unknown = uuid::Uuid::now_v7().to_string();
    let keep = json!({"thread_ids": [one, two, unknown], "strategy": "keep_latest"});
    assert_eq!(
        client.post("/threads/prune", &keep).json(),
        json!({"pruned_count": 2})
    );
    assert_eq!(path(&client, &two, "").len(), 2);
    let delete = json!({"thread_ids": [one, unknown], "strategy": "delete"});
    assert_eq!(
        client.post("/threads/prune", &delete).json(),
        json!({"pruned_count": 1})
    );
    gone(&client, &one);
    let rest = json!({"thread_ids": [two]});
    assert_eq!(
        client.post("/threads/prune", &rest).json(),
        json!({"pruned_count": 1})
    );
    gone(&client, &two);
    for body in [
        json!({}),
        json!({"thread_ids": "x"}),
        json!({"thread_ids": ["x"]}),
        json!({"thread_ids": [], "strategy": "some"}),
    ] {
        client.post("/threads/prune", &body).refused(422);
    }
}

fn deletions_that_make_no_sense_are_refused(place: &Place) {
    let (_server, client) = serve(place);
    let thread = thread_of(&client, &["u1"]);
    let unknown = uuid::Uuid::now_v7();
    client
        .delete(&format!("/threads/{thread}?scope=all"))
        .refused(422);
    client
        .delete(&format!("/threads/{thread}?dry_run=maybe"))
        .refused(422);
    client.delete("/threads/nope?scope=tree").refused(422);
    for query in [
        "",
        "?scope=tree",
        "?dry_run=true",
        "?scope=tree&dry_run=true",
    ] {
        client
            .delete(&format!("/threads/{unknown}{query}"))
            .refused(404);
    }
    assert_eq!(path(&client, &thread, ""), ["u1"]);
}
