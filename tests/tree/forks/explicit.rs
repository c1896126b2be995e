//! Tests of forks that a request creates explicitly.

use serde_json::{Value, json};

use super::*;
use test_support::on_both_storages;

on_both_storages!(
    a_thread_created_by_command_says_which_event_tells_of_it,
    a_fork_shares_the_path_up_to_its_anchor,
    every_address_names_a_place_to_fork_at,
    a_fork_in_the_middle_of_a_post_leaves_later_messages_out,
    scenario_18_a_fork_goes_on_from_an_event_and_its_own_events_follow,
    a_fork_takes_over_the_graph_and_nothing_else_of_the_metadata,
    a_fork_of_an_open_question_can_be_answered_by_itself,
    a_fork_of_a_fork_reaches_into_every_ancestor,
    a_fork_begins_a_chain_of_events_of_its_own,
    a_fork_remembers_its_address_as_it_was_sent,
    what_cannot_be_forked_is_refused,
    a_fork_without_an_address_begins_at_the_head,
);

fn a_thread_created_by_command_says_which_event_tells_of_it(place: &Place) {
    let (_server, client) = serve(place);
    let id = new_id();
    let body = json!({"thread_id": id, "metadata": {"a": 1}});
    let made = client.post("/commands/create-thread", &body);
    assert_eq!(made.status, 200, "{}", made.text());
    let made = made.json();
    assert_eq!(made["thread_id"], json!(id));
    assert_eq!(made["event_number"], 1);
    let told = client.get(&format!("/threads/{id}/events")).json();
    assert_eq!(told["events"][0]["event_id"], made["event_id"]);
    assert_eq!(told["events"][0]["event_type"], "ThreadCreated");
    let again = client.post("/commands/create-thread", &body);
    assert_eq!(code(&again, 409), "thread_exists");
    let same = json!({"thread_id": id, "if_exists": "do_nothing"});
    let same = client.post("/commands/create-thread", &same);
    assert_eq!(same.json(), made);
    for body in [
        json!({"thread_id": "x"}),
        json!({"metadata": 1}),
        json!({"if_exists": "x"}),
        json!([]),
    ] {
        let answer = client.post("/commands/create-thread", &body);
        assert_eq!(code(&answer, 422), "invalid_request");
    }
}

fn a_fork_shares_the_path_up_to_its_anchor(place: &Place) {
    let (_server, client) = serve(place);
    let thread = thread_of(&client, &["u1", "a2", "u3", "a4"]);
    let at = fork(&client, &thread, &json!({"message_id": "a2"}));
    let before = fork(
        &client,
        &thread,
        &json!({"message_id": "a2", "position": "before"}),
    );
    assert_eq!(path(&client, &id_of(&at)), ["u1", "a2"]);
    assert_eq!(path(&client, &id_of(&before)), ["u1"]);
    assert_eq!(at["tree_id"], json!(thread));
    assert_eq!(at["new_thread_id"], at["thread_id"]);

    // What comes later on either side never shows on the other.
    note(&client, &thread, "u5");
    note(&client, &id_of(&at), "u6");
    assert_eq!(path(&client, &id_of(&at)), ["u1", "a2", "u6"]);
    assert_eq!(path(&client, &thread), ["u1", "a2", "u3", "a4", "u5"]);
    let shown = read(&client, &id_of(&at), "");
    let first = &shown["messages"][0];
    assert_eq!(
        (&first["inherited"], &first["thread_id"]),
        (&json!(true), &json!(thread))
    );
    assert_eq!(shown["messages"][2]["inherited"], json!(false));
    assert_eq!(shown["messages"][2]["parent_id"], "a2");
    assert_eq!(shown["messages"][2]["depth"], 3);
    let all = family(&client, &thread);
    let row = relative(&all, &id_of(&before));
    assert_eq!(row["forked_at_message_id"], "a2");
    assert_eq!(row["position"], "before");
    assert_eq!(row["parent_thread_id"], json!(thread));
    assert_eq!(row["fork_level"], 1);
    let said = say(&client, &id_of(&at), "hi");
    assert_eq!(said["messages"].as_array().unwrap().len(), 5);
    assert_eq!(path(&client, &thread).len(), 5);
}

fn every_address_names_a_place_to_fork_at(place: &Place) {
    let (_server, client) = serve(place);
    let thread = thread_of(&client, &["u1", "a2", "u3"]);
    let shown = read(&client, &thread, "");
    let second = shown["messages"][1].clone();
    let rewound = client.post(
        &format!("/threads/{thread}/rewind"),
        &json!({"message_id": "a2"}),
    );
    assert_eq!(rewound.status, 201, "{}", rewound.text());
    let tag = client.send(
        "PUT",
        &format!("/threads/{thread}/tags/t"),
        &[],
        b"{\"message_id\":\"a2\"}",
    );
    assert_eq!(tag.status, 201, "{}", tag.text());
    for (address, expected) in [
        (
            json!({"checkpoint_id": second["checkpoint_id"]}),
            vec!["u1", "a2"],
        ),
        (json!({"tag": "t"}), vec!["u1", "a2"]),
        (json!({"branch": "main-v2"}), vec!["u1", "a2"]),
        (json!({"branch": "main"}), vec!["u1", "a2", "u3"]),
        (json!({"parent_id": "a2"}), vec!["u1", "a2"]),
        (
            json!({"event_number": second["event_number"]}),
            vec!["u1", "a2"],
        ),
        (
            json!({"event_number": second["event_number"], "position": "before"}),
            vec!["u1"],
        ),
        (json!({"event_number": 1}), vec![]),
        (json!({"message_id": "u1", "position": "before"}), vec![]),
    ] {
        let made = fork(&client, &thread, &address);
        assert_eq!(path(&client, &id_of(&made)), expected, "{address}");
        let by_command = {
            let mut body = address.clone();
            body["source_thread_id"] = json!(thread);
            client.post("/commands/fork-thread", &body)
        };
        assert_eq!(by_command.status, 201, "{}", by_command.text());
        assert_eq!(
            by_command.json()["fork_checkpoint_id"],
            made["fork_checkpoint_id"]
        );
    }
}

fn a_fork_in_the_middle_of_a_post_leaves_later_messages_out(place: &Place) {
    let (_server, client) = serve(place);
    let thread = talk::agent_thread(&client);
    let messages = json!({"messages": [
        {"id": "u1", "role": "user", "content": "one"},
        {"id": "a2", "role": "assistant", "content": "two"},
        {"id": "u3", "role": "user", "content": "three"},
    ]});
    let answer = client.post(&format!("/threads/{thread}/messages"), &messages);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let made = id_of(&fork(&client, &thread, &json!({"message_id": "a2"})));
    assert_eq!(path(&client, &made), ["u1", "a2"]);
    let held = &client.state(&made)["values"]["messages"];
    assert_eq!(held.as_array().unwrap().len(), 2, "{held}");
    let before = fork(
        &client,
        &thread,
        &json!({"message_id": "a2", "position": "before"}),
    );
    assert_eq!(path(&client, &id_of(&before)), ["u1"]);
    // What came after that is not the fork's.
    let leaves = talk::branches(&client, &made)["leaves"].clone();
    assert_eq!(leaves.as_array().unwrap().len(), 1, "{leaves}");
    assert_eq!(
        (&leaves[0]["message_id"], &leaves[0]["depth"]),
        (&json!("a2"), &json!(2))
    );
    let nodes = talk::get(&client, &made, "tree")["nodes"].clone();
    let nodes = nodes
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["id"].clone());
    assert_eq!(nodes.collect::<Vec<_>>(), ["u1", "a2"]);
    let later = client.get(&format!("/threads/{made}/messages?leaf_id=u3"));
    assert_eq!(code(&later, 400), "invalid_id");
    let rewind = format!("/threads/{made}/rewind");
    let later = client.post(&rewind, &json!({"message_id": "u3"}));
    assert_eq!(code(&later, 404), "message_not_found");
    let told = talk::events(&client, &thread, "");
    let told = told
        .iter()
        .find(|event| event["message_id"] == "a2")
        .unwrap();
    let body = json!({"event_number": told["event_number"]});
    let by_event = id_of(&fork(&client, &thread, &body));
    let leaves = talk::branches(&client, &by_event)["leaves"].clone();
    assert_eq!(leaves[0]["message_id"], "a2", "{leaves}");
    let later = client.get(&format!("/threads/{by_event}/messages?leaf_id=u3"));
    assert_eq!(code(&later, 400), "invalid_id");
    note(&client, &made, "u4");
    assert_eq!(path(&client, &made), ["u1", "a2", "u4"]);
    assert_eq!(path(&client, &thread), ["u1", "a2", "u3"]);
    let deeper = id_of(&fork(&client, &made, &json!({"branch": "main"})));
    assert_eq!(path(&client, &deeper), ["u1", "a2", "u4"]);
    let later = client.get(&format!("/threads/{deeper}/messages?leaf_id=u3"));
    assert_eq!(code(&later, 400), "invalid_id");
}

fn scenario_18_a_fork_goes_on_from_an_event_and_its_own_events_follow(place: &Place) {
    let (_server, client) = serve(place);
    let thread = create(&client, &json!({}));
    say(&client, &thread, "I am devansh");
    let told = log(&client, &thread);
    let (answer, _) = told
        .iter()
        .find(|(_, kind)| kind == "LLMResponseGenerated")
        .unwrap();
    let made = fork(&client, &thread, &json!({"event_number": answer}));
    let number = made["fork_event_number"].as_i64().unwrap();
    assert!(number >= *answer);
    let fork = id_of(&made);
    assert_eq!(
        log(&client, &fork),
        [
            (number + 1, "ThreadCreated".into()),
            (number + 2, "ThreadForked".into())
        ]
    );
    assert_eq!(made["event_number"], json!(number + 2));
    let sent = json!({"thread_id": fork, "content": "what is my name"});
    let sent = client.post("/commands/send-message", &sent);
    assert_eq!(sent.status, 202, "{}", sent.text());
    let run = sent.json()["run_id"].as_str().unwrap().to_owned();
    assert_eq!(client.end_of(&fork, &run), "success");
    let said = read(&client, &fork, "");
    assert_eq!(
        contents(&said["messages"]),
        [
            "I am devansh",
            "echo: I am devansh",
            "what is my name",
            "echo: what is my name"
        ]
    );
    let own = log(&client, &fork);
    let numbers: Vec<i64> = own.iter().map(|(number, _)| *number).collect();
    let expected: Vec<i64> = (number + 1..).take(own.len()).collect();
    assert_eq!(numbers, expected);
    let with_inherited = client.get(&format!("/threads/{fork}/events?inherited=true&limit=1000"));
    let all = with_inherited.json()["events"].as_array().unwrap().len();
    let shared = told.iter().filter(|(one, _)| *one <= number).count();
    assert_eq!(all, shared + own.len());
    assert_eq!(log(&client, &thread), told, "the parent is as it was");
}

fn a_fork_takes_over_the_graph_and_nothing_else_of_the_metadata(place: &Place) {
    let (_server, client) = serve(place);
    let thread = create(
        &client,
        &json!({"metadata": {"graph_id": "agent", "of": "T"}}),
    );
    say(&client, &thread, "hi");
    let made = fork(&client, &thread, &json!({"metadata": {"mine": 1}}));
    let row = client.get(&format!("/threads/{}", id_of(&made))).json();
    let metadata = row["metadata"].as_object().unwrap();
    let parent = client.get(&format!("/threads/{thread}")).json();
    assert_eq!(metadata["graph_id"], "agent");
    assert_eq!(metadata["assistant_id"], parent["metadata"]["assistant_id"]);
    assert_eq!(metadata["mine"], 1);
    assert_eq!(metadata["created_by"], "local");
    assert!(!metadata.contains_key("of"));
    assert_eq!(row["status"], "idle");
    assert_eq!(row["values"], parent["values"]);
}

fn a_fork_of_an_open_question_can_be_answered_by_itself(place: &Place) {
    let (_server, client) = serve(place);
    let thread = create(&client, &json!({}));
    client.run(
        &thread,
        &json!({"assistant_id": "approve", "input": {"request": "r"}}),
    );
    let asked = client.state(&thread)["interrupts"].clone();
    let made = id_of(&fork(&client, &thread, &json!({})));
    assert_eq!(
        client.get(&format!("/threads/{made}")).json()["status"],
        "interrupted"
    );
    assert_eq!(client.state(&made)["interrupts"], asked);
    let no = json!({"assistant_id": "approve", "command": {"resume": false}});
    let yes = json!({"assistant_id": "approve", "command": {"resume": true}});
    let refused = client.run(&made, &no);
    assert_eq!(client.state(&thread)["interrupts"], asked);
    let granted = client.run(&thread, &yes);
    assert_ne!(refused, granted);
    assert_eq!(client.state(&made)["next"], json!([]));
}

fn a_fork_of_a_fork_reaches_into_every_ancestor(place: &Place) {
    let (_server, client) = serve(place);
    let root = thread_of(&client, &["u1", "a2", "u3"]);
    let child = id_of(&fork(&client, &root, &json!({"message_id": "a2"})));
    note(&client, &child, "u4");
    let grand = id_of(&fork(&client, &child, &json!({"message_id": "u1"})));
    assert_eq!(path(&client, &grand), ["u1"]);
    note(&client, &grand, "u5");
    assert_eq!(path(&client, &grand), ["u1", "u5"]);
    let all = family(&client, &grand);
    assert_eq!(relative(&all, &grand)["fork_level"], 2);
    assert_eq!(relative(&all, &grand)["parent_thread_id"], json!(child));
    assert_eq!(all["root_thread_id"], json!(root));
    // A message that only the parent's parent has, behind the fork, is not there to fork at.
    let answer = try_fork(&client, &child, &json!({"message_id": "u3"}));
    assert_eq!(code(&answer, 404), "message_not_found");
}

fn a_fork_begins_a_chain_of_events_of_its_own(place: &Place) {
    let (_server, client) = serve(place);
    let root = thread_of(&client, &["u1", "a2"]);
    let child = fork(&client, &root, &json!({"message_id": "a2"}));
    let child_id = id_of(&child);
    let own = log(&client, &child_id);
    let forked = client.get(&format!("/threads/{child_id}/events")).json()["events"][1].clone();
    assert_eq!(forked["event_type"], "ThreadForked");
    assert_eq!(forked["event_id"], child["event_id"]);
    let told = &forked["payload"];
    assert_eq!(told["parent_thread_id"], json!(root));
    assert_eq!(told["from_event_number"], child["fork_event_number"]);
    assert_eq!(told["fork_checkpoint_id"], child["fork_checkpoint_id"]);
    assert_eq!(
        (&told["anchor"], &told["position"]),
        (&json!("a2"), &json!("at"))
    );
    // Numbers of ancestors name their events from any depth.
    let grand = fork(&client, &child_id, &json!({}));
    let first = fork(&client, &id_of(&grand), &json!({"event_number": 2}));
    assert_eq!(path(&client, &id_of(&first)), ["u1"]);
    assert!(grand["fork_event_number"].as_i64() <= Some(own[1].0));
}

fn a_fork_remembers_its_address_as_it_was_sent(place: &Place) {
    let (_server, client) = serve(place);
    let thread = thread_of(&client, &["u1", "a2"]);
    ok(
        put(&client, &format!("/threads/{thread}/tags/t"), &json!({})),
        201,
    );
    let state = client.state(&thread);
    let number = last_event(&client, &thread);
    for (address, anchor) in [
        (
            json!({"checkpoint_id": state["checkpoint"]["checkpoint_id"]}),
            Value::Null,
        ),
        (json!({"tag": "t"}), Value::Null),
        (json!({"branch": "main"}), Value::Null),
        (json!({"event_number": number}), Value::Null),
        (json!({"message_id": "a2"}), json!("a2")),
    ] {
        for position in ["at", "before"] {
            let body = with(address.clone(), "position", position);
            let id = id_of(&fork(&client, &thread, &body));
            let all = family(&client, &thread);
            let row = relative(&all, &id);
            assert_eq!(row["forked_at_message_id"], anchor, "{body}");
            assert_eq!(row["position"], position, "{body}");
            let told = &talk::events(&client, &id, "")[1]["payload"];
            assert_eq!(told["anchor"], anchor, "{body}");
            assert_eq!(told["position"], position, "{body}");
            assert_eq!(told.as_object().unwrap().len(), 5, "{told}");
        }
    }
    let all = id_of(&fork(&client, &thread, &json!({})));
    let family = family(&client, &thread);
    assert_eq!(relative(&family, &all)["position"], Value::Null);
}

fn what_cannot_be_forked_is_refused(place: &Place) {
    let (_server, client) = serve(place);
    let thread = thread_of(&client, &["u1"]);
    let other = thread_of(&client, &["u2"]);
    let gone = new_id();
    for (body, status, expected) in [
        (json!({"message_id": "u2"}), 404, "message_not_found"),
        (json!({"message_id": gone}), 404, "message_not_found"),
        (json!({"checkpoint_id": gone}), 404, "checkpoint_not_found"),
        (json!({"event_number": 99}), 404, "checkpoint_not_found"),
        (json!({"branch": "no"}), 404, "branch_not_found"),
        (json!({"tag": "no"}), 404, "tag_not_found"),
        (
            json!({"thread_id": other, "message_id": "u1"}),
            409,
            "thread_exists",
        ),
        (json!({"thread_id": "x"}), 422, "invalid_request"),
        (json!({"event_number": 0}), 422, "invalid_request"),
        (json!({"event_number": "1"}), 422, "invalid_request"),
        (json!({"checkpoint_id": "x"}), 422, "invalid_request"),
        (
            json!({"message_id": "u1", "tag": "t"}),
            422,
            "invalid_request",
        ),
        (
            json!({"message_id": "u1", "position": "after"}),
            422,
            "invalid_request",
        ),
        (json!({"message_id": 1}), 422, "invalid_request"),
        (json!({"metadata": "x"}), 422, "invalid_request"),
        (json!({"branch": "a b"}), 422, "invalid_request"),
        (json!({"source_thread_id": other}), 422, "invalid_request"),
        (json!([1]), 422, "invalid_request"),
    ] {
        let answer = try_fork(&client, &thread, &body);
        assert_eq!(code(&answer, status), expected, "{body}");
    }
    assert_eq!(
        code(try_fork(&client, &gone, &json!({})), 404),
        "thread_not_found"
    );
    assert_eq!(try_fork(&client, "nope", &json!({})).status, 422);
    let by_command = |body: Value| client.post("/commands/fork-thread", &body);
    assert_eq!(code(by_command(json!({})), 422), "invalid_request");
    assert_eq!(
        code(by_command(json!({"source_thread_id": "x"})), 422),
        "invalid_request"
    );
    assert_eq!(
        code(by_command(json!({"source_thread_id": gone})), 404),
        "thread_not_found"
    );
    assert_eq!(
        family(&client, &thread)["threads"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    client.get(&format!("/threads/{gone}/forks")).refused(404);
    client.get("/threads/nope/forks").refused(422);
    client
        .get(&format!("/threads/{thread}/forks?limit=0"))
        .refused(422);
}

fn a_fork_without_an_address_begins_at_the_head(place: &Place) {
    let (_server, client) = serve(place);
    let empty = create(&client, &json!({}));
    let made = fork(&client, &empty, &json!({}));
    assert_eq!(made["fork_checkpoint_id"], Value::Null);
    assert_eq!(made["fork_event_number"], 0);
    let thread = thread_of(&client, &["u1", "a2"]);
    let id = new_id();
    let made = fork(&client, &thread, &json!({"thread_id": id}));
    assert_eq!(made["thread_id"], json!(id));
    assert_eq!(path(&client, &id), ["u1", "a2"]);
    let branches = client.get(&format!("/threads/{id}/branches")).json();
    let main = &branches["branches"][0];
    assert_eq!(
        (&main["name"], &main["origin"]),
        (&json!("main"), &json!("fork"))
    );
    assert_eq!(main["source_branch"], Value::Null);
    assert_eq!(main["is_active"], json!(true));
    let parent = client.get(&format!("/threads/{thread}/branches")).json();
    assert_eq!(parent["forks"][0]["thread_id"], json!(id));
}
