//! States that are read while their values are in memory: the same as without, whatever has changed since and
//! wherever, for those who may read them and nobody else.

use serde_json::{Value, json};
use test_support::client::{Client, Event};
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::{Server, Setup};
use test_support::talk::{self, ok, say, turn_as};

on_both_storages!(
    a_hot_state_is_what_a_cold_one_is,
    who_has_lost_access_gets_no_hot_state,
    a_deleted_thread_leaves_no_hot_state,
    a_run_names_the_parents_that_are_stored_though_it_begins_from_memory,
    a_run_names_no_parent_that_pruning_has_removed,
);

fn post(client: &Client, thread: &str, path: &str, body: &Value) -> Value {
    let answer = client.post(&format!("/threads/{thread}/{path}"), body);
    assert!(answer.status < 300, "{path} {body}: {}", answer.text());
    answer.json()
}

fn interrupted(client: &Client) -> String {
    let thread = client.thread();
    let question = json!({"assistant_id": "approve", "input": {"request": "r"}});
    client.run(&thread, &question);
    thread
}

fn chat(client: &Client) -> String {
    let thread = talk::agent_thread(client);
    for (text, id) in [("hi", "u1"), ("ho", "u2")] {
        client.run(&thread, &turn_as(text, id, json!({})));
    }
    thread
}

fn edit(client: &Client, thread: &str) {
    let values = json!({"values": {"messages": [talk::user("edited")]}});
    post(client, thread, "state", &values);
}

fn activate(client: &Client, thread: &str) {
    post(client, thread, "branches/main/activate", &json!({}));
}

fn rewind(client: &Client, thread: &str) {
    post(client, thread, "rewind", &json!({"message_id": "u1"}));
}

/// Threads with heads of every kind.
fn threads(client: &Client) -> Vec<String> {
    let answered = interrupted(client);
    let answer = json!({"assistant_id": "approve", "command": {"resume": "yes"}});
    client.run(&answered, &answer);
    let edited = chat(client);
    edit(client, &edited);
    let rewound = chat(client);
    rewind(client, &rewound);
    let switched = chat(client);
    rewind(client, &switched);
    say(client, &switched, "other");
    activate(client, &switched);
    let posted = chat(client);
    talk::note(client, &posted, "u9");
    let parent = chat(client);
    let fork = talk::id_of(&talk::fork(client, &parent, &json!({"message_id": "u1"})));
    let continued = talk::id_of(&talk::fork(client, &parent, &json!({})));
    say(client, &continued, "more");
    let inside = client.thread();
    client.run(&inside, &json!({"assistant_id": "subgraph", "input": {}}));
    let pruned = chat(client);
    // Its head is in memory with the parent that it has now.
    states(client, &pruned);
    let prune = json!({"thread_ids": [pruned], "strategy": "keep_latest"});
    ok(client.post("/threads/prune", &prune), 200);
    let open = interrupted(client);
    let empty = client.thread();
    let all = [
        answered, edited, rewound, switched, posted, parent, fork, continued, inside, pruned, open,
        empty,
    ];
    all.into()
}

/// The present state of a thread, with the states inside it, and that at each of its checkpoints.
fn states(client: &Client, thread: &str) -> Vec<Value> {
    let mut paths = vec!["state".to_owned(), "state?subgraphs=true".to_owned()];
    for state in client.history(thread) {
        let id = state["checkpoint"]["checkpoint_id"].as_str().unwrap();
        paths.push(format!("state/{id}"));
    }
    let paths = paths.iter();
    paths.map(|path| talk::get(client, thread, path)).collect()
}

fn a_hot_state_is_what_a_cold_one_is(place: &Place) {
    let (mut server, client) = serve(place);
    let threads = threads(&client);
    let of_all = |client: &Client| -> Vec<Vec<Value>> {
        let threads = threads.iter();
        threads.map(|thread| states(client, thread)).collect()
    };
    // As the runs and changes have left them in memory, and as reading has.
    let hot = [of_all(&client), of_all(&client)];
    server.restart();
    let client = Client::of(&server);
    let cold = of_all(&client);
    for hot in hot {
        for (at, (hot, cold)) in hot.iter().zip(&cold).enumerate() {
            for (hot, cold) in hot.iter().zip(cold) {
                assert_eq!(hot, cold, "thread {at}");
            }
        }
        assert_eq!(hot, cold);
    }
}

fn a_deleted_thread_leaves_no_hot_state(place: &Place) {
    let (_server, client) = serve(place);
    let thread = chat(&client);
    let state = client.state(&thread);
    let id = state["checkpoint"]["checkpoint_id"].as_str().unwrap();
    let paths = [
        format!("/threads/{thread}/state"),
        format!("/threads/{thread}/state/{id}"),
    ];
    paths.iter().for_each(|path| {
        ok(client.get(path), 200);
    });
    ok(client.delete(&format!("/threads/{thread}")), 204);
    for path in &paths {
        client.get(path).refused(404);
    }
    let again = json!({"thread_id": thread, "metadata": {"graph_id": "agent"}});
    talk::create(&client, &again);
    for path in &paths {
        assert_eq!(ok(client.get(path), 200)["values"], json!({}), "{path}");
    }
}

/// A server with keys of ann and bob.
fn with_keys(place: &Place) -> Server {
    let setup = Setup::example("reference_server");
    place.start(setup.env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b"))
}

fn who_has_lost_access_gets_no_hot_state(place: &Place) {
    let server = with_keys(place);
    // On Postgres the rights change at another process.
    let other = place.is_postgres().then(|| server.replica());
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    let changing = Client::of(other.as_ref().unwrap_or(&server)).with_key("key-a");
    let thread = chat(&ann);
    let state = ann.state(&thread);
    let id = state["checkpoint"]["checkpoint_id"].as_str().unwrap();
    let paths = [
        format!("/threads/{thread}/state"),
        format!("/threads/{thread}/state/{id}"),
    ];
    let member = format!("/threads/{thread}/members/bob");
    let (none, lost) = (bob.get(&paths[0]), "Thread with ID");
    assert!(
        none.status == 404 && none.text().contains(lost),
        "{}",
        none.text()
    );
    for _ in 0..3 {
        talk::put(&changing, &member, &json!({"level": "reader"}));
        for path in &paths {
            let found = ok(bob.get(path), 200);
            assert_eq!(found["values"], state["values"], "{path}");
        }
        ok(changing.delete(&member), 204);
        for path in &paths {
            let refused = bob.get(path);
            assert!(refused.status == 404, "{path}: {}", refused.text());
            assert_eq!(refused.text(), none.text(), "{path}");
            assert_eq!(ok(ann.get(path), 200)["values"], state["values"]);
        }
    }
}

/// What is changed, and how a client does it.
type Change<'a> = (&'a str, &'a dyn Fn(&Client));

#[test]
fn what_another_process_has_changed_shows_at_once() {
    let place = Place::postgres();
    let (one, client) = serve(&place);
    let two = one.replica();
    let other = Client::of(&two);
    let thread = chat(&client);
    let slow = json!({"assistant_id": "slow", "input": {"ms": 1, "ticks": 1}});
    let question = json!({"assistant_id": "approve", "input": {"request": "r"}});
    let changes: [Change<'_>; 8] = [
        ("run", &|client| drop(say(client, &thread, "again"))),
        ("edit", &|client| edit(client, &thread)),
        ("rewind", &|client| rewind(client, &thread)),
        ("branch", &|client| drop(say(client, &thread, "there"))),
        ("switch", &|client| activate(client, &thread)),
        ("post", &|client| drop(talk::note(client, &thread, "u8"))),
        ("interrupt", &|client| drop(client.run(&thread, &question))),
        ("another graph", &|client| drop(client.run(&thread, &slow))),
    ];
    for (what, change) in changes {
        for (changing, reading) in [(&other, &client), (&client, &other)] {
            let before = [reading.state(&thread), reading.state(&thread)];
            assert_eq!(before[0], before[1], "{what}");
            change(changing);
            let after = reading.state(&thread);
            assert_eq!(after, changing.state(&thread), "{what}");
            assert_ne!(after["checkpoint"], before[0]["checkpoint"], "{what}");
            if ["rewind", "switch", "post"].contains(&what) {
                // The second time there would be nothing to change.
                break;
            }
        }
    }
    ok(other.delete(&format!("/threads/{thread}")), 204);
    client.get(&format!("/threads/{thread}/state")).refused(404);
}

fn showing_checkpoints(run: Value) -> Value {
    talk::with(run, "stream_mode", "checkpoints")
}

/// The parents that the stream of a run names, each of them of one of its checkpoints.
fn parents(client: &Client, thread: &str, run: &Value) -> Vec<Value> {
    let events = client.stream(thread, run);
    let checkpoints = || events.iter().filter(|event| event.name == "checkpoints");
    assert!(checkpoints().count() > 0, "{events:?}");
    let parent = |event: &Event| {
        let id = &event.data["parent_config"]["configurable"]["checkpoint_id"];
        id.is_string().then(|| id.clone())
    };
    checkpoints().filter_map(parent).collect()
}

/// The checkpoints of a thread that are stored.
fn stored(client: &Client, thread: &str) -> Vec<Value> {
    let history = client.history(thread);
    let states = history.iter();
    states
        .map(|state| state["checkpoint"]["checkpoint_id"].clone())
        .collect()
}

/// Of the checkpoints of a run in `exit` the last one is stored, and follows the one that the run began at.
fn a_run_names_the_parents_that_are_stored_though_it_begins_from_memory(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let run = showing_checkpoints(talk::with(talk::slow(1, 3), "durability", "exit"));
    for round in 0..3 {
        let named = parents(&client, &thread, &run);
        let stored = stored(&client, &thread);
        assert_eq!(stored.len(), round + 1);
        // The first state follows none.
        assert_eq!(named.is_empty(), round < 2);
        for id in &named {
            assert!(stored.contains(id), "{id} of {stored:?}");
        }
    }
}

/// The last run has left its checkpoint in memory with the parent that it had.
fn a_run_names_no_parent_that_pruning_has_removed(place: &Place) {
    let (_server, client) = serve(place);
    let in_exit = talk::with(talk::slow(1, 3), "durability", "exit");
    // Such a run shows the checkpoint at which the thread is, and has no others.
    let without_input = talk::with(talk::slow(1, 3), "input", Value::Null);
    let update = json!({"update": {"seen": []}});
    let with_command = talk::with(in_exit.clone(), "command", update);
    let with_command = talk::with(with_command, "durability", "async");
    for run in [in_exit, without_input, with_command].map(showing_checkpoints) {
        let [kept, pruned] = [(); 2].map(|()| {
            let thread = client.thread();
            client.run(&thread, &talk::slow(1, 2));
            client.run(&thread, &talk::slow(1, 2));
            thread
        });
        // Pruning removes every checkpoint but the last one, its parent too.
        let before = stored(&client, &pruned);
        let prune = json!({"thread_ids": [pruned], "strategy": "keep_latest"});
        ok(client.post("/threads/prune", &prune), 200);
        let named = parents(&client, &kept, &run);
        assert!(!named.is_empty(), "{run}");
        for id in named {
            assert!(stored(&client, &kept).contains(&id), "{run}: {id}");
        }
        let named = parents(&client, &pruned, &run);
        let stored = stored(&client, &pruned);
        assert!(before.len() > stored.len(), "{run}: {stored:?}");
        for id in &named {
            assert!(stored.contains(id), "{run}: {id} of {stored:?}");
        }
    }
}
