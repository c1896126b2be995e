//! Metadata on its way from threads and requests to runs, nodes and checkpoints.

use super::*;
use test_support::on_both_storages;
use test_support::talk::{background, create, ok, until};

on_both_storages!(
    a_run_has_the_metadata_of_its_thread_its_config_and_its_request,
    history_is_filtered_by_all_that_states_say_of_themselves,
    nodes_are_told_which_task_they_are,
    what_a_request_asks_for_is_kept_as_it_was_given,
    states_inside_say_which_task_they_are_of,
    a_run_from_a_checkpoint_says_which,
    an_edit_of_a_checkpoint_says_which_and_a_copy_does_not,
    the_input_is_shown_as_it_came,
);

fn newest(client: &Client, thread: &str) -> Value {
    client.get(&format!("/threads/{thread}/runs")).json()[0].clone()
}

fn a_run_has_the_metadata_of_its_thread_its_config_and_its_request(place: &Place) {
    let (_server, client) = serve(place);
    let own = json!({
        "user": "u1", "m": "thread", "created_by": "me", "run_id": "x", "nul": "a\u{0}b",
    });
    let thread = create(&client, &json!({"metadata": own}));
    let body = json!({
        "assistant_id": "counter", "input": {"count": 0}, "stream_mode": ["tasks"],
        "metadata": {"m": "run", "r": {"z": 1}, "l": [1], "n": null, "thread_id": "y"},
        "config": {"metadata": {"m": "config", "c": 2}, "configurable": {"k": [3], "s": "t"}},
    });
    let events = client.stream(&thread, &body);
    let row = newest(&client, &thread);
    let run = row["metadata"].clone();
    let wanted = json!({
        "user": "u1", "m": "run", "created_by": "me", "nul": "a\u{0}b", "r": {"z": 1}, "l": [1],
        "n": null, "c": 2, "graph_id": "counter", "assistant_id": row["assistant_id"],
    });
    assert_eq!(run, wanted);
    assert_eq!(row["kwargs"]["config"]["metadata"], wanted);
    let told = &events.iter().find(|event| event.name == "tasks").unwrap();
    assert_eq!(told.data["metadata"]["user"], "u1");
    let mut state = client.state(&thread)["metadata"].clone();
    // Checkpoints note texts without NUL, as LangGraph's do.
    assert_eq!(state["nul"], "ab");
    state["nul"] = wanted["nul"].clone();
    for (key, value) in wanted.as_object().unwrap() {
        let said = state.as_object_mut().unwrap().remove(key);
        assert_eq!(said.as_ref(), Some(value), "{key}");
    }
    let rest = json!({
        "k": [3], "s": "t", "run_attempt": 1, "run_id": row["run_id"], "thread_id": thread,
        "source": "loop", "step": 3, "parents": {},
    });
    assert_eq!(state, rest);

    // Later runs as well, also one that waits first; what the thread learns meanwhile counts.
    let first = background(&client, &thread, &slow(20, 5));
    let second = background(&client, &thread, &counter());
    for (run, m) in [(&first, "thread"), (&second, "thread")] {
        client.end_of(&thread, run);
        let row = client.get(&format!("/threads/{thread}/runs/{run}")).json();
        assert_eq!(row["metadata"]["user"], "u1");
        assert_eq!(row["metadata"]["m"], m);
        assert_eq!(row["kwargs"]["config"]["metadata"], row["metadata"]);
    }
    assert_eq!(client.state(&thread)["metadata"]["user"], "u1");
}

fn history_is_filtered_by_all_that_states_say_of_themselves(place: &Place) {
    let (_server, client) = serve(place);
    let thread = create(&client, &json!({"metadata": {"user": "u1"}}));
    let body = with(counter(), "metadata", json!({"r": {"z": 1}, "l": [1, 2]}));
    client.run(&thread, &body);
    client.run(
        &thread,
        &with(counter(), "metadata", json!({"created_by": "me"})),
    );
    let edit = json!({"values": {"count": 1}, "as_node": "first"});
    client.post(&format!("/threads/{thread}/state"), &edit);
    let run = newest(&client, &thread)["run_id"].clone();
    for (filter, count) in [
        (json!({"user": "u1"}), 10),
        (json!({"user": "u2"}), 0),
        (json!({"r": {"z": 1}}), 5),
        (json!({"l": [2]}), 5),
        (json!({"thread_id": thread}), 11),
        (json!({"thread_id": "another"}), 0),
        (json!({"parents": {}}), 11),
        (json!({"created_by": "system"}), 5),
        (json!({"created_by": "me"}), 5),
        (json!({"created_by": "system", "user": "u1", "step": 3}), 1),
        (json!({"run_attempt": 1}), 10),
        (json!({"run_attempt": 2}), 0),
        (
            json!({"run_id": run, "thread_id": thread, "source": "input"}),
            1,
        ),
    ] {
        let page = json!({"limit": 100, "metadata": filter});
        let found = client
            .post(&format!("/threads/{thread}/history"), &page)
            .json();
        assert_eq!(found.as_array().unwrap().len(), count, "{filter}");
    }
    let page = json!({"limit": 2, "metadata": {"created_by": "system"}});
    let found = client
        .post(&format!("/threads/{thread}/history"), &page)
        .json();
    let steps: Vec<&Value> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["metadata"]["step"])
        .collect();
    assert_eq!(steps, [3, 2]);
}

fn nodes_are_told_which_task_they_are(place: &Place) {
    let (_server, client) = serve(place);
    let thread = create(&client, &json!({"metadata": {"user": "u1"}}));
    let body = json!({
        "assistant_id": "ctx", "input": {"text": "x"}, "context": {"who": "w", "extra": 1},
        "config": {"foo": "bar", "max_concurrency": 3},
    });
    let out = client.run(&thread, &body)["out"].clone();
    let row = newest(&client, &thread);
    let ns = out["configurable"]["checkpoint_ns"].as_str().unwrap();
    assert!(ns.starts_with("show:"), "{ns}");
    assert_eq!(out["configurable"]["who"], "w");
    assert_eq!(out["configurable"]["foo"], "bar");
    for absent in ["extra", "max_concurrency"] {
        assert_eq!(out["configurable"].get(absent), None, "{absent}");
        assert_eq!(
            row["kwargs"]["config"]["configurable"].get(absent),
            None,
            "{absent}"
        );
    }
    assert_eq!(row["kwargs"]["context"], json!({"who": "w", "extra": 1}));
    let told = json!({
        "created_by": "system", "graph_id": "ctx", "assistant_id": row["assistant_id"],
        "user": "u1", "run_attempt": "1", "thread_id": thread, "run_id": row["run_id"],
        "langgraph_step": "1", "langgraph_node": "show",
        "langgraph_triggers": "('branch:to:show',)",
        "langgraph_path": "('__pregel_pull', 'show')", "langgraph_checkpoint_ns": ns,
    });
    assert_eq!(out["metadata"], told);
    let own = json!({"assistant_id": "ctx", "input": {"text": "x"},
        "config": {"configurable": {"who": "w", "extra": 1}}});
    let out = client.run(&thread, &own)["out"].clone();
    assert_eq!(out["configurable"]["extra"], 1, "it was asked for by name");
}

fn what_a_request_asks_for_is_kept_as_it_was_given(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    for (asked, durability, during) in [
        (json!({}), "async", true),
        (json!({"durability": "exit"}), "exit", true),
        (json!({"checkpoint_during": false}), "exit", false),
        (
            json!({"durability": "sync", "checkpoint_during": false}),
            "sync",
            false,
        ),
        (
            json!({"durability": "exit", "checkpoint_during": true}),
            "exit",
            true,
        ),
    ] {
        client.run(
            &thread,
            &test_support::talk::extend(counter(), asked.clone()),
        );
        let kwargs = newest(&client, &thread)["kwargs"].clone();
        assert_eq!(kwargs["durability"], durability, "{asked}");
        assert_eq!(kwargs["checkpoint_during"], during, "{asked}");
    }
    // Of a run without a thread there are no checkpoints to tell of, and no thread to name it.
    let body = with(counter(), "stream_mode", json!(["debug", "checkpoints"]));
    let mut open = client.open("POST", "/runs/stream", &[], body.to_string().as_bytes());
    let mut types = vec![];
    while let Some(event) = open.event() {
        types.push((event.name.clone(), event.data["type"].clone()));
    }
    assert_eq!(types.len(), 9, "{types:?}");
    assert!(
        types
            .iter()
            .all(|(name, of)| name != "checkpoints" && of != "checkpoint")
    );
    let row = client.post("/runs", &counter()).json();
    assert_eq!(
        row["metadata"],
        json!({"created_by": "system", "assistant_id": row["assistant_id"]})
    );
    until("it is gone", || {
        let thread = row["thread_id"].as_str().unwrap();
        client.get(&format!("/threads/{thread}")).status == 404
    });
}

fn states_inside_say_which_task_they_are_of(place: &Place) {
    let (_server, client) = serve(place);
    for durability in ["async", "exit"] {
        let thread = client.thread();
        let body = json!({"assistant_id": "subgraph", "input": {"pause": true}});
        client.run(&thread, &with(body, "durability", durability));
        let path = format!("/threads/{thread}/state?subgraphs=true");
        let root = client.get(&path).json();
        let mut state = &root;
        let mut around = String::new();
        let mut map = json!({"": root["checkpoint_id"]});
        for (node, step) in [("child", 2), ("grand", 2)] {
            let task = &state["tasks"][0];
            assert_eq!(task["name"], node);
            let ns = format!("{around}{node}:{}", task["id"].as_str().unwrap());
            state = &task["state"];
            let outermost = ns.split('|').next();
            let own = json!({
                "checkpoint_ns": outermost, "checkpoint_map": map,
                "langgraph_node": node, "langgraph_step": step, "langgraph_checkpoint_ns": ns,
                "langgraph_path": ["__pregel_pull", node],
                "langgraph_triggers": [format!("branch:to:{node}")],
            });
            for (key, value) in own.as_object().unwrap() {
                assert_eq!(&state["metadata"][key], value, "{node} {key}");
            }
            // All states of the graph do, and they are found by it.
            let page = json!({
                "limit": 100, "checkpoint": {"checkpoint_ns": ns},
                "metadata": {"langgraph_node": node, "checkpoint_ns": outermost},
            });
            let found = client
                .post(&format!("/threads/{thread}/history"), &page)
                .json();
            let all = json!({"limit": 100, "checkpoint": {"checkpoint_ns": ns}});
            let all = client
                .post(&format!("/threads/{thread}/history"), &all)
                .json();
            assert_eq!(found, all, "{durability} {node}");
            assert!(!all.as_array().unwrap().is_empty());
            map[&ns] = state["checkpoint_id"].clone();
            around = format!("{ns}|");
        }
        // The graph around them runs in no task.
        for state in client.history(&thread) {
            let metadata = state["metadata"].as_object().unwrap();
            let of_task = metadata
                .keys()
                .find(|key| key.starts_with("langgraph_") || key.starts_with("checkpoint_"));
            assert_eq!(of_task, None);
        }
    }
}

fn an_edit_of_a_checkpoint_says_which_and_a_copy_does_not(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let input = json!({"assistant_id": "ctx", "input": {"text": "x"}});
    client.run(&thread, &input);
    let of = client.history(&thread)[1]["checkpoint_id"].clone();
    let path = format!("/threads/{thread}/state");
    let edited = |body: &Value| {
        let made = ok(client.post(&path, body), 200);
        let metadata = client.state(&thread)["metadata"].clone();
        assert_eq!(
            client.state(&thread)["checkpoint_id"],
            made["checkpoint_id"]
        );
        metadata
    };
    let values = json!({"text": "y"});
    for at in [
        json!({"checkpoint_id": of}),
        json!({"checkpoint": {"checkpoint_id": of}}),
    ] {
        let body = test_support::talk::extend(json!({"values": values}), at);
        let metadata = edited(&body);
        assert_eq!(metadata["checkpoint_id"], of, "{metadata}");
        assert_eq!(metadata["source"], "update");
    }
    let copy = edited(&json!({"checkpoint_id": of, "values": null, "as_node": "__copy__"}));
    assert_eq!(
        (copy.get("checkpoint_id"), &copy["source"]),
        (None, &json!("fork"))
    );
    let at_head = edited(&json!({"values": values}));
    assert_eq!(at_head.get("checkpoint_id"), None);
}

fn a_run_from_a_checkpoint_says_which(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    client.run(
        &thread,
        &json!({"assistant_id": "ctx", "input": {"text": "x"}}),
    );
    let before = client.history(&thread);
    let from = before[1]["checkpoint_id"].clone();
    for (input, at) in [
        (Value::Null, json!({"checkpoint_id": from})),
        (
            json!({"text": "y"}),
            json!({"checkpoint": {"checkpoint_id": from}}),
        ),
        (
            json!({"text": "y"}),
            json!({"config": {"configurable": {"checkpoint_id": from}}}),
        ),
    ] {
        let known: Vec<Value> = client.history(&thread);
        let body =
            json!({"assistant_id": "ctx", "input": input, "metadata": {"checkpoint_id": "x"}});
        let out = client.run(&thread, &test_support::talk::extend(body, at.clone()))["out"].clone();
        assert_eq!(out["metadata"]["checkpoint_id"], from, "{at}");
        assert_eq!(out["configurable"].get("checkpoint_id"), None, "{at}");
        let all = client.history(&thread);
        let new: Vec<&Value> = all.iter().filter(|state| !known.contains(state)).collect();
        assert!(new.len() >= 2, "{at}");
        for state in new {
            assert_eq!(state["metadata"]["checkpoint_id"], from, "{at}");
        }
    }
    client.run(
        &thread,
        &json!({"assistant_id": "ctx", "input": {"text": "z"}}),
    );
    assert_eq!(client.state(&thread)["metadata"].get("checkpoint_id"), None);
}

fn the_input_is_shown_as_it_came(place: &Place) {
    let (_server, client) = serve(place);
    let parts = json!([{"type": "text", "text": "hi"}]);
    for messages in [
        json!("hi"),
        json!(["hi"]),
        json!([["user", "hi"]]),
        json!({"role": "user", "content": "hi"}),
        json!([{"role": "user", "content": parts, "extra": 5, "name": null}]),
        json!([{"type": "human", "content": "hi", "id": "m1"}]),
    ] {
        let thread = client.thread();
        let input = json!({"messages": messages, "unknown": 1});
        client.run(&thread, &json!({"assistant_id": "agent", "input": input}));
        let history = client.history(&thread);
        let first = history.last().unwrap();
        assert_eq!(first["next"], json!(["__start__"]));
        assert_eq!(first["tasks"][0]["result"], json!({"messages": messages}));
        // What nodes make of it is what the state has.
        let message = &history[0]["values"]["messages"][0];
        assert_eq!(message["type"], "human");
        assert!(message["id"].is_string());
        let answer = &history[1]["tasks"][0];
        assert_eq!(answer["result"]["messages"][0]["type"], "ai", "{answer}");
    }
    let thread = client.thread();
    let input = json!({"count": 1.5, "log": ["a", "b"], "unknown": 1});
    client.run(&thread, &json!({"assistant_id": "counter", "input": input}));
    let first = client.history(&thread).pop().unwrap();
    assert_eq!(
        first["tasks"][0]["result"],
        json!({"count": 1.5, "log": ["a", "b"]})
    );
}
