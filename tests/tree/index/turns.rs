//! What runs that come to their end, and edits, leave.

use super::*;
use test_support::on_both_storages;

on_both_storages!(
    two_turns_give_the_expected_nodes_and_gapless_events,
    tools_and_their_answers_are_messages_of_their_run,
    a_question_ends_with_its_checkpoint_and_its_answer_is_another_run,
    a_breakpoint_leaves_the_message_that_waits,
    an_edit_tells_of_messages_it_changes_adds_and_removes,
    in_exit_durability_all_messages_come_with_the_one_checkpoint,
    a_replay_of_an_old_checkpoint_grows_a_branch_from_its_message,
    a_copied_checkpoint_brings_its_messages_along,
);

fn two_turns_give_the_expected_nodes_and_gapless_events(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &turn("one"));
    let first = head(&client, &thread);
    let values = client.run(&thread, &turn("two"));
    let second = head(&client, &thread);
    let rows = Rows::of(place, &server, &thread);
    let mut expected = vec!["ThreadCreated"];
    expected.extend(TURN);
    expected.extend(TURN);
    assert_eq!(rows.kinds(), expected);
    assert_eq!(
        rows.changes(),
        [
            ("add", "human", 1),
            ("add", "ai", 2),
            ("add", "human", 3),
            ("add", "ai", 4)
        ]
    );
    for (node, message) in rows
        .nodes
        .iter()
        .zip(values["messages"].as_array().unwrap())
    {
        assert_eq!(node.message, message["id"]);
    }
    let parents: Vec<_> = rows.nodes.iter().map(|node| node.parent.clone()).collect();
    let ids: Vec<_> = rows
        .nodes
        .iter()
        .map(|node| Some(node.id.clone()))
        .collect();
    assert_eq!(parents[0], None);
    assert_eq!(parents[1..], ids[..3]);
    let settled: Vec<_> = rows.nodes.iter().map(|node| node.settled.clone()).collect();
    let (first, second) = (Some(first), Some(second));
    assert_eq!(settled, [None, first.clone(), None, second.clone()]);
    let ends: Vec<_> = rows
        .of_kind("CheckpointCreated")
        .into_iter()
        .map(|event| event.checkpoint.clone())
        .collect();
    assert_eq!(ends, [first, second]);
    // The facts are in columns.
    assert!(rows.events.iter().all(|event| event.payload.is_none()));
    let answers = rows.of_kind("LLMResponseGenerated");
    let finished = rows.of_kind("RunFinished");
    assert_eq!(answers[0].run, finished[0].run);
    assert_eq!(answers[0].run, rows.nodes[1].run);
    assert_ne!(answers[0].run, answers[1].run);
    // A bare input does not hold its message yet.
    let inputs: Vec<_> = rows
        .points
        .values()
        .filter(|point| point.last_node.is_none())
        .collect();
    assert_eq!(inputs.len(), 1);
}

fn tools_and_their_answers_are_messages_of_their_run(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &turn("tool: 2 3"));
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(
        rows.changes(),
        [
            ("add", "human", 1),
            ("add", "ai", 2),
            ("add", "tool", 3),
            ("add", "ai", 4)
        ]
    );
    let tool = rows.of_kind("MessageAdded");
    assert!(tool[0].payload.as_ref().unwrap().contains("tool"));
    let settled = rows.nodes.iter().filter(|node| node.settled.is_some());
    assert_eq!(settled.count(), 1);
    assert!(rows.nodes[3].settled.is_some());
}

fn a_question_ends_with_its_checkpoint_and_its_answer_is_another_run(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    client.run(
        &thread,
        &json!({"assistant_id": "approve", "input": {"request": "x"}}),
    );
    let rows = Rows::of(place, &server, &thread);
    let run = [
        "RunEnqueued",
        "RunStarted",
        "CheckpointCreated",
        "RunFinished",
    ];
    assert_eq!(rows.since(1), run);
    client.run(
        &thread,
        &json!({"assistant_id": "approve", "command": {"resume": "yes"}}),
    );
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.since(5), run);
    let ends = rows.of_kind("CheckpointCreated");
    assert_ne!(ends[0].checkpoint, ends[1].checkpoint);
    assert_eq!(ends[1].checkpoint, Some(head(&client, &thread)));
}

fn a_breakpoint_leaves_the_message_that_waits(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let mut body = turn("wait");
    body["interrupt_before"] = json!(["model"]);
    client.run(&thread, &body);
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.changes(), [("add", "human", 1)]);
    assert_eq!(rows.nodes[0].settled, Some(head(&client, &thread)));
    client.run(&thread, &json!({"assistant_id": "agent", "input": null}));
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.changes(), [("add", "human", 1), ("add", "ai", 2)]);
    assert_ne!(rows.nodes[0].run, rows.nodes[1].run);
    assert_ne!(rows.nodes[0].settled, rows.nodes[1].settled);
}

fn an_edit_tells_of_messages_it_changes_adds_and_removes(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let values = client.run(&thread, &turn("one"));
    let (human, ai) = (&values["messages"][0]["id"], &values["messages"][1]["id"]);
    let edit = |messages: Value| {
        let body = json!({"values": {"messages": messages}, "as_node": "model"});
        let answer = client.post(&format!("/threads/{thread}/state"), &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        plain(&answer.json()["checkpoint_id"])
    };
    let made = edit(json!([
        {"type": "human", "id": human, "content": "changed"},
        {"type": "ai", "id": "own", "content": "by hand"},
        {"type": "remove", "id": ai, "content": ""},
    ]));
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(
        rows.since(7),
        [
            "MessageRemoved",
            "MessageEdited",
            "MessageAdded",
            "CheckpointCreated"
        ]
    );
    assert_eq!(
        rows.changes()[2..],
        [("remove", "ai", 2), ("edit", "human", 2), ("add", "ai", 3)]
    );
    let about: Vec<_> = rows.nodes[2..].iter().map(|node| &*node.message).collect();
    assert_eq!(
        about,
        [ai.as_str().unwrap(), human.as_str().unwrap(), "own"]
    );
    for event in &rows.events[7..] {
        assert_eq!(event.checkpoint.as_ref(), Some(&made));
        assert_eq!(event.run, None);
    }
    // One that changes no message.
    edit(json!([]));
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.since(11), ["CheckpointCreated"]);
}

fn in_exit_durability_all_messages_come_with_the_one_checkpoint(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let mut body = turn("tool: 1 2");
    body["durability"] = json!("exit");
    client.run(&thread, &body);
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.points.len(), 1);
    let places: Vec<_> = rows.nodes.iter().map(|node| node.seq).collect();
    assert_eq!(places, [0, 1, 2, 3]);
    let roles: Vec<_> = rows.nodes.iter().map(|node| node.role.as_deref()).collect();
    assert_eq!(roles, ["human", "ai", "tool", "ai"].map(Some));
    client.run(&thread, &body);
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(rows.nodes.len(), 8);
    assert_eq!(rows.nodes[7].ordinal, 8);
}

fn a_replay_of_an_old_checkpoint_grows_a_branch_from_its_message(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &turn("one"));
    let first = client.state(&thread)["checkpoint"]["checkpoint_id"].clone();
    client.run(&thread, &turn("two"));
    let mut body = turn("again");
    body["checkpoint_id"] = first;
    client.run(&thread, &body);
    let rows = Rows::of(place, &server, &thread);
    assert_eq!(
        rows.since(13),
        [
            "RunEnqueued",
            "RunStarted",
            "BranchCreated",
            "BranchActivated",
            "UserMessageAdded",
            "LLMResponseGenerated",
            "CheckpointCreated",
            "RunFinished"
        ]
    );
    let made = &rows.of_kind("BranchCreated")[0];
    let facts: Value = serde_json::from_str(made.payload.as_ref().unwrap()).unwrap();
    let expected = json!({"branch": "main-v2", "origin": "checkpoint", "source_branch": "main"});
    assert_eq!(facts, expected);
    let node = &rows.nodes[4];
    assert_eq!(node.parent.as_ref(), Some(&rows.nodes[1].id));
    assert_eq!(
        (node.ordinal, &node.branch),
        (3, made.branch.as_ref().unwrap())
    );
    assert_ne!(node.branch, rows.nodes[0].branch);
}

fn a_copied_checkpoint_brings_its_messages_along(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    client.run(&thread, &turn("one"));
    let answer = client.post(
        &format!("/threads/{thread}/state"),
        &json!({"values": null, "as_node": "__copy__"}),
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    let made = plain(&answer.json()["checkpoint_id"]);
    let rows = Rows::of(place, &server, &thread);
    // Its parent holds the question; the answer comes with the copy once more.
    let (answer, copied) = (&rows.nodes[1], &rows.nodes[2]);
    assert_eq!(
        (&copied.message, &copied.parent, copied.ordinal),
        (&answer.message, &answer.parent, 2)
    );
    assert_eq!(copied.checkpoint, made);
    assert_eq!(rows.points[&made].last_node.as_ref(), Some(&copied.id));
    client.run(&thread, &turn("two"));
    Rows::of(place, &server, &thread);
}
