//! Threads some of whose checkpoints were pruned: nothing builds on what is gone, and nothing that
//! stands on a checkpoint loses it.

use serde_json::{Value, json};

use crate::invariants::Tables;
use crate::on_both_storages;
use crate::support;
use crate::support::client::Client;
use crate::support::place::{Place, block_on, serve};
use crate::support::server::Server;
use crate::support::tables::file;
use crate::support::talk::{
    agent_thread, code, contents, events, extend, get, ids, numbers, ok, path, put, read, say,
    turn, until, user,
};

on_both_storages!(
    a_deleted_run_goes_back_only_to_a_checkpoint_that_is_there,
    events_of_what_was_pruned_are_no_place_to_begin_at,
    a_conversation_is_read_up_to_a_pruned_message,
);

/// A thread of `agent` with a turn for each text.
fn told(client: &Client, texts: &[&str]) -> String {
    let thread = agent_thread(client);
    for text in texts {
        say(client, &thread, text);
    }
    thread
}

fn prune(client: &Client, thread: &str) {
    let keep = json!({"thread_ids": [thread], "strategy": "keep_latest"});
    let pruned = ok(client.post("/threads/prune", &keep), 200);
    assert_eq!(pruned, json!({"pruned_count": 1}));
}

fn tables(place: &Place, server: &Server) -> Tables {
    match place.url() {
        Some(url) => Tables::Url(url.to_owned()),
        None => Tables::File(file(server)),
    }
}

fn a_deleted_run_goes_back_only_to_a_checkpoint_that_is_there(place: &Place) {
    let (server, client) = serve(place);
    for tagged in [false, true] {
        let thread = told(&client, &["a"]);
        let end_of_first = client.state(&thread)["checkpoint_id"].clone();
        if tagged {
            let tag = format!("/threads/{thread}/tags/end");
            ok(put(&client, &tag, &json!({})), 201);
        }
        say(&client, &thread, "b");
        let before = client.state(&thread);
        let newest = get(&client, &thread, "runs")[0]["run_id"].clone();
        prune(&client, &thread);
        let run = format!("/threads/{thread}/runs/{}", newest.as_str().unwrap());
        assert_eq!(client.delete(&run).status, 204);
        let after = client.state(&thread);
        match tagged {
            true => assert_eq!(after["checkpoint_id"], end_of_first),
            false => {
                assert_eq!(after["checkpoint_id"], before["checkpoint_id"]);
                assert_eq!(after["values"], before["values"]);
            }
        }
        let said = path(&client, &thread, "").len();
        assert_eq!(said, if tagged { 2 } else { 4 });
        say(&client, &thread, "on");
        assert_eq!(path(&client, &thread, "").len(), said + 2);
        for (op, status) in [
            ("messages", 201),
            ("btw", 201),
            ("fork", 201),
            ("copy", 200),
        ] {
            let body = match op {
                "messages" => user("p"),
                _ => json!({}),
            };
            ok(
                client.post(&format!("/threads/{thread}/{op}"), &body),
                status,
            );
        }
    }
    block_on(tables(place, &server).check(true));
}

fn events_of_what_was_pruned_are_no_place_to_begin_at(place: &Place) {
    let (_server, client) = serve(place);
    let thread = told(&client, &["a", "b", "c"]);
    let log = events(&client, &thread, "limit=1000");
    let head = client.state(&thread)["checkpoint_id"].clone();
    prune(&client, &thread);
    let fork = format!("/threads/{thread}/fork");
    let mut last = Value::Null;
    for (number, event) in numbers(&log).into_iter().zip(&log) {
        let answer = client.post(&fork, &json!({"event_number": number}));
        // Of what is left only the end of the last turn is a state of its time.
        let kept = event["checkpoint_id"] == head || event["message_id"] != Value::Null;
        match kept && answer.status == 201 {
            true => last = answer.json()["fork_checkpoint_id"].clone(),
            false => assert_eq!(code(&answer, 409), "checkpoint_pruned", "{event}"),
        }
        if event["checkpoint_id"] == head && event["event_type"] != "UserMessageAdded" {
            assert_eq!(last, head, "{event}");
        }
    }
    assert_eq!(last, head);
}

fn a_conversation_is_read_up_to_a_pruned_message(place: &Place) {
    let (_server, client) = serve(place);
    let thread = told(&client, &["a", "b", "c"]);
    let all = read(&client, &thread, "");
    let said = contents(&all["messages"]);
    prune(&client, &thread);
    let fork = ok(
        client.post(&format!("/threads/{thread}/fork"), &json!({})),
        201,
    );
    let fork = fork["thread_id"].as_str().unwrap();
    for (at, leaf) in ids(&all).iter().enumerate() {
        for thread in [&*thread, fork] {
            for view in ["path", "state"] {
                let page = read(&client, thread, &format!("leaf_id={leaf}&view={view}"));
                assert_eq!(ids(&page), ids(&all)[..=at], "{view}");
                assert_eq!(contents(&page["messages"]), said[..=at], "{view}");
                assert_eq!(page["leaf_id"], json!(leaf));
                assert_eq!(page["branch"], "main");
                let is_last = at + 1 == said.len();
                assert_eq!(page["checkpoint_id"].is_string(), is_last, "{page}");
            }
        }
        let answer = client.post(
            &format!("/threads/{thread}/fork"),
            &json!({"message_id": leaf}),
        );
        if at + 1 < said.len() {
            assert_eq!(code(answer, 409), "checkpoint_pruned");
        }
    }
}
