//! Branches that begin somewhere: at an address, by a rewind, beside a question.

use super::*;
use test_support::on_both_storages;
use test_support::server::Setup;

on_both_storages!(
    a_new_thread_has_one_empty_branch,
    rewinding_before_a_user_message_gives_its_text_back,
    rewinding_to_an_event_finds_what_there_was_then,
    a_branch_made_at_an_address_stays_inactive_until_asked,
    names_with_slashes_are_encoded_in_paths,
    an_interrupted_branch_and_its_copy_are_answered_differently,
    a_branch_made_of_an_interrupted_copy_takes_its_question_over,
    a_branch_that_ends_in_open_tool_calls_warns_of_them,
    a_side_branch_of_a_run_in_its_tools_begins_before_the_open_call,
    a_tag_stands_on_the_message_it_names,
    every_way_to_make_a_branch_takes_one_whole_address,
);

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

fn a_side_branch_of_a_run_in_its_tools_begins_before_the_open_call(place: &Place) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let id = client.thread();
    let run = |text: &str| talk::with(talk::turn(text), "assistant_id", "talk");
    client.run(&id, &run("hello"));
    talk::background(&client, &id, &run("call"));
    until("the tool works", || talk::path(&client, &id, "").len() == 4);
    let running = branch(&client, &id, "main");
    assert_eq!(running["status"], "busy");

    let made = ok(client.post(&format!("/threads/{id}/btw"), &json!({})), 201);
    assert_ne!(made["head_checkpoint_id"], running["head_checkpoint_id"]);
    assert!(made.get("warnings").is_none(), "{made}");
    let side = talk::read(&client, &id, "branch=main-v2");
    assert_eq!(
        talk::contents(&side["messages"]),
        ["hello", "so: hello", "call"]
    );
    // A fork without an address takes the same place; one that asks for the head is warned.
    let fork = talk::fork(&client, &id, &json!({}));
    assert_eq!(fork["fork_checkpoint_id"], made["head_checkpoint_id"]);
    assert!(fork.get("warnings").is_none(), "{fork}");
    let at_head = talk::fork(&client, &id, &json!({"branch": "main"}));
    assert_eq!(at_head["fork_checkpoint_id"], running["head_checkpoint_id"]);
    assert_eq!(at_head["warnings"], json!(["dangling_tool_calls"]));
    // The side branch goes on while the tool still works.
    let on_side = talk::with(run("aside"), "branch", "main-v2");
    let values = client.run(&id, &on_side);
    assert_eq!(
        talk::contents(&values["messages"]),
        ["hello", "so: hello", "call", "aside", "so: aside"]
    );
    assert_eq!(branch(&client, &id, "main")["status"], "busy");
}

fn a_tag_stands_on_the_message_it_names(place: &Place) {
    let (_server, client) = serve(place);
    let id = talk::agent_thread(&client);
    let note = |id: &str| json!({"id": id, "role": "user", "content": id});
    let together = json!({"messages": [note("a"), note("b"), note("c")]});
    talk::store(&client, &id, &together);
    talk::note(&client, &id, "d");
    let of = |path: &str| format!("/threads/{id}/{path}");
    for (address, expected) in [
        (json!({"message_id": "b"}), vec!["a", "b"]),
        (json!({"message_id": "c"}), vec!["a", "b", "c"]),
        (
            json!({"message_id": "c", "position": "before"}),
            vec!["a", "b"],
        ),
        (
            json!({"message_id": "d", "position": "before"}),
            vec!["a", "b", "c"],
        ),
    ] {
        let set = put(&client, &of("tags/t"), &address);
        assert!(matches!(set.status, 200 | 201), "{}", set.text());
        let set = set.json();
        assert_eq!(set["message_id"], *expected.last().unwrap(), "{address}");
        let state = talk::get(&client, &id, "state?tag=t");
        assert_eq!(texts(&state), expected, "{address}");
        assert_eq!(
            state["next"].as_array().unwrap().is_empty(),
            expected.len() == 2
        );
        let shown = talk::path(
            &client,
            &id,
            &format!("checkpoint_id={}", set["checkpoint_id"].as_str().unwrap()),
        );
        assert_eq!(shown, expected);
        let forked = talk::fork(&client, &id, &json!({"tag": "t"}));
        assert_eq!(talk::path(&client, &talk::id_of(&forked), ""), expected);
        let diff = talk::get(&client, &id, "diff?from=tag%3At&to=branch%3Amain");
        assert_eq!(diff["messages"]["removed"], json!([]), "{diff}");
        assert_eq!(
            diff["messages"]["added"].as_array().unwrap().len(),
            4 - expected.len()
        );
        ok(client.post(&of("restore"), &json!({"tag": "t"})), 201);
        assert_eq!(texts(&client.state(&id)), expected);
        let main = client.post(&of("branches/main/activate"), &json!({}));
        ok(main, 200);
    }
    let nothing = put(
        &client,
        &of("tags/t"),
        &json!({"message_id": "a", "position": "before"}),
    );
    assert_eq!(code(nothing, 409), "empty_branch");
    assert!(
        branches(&client, &id)
            .iter()
            .all(|(name, ..)| name.starts_with("main"))
    );
}

fn every_way_to_make_a_branch_takes_one_whole_address(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let tag = format!("/threads/{id}/tags/t");
    ok(put(&client, &tag, &json!({"message_id": messages[3]})), 201);
    let tagged = ok(client.get(&tag), 200)["checkpoint_id"].clone();
    let make = |way: &str, body: Value| client.post(&format!("/threads/{id}/{way}"), &body);
    let made = ok(make("restore", json!({"tag": "t"})), 201);
    assert_eq!(made["head_checkpoint_id"], tagged);
    let made = ok(
        make("restore", json!({"tag": "t", "position": "before"})),
        201,
    );
    assert_eq!(made["head_message_id"], *messages[2]);
    let made = ok(make("btw", json!({"message_id": messages[1]})), 201);
    assert_eq!(
        (
            &made["head_message_id"],
            &made["origin"],
            &made["is_active"]
        ),
        (&json!(messages[1]), &json!("btw"), &json!(false))
    );
    for (way, body) in [
        ("restore", json!({"tag": "t", "branch": "main"})),
        ("restore", json!({"branch": "main"})),
        ("restore", json!({"tag": "t", "position": "after"})),
        ("btw", json!({"tag": "t", "branch": "main"})),
        ("btw", json!({"position": "after"})),
        ("rewind", json!({"tag": "t", "message_id": "m1"})),
        ("branches", json!({"tag": "t", "event_number": 1})),
        (
            "branches",
            json!({"branch": "main", "checkpoint_id": tagged}),
        ),
    ] {
        assert_eq!(
            code(make(way, body.clone()), 422),
            "invalid_request",
            "{way} {body}"
        );
    }
}
