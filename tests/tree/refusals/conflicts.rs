//! What stands in the way of a request: names that are taken, heads that moved, runs that work,
//! rows that are gone.

use super::*;
use test_support::on_both_storages;
use test_support::server::Setup;
use test_support::talk::{background, create, path, turn, until};

on_both_storages!(
    what_is_taken_or_has_moved_is_a_conflict,
    a_branch_on_which_a_run_works_is_busy,
    a_message_that_waits_for_its_run_is_no_place_yet,
    what_was_pruned_is_no_place_any_more,
    what_there_was_at_an_event_is_not_guessed_after_pruning,
    the_id_of_a_deleted_thread_is_taken_while_forks_need_its_rows,
    a_graph_without_messages_has_no_message_api,
);

fn what_is_taken_or_has_moved_is_a_conflict(place: &Place) {
    let family = Family::new(place);
    let (thread, fork) = (&family.thread, &family.fork);
    let at_tag = get(&family.client, thread, "tags/t")["checkpoint_id"].clone();
    let empty = family.client.thread();
    let with = |id: &str, more: Value| talk::extend(user(id), more);
    let first = |id: &str, parent: &str, anchor: Value| {
        let more = json!({"forkedAtConversationId": parent, "forkedAtEntryId": anchor});
        below(id, "POST", "messages", with("new", more))
    };
    let run = |more: Value| family.post("runs", talk::extend(turn("new"), more));
    let elsewhere = json!({"branch": "main", "checkpoint_id": at_tag});
    let gone = Value::Null;
    family.refuses(vec![
        // Names.
        (
            family.post("branches", json!({"name": "main"})),
            409,
            "name_taken",
        ),
        (
            family.post("btw", json!({"name": "main-v2"})),
            409,
            "name_taken",
        ),
        (
            family.post("rewind", json!({"message_id": "u1", "name": "main"})),
            409,
            "name_taken",
        ),
        (
            family.post("restore", json!({"tag": "t", "name": "main"})),
            409,
            "name_taken",
        ),
        (
            family.at("PATCH", "branches/main-v2", json!({"name": "main"})),
            409,
            "name_taken",
        ),
        (
            family.at("DELETE", "branches/main", gone.clone()),
            409,
            "branch_active",
        ),
        // Heads.
        (
            family.post("messages", with("new", json!({"expected_head": at_tag}))),
            409,
            "head_conflict",
        ),
        (
            family.post("messages", with("new", json!({"expected_head": null}))),
            409,
            "head_conflict",
        ),
        (run(elsewhere.clone()), 409, "head_conflict"),
        (
            family.post("state", talk::extend(json!({"values": {}}), elsewhere)),
            409,
            "head_conflict",
        ),
        (below(&empty, "POST", "btw", json!({})), 409, "empty_branch"),
        (
            below(&empty, "PUT", "tags/x", json!({})),
            409,
            "empty_branch",
        ),
        // Ids.
        (
            family.post("messages", with("u1", json!({"on_existing": "reject"}))),
            409,
            "message_exists",
        ),
        (
            command(
                "send-message",
                json!({"thread_id": thread, "content": "x", "message_id": "u1"}),
            ),
            409,
            "message_exists",
        ),
        (
            command("create-thread", json!({"thread_id": thread})),
            409,
            "thread_exists",
        ),
        (
            family.post("fork", json!({"thread_id": fork})),
            409,
            "thread_exists",
        ),
        (
            command(
                "fork-thread",
                json!({"source_thread_id": thread, "thread_id": thread}),
            ),
            409,
            "thread_exists",
        ),
        // Lineages.
        (first(fork, thread, json!("u1")), 409, "lineage_conflict"),
        (first(fork, thread, gone.clone()), 409, "lineage_conflict"),
        (
            first(&family.stranger, thread, json!("u1")),
            409,
            "lineage_conflict",
        ),
        (first(thread, thread, json!("u1")), 409, "lineage_conflict"),
        // Members.
        (
            family.at("DELETE", "members/local", gone),
            409,
            "last_owner",
        ),
        (
            family.at("PUT", "members/local", json!({"level": "writer"})),
            409,
            "last_owner",
        ),
    ]);
}

/// A thread of `talk` whose run on `main` never ends, with a branch `side` at what it began with.
fn working(place: &Place) -> (Server, Client, String) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let thread = create(&client, &json!({"metadata": {"graph_id": "talk"}}));
    client.run(&thread, &say("hello"));
    let side = client.post(&format!("/threads/{thread}/btw"), &json!({"name": "side"}));
    ok(side, 201);
    background(&client, &thread, &say("wait"));
    until("the run works", || path(&client, &thread, "").len() == 3);
    (server, client, thread)
}

/// A run of `talk`.
fn say(text: &str) -> Value {
    talk::with(turn(text), "assistant_id", "talk")
}

fn a_branch_on_which_a_run_works_is_busy(place: &Place) {
    let (_server, client, thread) = working(place);
    let on_side = talk::with(say("wait"), "branch", "side");
    background(&client, &thread, &on_side);
    until("the other run works", || {
        path(&client, &thread, "branch=side").len() == 3
    });
    let values = json!({"values": {"messages": []}});
    let send = json!({"thread_id": thread, "content": "x", "multitask_strategy": "reject"});
    let reject = talk::with(say("x"), "multitask_strategy", "reject");
    let post = |path: &str, body: Value| below(&thread, "POST", path, body);
    refuses(
        &client,
        &[&thread],
        vec![
            (post("messages", user("new")), 409, "branch_busy"),
            (
                post("messages", talk::with(user("new"), "branch", "side")),
                409,
                "branch_busy",
            ),
            (post("state", values.clone()), 409, "branch_busy"),
            (
                post("state", talk::with(values, "branch", "side")),
                409,
                "branch_busy",
            ),
            (
                below(&thread, "DELETE", "branches/side", Value::Null),
                409,
                "branch_busy",
            ),
            (command("send-message", send), 409, "branch_busy"),
            // As LangGraph's clients know it.
            (post("runs", reject), 409, ""),
        ],
    );
}

fn a_message_that_waits_for_its_run_is_no_place_yet(place: &Place) {
    let (_server, client, thread) = working(place);
    let send = json!({"thread_id": thread, "content": "later"});
    let sent = ok(client.post("/commands/send-message", &send), 202);
    let at = json!({"event_number": sent["event_number"]});
    let of_thread = talk::with(at.clone(), "source_thread_id", &*thread);
    let diff = format!("diff?from=branch:main&to=event:{}", at["event_number"]);
    let conflict = |request: Request| (request, 409, "not_checkpointed");
    refuses(
        &client,
        &[&thread],
        vec![
            conflict(below(&thread, "POST", "fork", at.clone())),
            conflict(command("fork-thread", of_thread)),
            conflict(below(&thread, "POST", "branches", at.clone())),
            conflict(below(&thread, "POST", "rewind", at.clone())),
            conflict(below(&thread, "PUT", "tags/t", at)),
            conflict(below(&thread, "GET", &diff, Value::Null)),
        ],
    );
}

fn what_was_pruned_is_no_place_any_more(place: &Place) {
    let family = Family::new(place);
    let prune = json!({"thread_ids": [family.thread], "strategy": "keep_latest"});
    let pruned = ok(family.client.post("/threads/prune", &prune), 200);
    assert_eq!(pruned, json!({"pruned_count": 1}));
    let at = json!({"message_id": "u1"});
    let of_thread = talk::with(at.clone(), "source_thread_id", &*family.thread);
    let behind = talk::with(user("new"), "parent_id", "u1");
    let first = json!({"forkedAtConversationId": family.thread, "forkedAtEntryId": "a2"});
    let first = talk::extend(user("new"), first);
    let before = json!({"message_id": "a2", "position": "before"});
    let before_tag = json!({"tag": "t", "position": "before"});
    let before_a2 = json!({"parent_id": "a2", "position": "before"});
    let conflict = |request: Request| (request, 409, "checkpoint_pruned");
    family.refuses(vec![
        conflict(family.post("fork", at.clone())),
        conflict(command("fork-thread", of_thread)),
        conflict(family.post("branches", at.clone())),
        conflict(family.post("rewind", at.clone())),
        conflict(family.at("PUT", "tags/new", at.clone())),
        conflict(family.post("messages", behind)),
        conflict(below(&nothing(), "POST", "messages", first)),
        conflict(family.post("runs", talk::extend(turn("new"), at))),
        // What is kept no longer tells what came before it.
        conflict(family.post("fork", before.clone())),
        conflict(family.post("rewind", before)),
        conflict(family.post("rewind", before_tag)),
        conflict(family.post("messages", talk::extend(user("new"), before_a2))),
        conflict(family.post("rewind", json!({"event_number": 2}))),
        conflict(family.post("rewind", json!({"event_number": 3}))),
    ]);
    // Where nothing is missing it is as before.
    let kept = json!({"message_id": "u3", "position": "before"});
    let made = ok(send(&family.client, &family.post("rewind", kept)), 201);
    assert_eq!(made["head_message_id"], "a2");
}

fn what_there_was_at_an_event_is_not_guessed_after_pruning(place: &Place) {
    let (_server, client) = serve(place);
    let thread = talk::thread_of(&client, &["u1"]);
    let tag = format!("/threads/{thread}/tags/t");
    let early = ok(put(&client, &tag, &json!({})), 201)["event_number"].clone();
    ok(client.delete(&tag), 204);
    talk::note(&client, &thread, "a2");
    let late = ok(put(&client, &tag, &json!({})), 201)["event_number"].clone();
    let rewind = |number: &Value| {
        let body = json!({"event_number": number});
        client.post(&format!("/threads/{thread}/rewind"), &body)
    };
    assert_eq!(ok(rewind(&early), 201)["head_message_id"], "u1");
    let side = format!("/threads/{thread}/branches/main");
    ok(client.post(&format!("{side}/activate"), &json!({})), 200);
    ok(client.delete(&format!("{side}-v2")), 204);
    let prune = json!({"thread_ids": [thread], "strategy": "keep_latest"});
    ok(client.post("/threads/prune", &prune), 200);
    assert_eq!(code(rewind(&early), 409), "checkpoint_pruned");
    assert_eq!(ok(rewind(&late), 201)["head_message_id"], "a2");
}

fn the_id_of_a_deleted_thread_is_taken_while_forks_need_its_rows(place: &Place) {
    let family = Family::new(place);
    let (gone, left) = (&family.thread, &family.fork);
    ok(family.client.delete(&format!("/threads/{gone}")), 204);
    let id = json!({"thread_id": gone});
    let first = talk::with(user("new"), "forkedAtConversationId", &**left);
    let of_left = talk::with(id.clone(), "source_thread_id", &**left);
    refuses(
        &family.client,
        &[left, &family.stranger],
        vec![
            (command("create-thread", id.clone()), 409, "thread_deleted"),
            (
                ("POST", "/threads".into(), id.clone()),
                409,
                "thread_deleted",
            ),
            (command("fork-thread", of_left), 409, "thread_deleted"),
            (below(left, "POST", "fork", id), 409, "thread_deleted"),
            (
                below(gone, "POST", "messages", first),
                409,
                "thread_deleted",
            ),
            (
                below(gone, "POST", "messages", user("new")),
                404,
                "thread_not_found",
            ),
            (
                below(gone, "POST", "fork", json!({})),
                404,
                "thread_not_found",
            ),
        ],
    );
}

fn a_graph_without_messages_has_no_message_api(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let run = json!({"assistant_id": "counter", "input": {"count": 0, "log": []}});
    client.run(&thread, &run);
    let before = talk::events(&client, &thread, "limit=1000");
    for request in [
        below(&thread, "POST", "messages", user("new")),
        below(&thread, "GET", "messages", Value::Null),
        command("send-message", json!({"thread_id": thread, "content": "x"})),
    ] {
        assert_eq!(
            code(send(&client, &request), 409),
            "no_messages_channel",
            "{request:?}"
        );
    }
    assert_eq!(talk::events(&client, &thread, "limit=1000"), before);
}
