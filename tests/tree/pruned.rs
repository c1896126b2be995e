//! Threads some of whose checkpoints were pruned: nothing builds on what is gone, and nothing that
//! stands on a checkpoint loses it.

use serde_json::{Value, json};

use test_support::client::Client;
use test_support::invariants::Tables;
use test_support::on_both_storages;
use test_support::place::{Place, block_on, serve};
use test_support::server::Server;
use test_support::tables::file;
use test_support::talk::{
    self, agent_thread, background, code, contents, events, extend, get, id_of, ids, numbers, ok,
    path, put, read, say, slow, turn, until, user,
};

on_both_storages!(
    a_deleted_run_goes_back_only_to_a_checkpoint_that_is_there,
    events_of_what_was_pruned_are_no_place_to_begin_at,
    a_conversation_is_read_up_to_a_pruned_message,
    whatever_is_made_while_others_prune_stands_on_something,
    a_deleted_run_takes_the_messages_of_its_pruned_checkpoints_with_it,
    a_deleted_fork_takes_the_messages_of_its_pruned_checkpoints_with_it,
    what_a_fork_goes_on_from_stays_when_its_parent_is_pruned,
    what_a_fork_that_was_pruned_goes_on_from_stays_when_its_parent_is_pruned,
    what_a_run_of_a_fork_returns_to_stays_when_its_parent_is_pruned,
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
        if tagged {
            assert_eq!(after["checkpoint_id"], end_of_first)
        } else {
            assert_eq!(after["checkpoint_id"], before["checkpoint_id"]);
            assert_eq!(after["values"], before["values"]);
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
        if kept && answer.status == 201 {
            last = answer.json()["fork_checkpoint_id"].clone()
        } else {
            assert_eq!(code(&answer, 409), "checkpoint_pruned", "{event}")
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

fn whatever_is_made_while_others_prune_stands_on_something(place: &Place) {
    let (server, client) = serve(place);
    let thread = told(&client, &["a"]);
    let of = |path: &str| format!("/threads/{thread}/{path}");
    let fork = |body: Value| client.post(&of("fork"), &body).status;
    let here = || {
        let head = ok(client.get(&of("head")), 200);
        json!({"checkpoint_id": head["latest_checkpoint_id"]})
    };
    let rolling = json!({"multitask_strategy": "rollback"});
    let ops: [&(dyn Fn() -> u16 + Sync); 8] = [
        &|| client.post(&of("btw"), &json!({})).status,
        &|| {
            prune(&client, &thread);
            200
        },
        &|| fork(json!({})),
        &|| client.post(&of("messages"), &user("x")).status,
        &|| {
            let answer = client.post(&of("runs/wait"), &extend(turn("R"), here()));
            if answer.status == 200 {
                let end = answer.json();
                let error = &end["__error__"]["error"];
                // Another one's rollback may take the run away.
                assert!(error.is_null() || error == "HTTPException", "{end}");
            }
            answer.status
        },
        &|| put(&client, &of("tags/t"), &here()).status,
        &|| {
            client
                .post(
                    &of("runs/wait"),
                    &extend(turn("tool: 1 2"), rolling.clone()),
                )
                .status
        },
        &|| {
            let name = json!({"name": uuid::Uuid::now_v7().to_string()});
            client.post(&of("branches"), &extend(name, here())).status
        },
    ];
    std::thread::scope(|scope| {
        for worker in 0..6 {
            let ops = &ops;
            scope.spawn(move || {
                for turn in 0..12 {
                    let status = ops[(worker + turn) % ops.len()]();
                    assert!(matches!(status, 200 | 201 | 404 | 409), "{status}");
                }
            });
        }
    });
    until("every run has ended", || {
        let open = |status: &str| get(&client, &thread, &format!("runs?status={status}"));
        // In this order: a run that waited begins, and none that began waits.
        open("pending") == json!([]) && open("running") == json!([])
    });
    block_on(tables(place, &server).check(true));
}

/// A turn of several messages: of its checkpoints only the first with a message and the last are left,
/// and no tag on the first.
fn pruned_turn(client: &Client, thread: &str) {
    say(client, thread, "tool: 1 2");
    let history = client.history(thread);
    let messages = |state: &Value| state["values"]["messages"].as_array().map_or(0, Vec::len);
    let said = messages(&history[0]);
    assert!(
        said >= 4,
        "a call, its result and what the model says of it"
    );
    let is_first = |state: &&Value| messages(state) == said - 3;
    let first = &history.iter().rfind(is_first).unwrap()["checkpoint"];
    let tag = format!("/threads/{thread}/tags/first");
    let at = json!({"checkpoint_id": first["checkpoint_id"]});
    ok(put(client, &tag, &at), 201);
    prune(client, thread);
    assert_eq!(client.delete(&tag).status, 204);
}

fn a_deleted_run_takes_the_messages_of_its_pruned_checkpoints_with_it(place: &Place) {
    let (server, client) = serve(place);
    let thread = told(&client, &["a"]);
    let end = client.state(&thread)["checkpoint_id"].clone();
    let tag = format!("/threads/{thread}/tags/end");
    ok(put(&client, &tag, &json!({"checkpoint_id": end})), 201);
    pruned_turn(&client, &thread);
    let run = get(&client, &thread, "runs")[0]["run_id"].clone();
    let run = format!("/threads/{thread}/runs/{}", run.as_str().unwrap());
    assert_eq!(client.delete(&run).status, 204);
    assert_eq!(client.state(&thread)["checkpoint_id"], end);
    assert_eq!(path(&client, &thread, "").len(), 2);
    block_on(tables(place, &server).check(true));
}

fn a_deleted_fork_takes_the_messages_of_its_pruned_checkpoints_with_it(place: &Place) {
    let (server, client) = serve(place);
    let thread = told(&client, &["a"]);
    let fork = ok(
        client.post(&format!("/threads/{thread}/fork"), &json!({})),
        201,
    );
    let fork = fork["thread_id"].as_str().unwrap();
    pruned_turn(&client, fork);
    assert_eq!(client.delete(&format!("/threads/{fork}")).status, 204);
    assert_eq!(path(&client, &thread, "").len(), 2);
    block_on(tables(place, &server).check(true));
}

/// A fork of a thread with four turns, back before the third; and the checkpoint where it is then.
fn rewound_fork(client: &Client, thread: &str) -> (String, Value) {
    let third = path(client, thread, "")[4].clone();
    let fork = id_of(&talk::fork(client, thread, &json!({})));
    let rewind = json!({"message_id": third});
    let back = client.post(&format!("/threads/{fork}/rewind"), &rewind);
    (fork, ok(back, 201)["head_checkpoint_id"].take())
}

/// The fork goes on from a checkpoint of its parent that is no head of a branch, has no tag, and is not the one at which
/// the fork begins.
fn what_a_fork_goes_on_from_stays_when_its_parent_is_pruned(place: &Place) {
    let (server, client) = serve(place);
    let thread = told(&client, &["a", "b", "c", "d"]);
    let (fork, base) = rewound_fork(&client, &thread);
    say(&client, &fork, "other");
    // A fork of the fork reads that checkpoint through two threads.
    let again = id_of(&talk::fork(&client, &fork, &json!({})));
    prune(&client, &thread);
    prune(&client, &fork);
    for fork in [&fork, &again] {
        goes_on_from(&client, fork, &base);
    }
    block_on(tables(place, &server).check(true));
}

/// Nothing is left that shows how deep the fork once was.
fn what_a_fork_that_was_pruned_goes_on_from_stays_when_its_parent_is_pruned(place: &Place) {
    let (server, client) = serve(place);
    let thread = told(&client, &["a", "b", "c", "d"]);
    let (fork, base) = rewound_fork(&client, &thread);
    for text in ["other", "far", "deep", "deeper"] {
        say(&client, &fork, text);
    }
    for pruned in [&fork, &thread, &fork, &thread] {
        prune(&client, pruned);
    }
    goes_on_from(&client, &fork, &base);
    block_on(tables(place, &server).check(true));
}

/// The history of a fork is whole down to what it inherits.
fn goes_on_from(client: &Client, fork: &str, base: &Value) {
    let all = read(client, fork, "");
    assert_eq!(
        contents(&all["messages"])[..4],
        ["a", "echo: a", "b", "echo: b"]
    );
    let states = client.history(fork);
    let parents = states
        .iter()
        .map(|state| &state["parent_checkpoint"]["checkpoint_id"]);
    let known: Vec<_> = states
        .iter()
        .map(|state| &state["checkpoint"]["checkpoint_id"])
        .collect();
    for parent in parents.filter(|id| id.is_string()) {
        assert!(known.contains(&parent), "{parent} of {known:?}");
    }
    assert!(known.contains(&base), "{base} of {known:?}");
    say(client, fork, "on");
}

fn what_a_run_of_a_fork_returns_to_stays_when_its_parent_is_pruned(place: &Place) {
    let (server, client) = serve(place);
    let thread = told(&client, &["a", "b", "c", "d"]);
    let (fork, _) = rewound_fork(&client, &thread);
    let before = client.state(&fork);
    let run = background(&client, &fork, &slow(200, 300));
    until("the run has moved the head", || {
        client.state(&fork)["checkpoint"] != before["checkpoint"]
    });
    prune(&client, &thread);
    let cancel = format!("/threads/{fork}/runs/{run}/cancel?action=rollback&wait=true");
    assert!(client.post(&cancel, &json!({})).status < 300);
    until("the head is back", || {
        client.state(&fork)["checkpoint"] == before["checkpoint"]
    });
    say(&client, &fork, "on");
    let all = read(&client, &fork, "");
    let said = contents(&all["messages"]);
    assert_eq!(said[..5], ["a", "echo: a", "b", "echo: b", "c"]);
    block_on(tables(place, &server).check(true));
}
