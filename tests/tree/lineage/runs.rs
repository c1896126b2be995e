//! Runs on branches and from addresses.

use super::*;
use test_support::on_both_storages;
use test_support::talk;

on_both_storages!(
    a_run_on_a_named_branch_moves_that_branch_alone,
    a_run_at_the_head_of_another_branch_goes_on_there,
    a_run_at_a_tag_or_message_begins_a_branch_there,
    a_run_before_the_first_message_begins_with_nothing,
    the_stream_names_the_branch_only_when_one_was_used,
    strategies_are_decided_per_branch,
    a_run_that_is_rolled_back_makes_another_branch_active_only_if_its_own_was,
    a_run_whose_address_goes_with_those_that_it_rolls_back_is_refused_and_leaves_them,
    a_queued_run_without_address_follows_the_active_branch,
    addresses_that_make_no_sense_are_refused,
    a_run_with_a_known_id_follows_the_reducer_and_begins_no_branch,
    an_event_of_a_deleted_ancestor_means_what_it_meant,
    an_event_of_a_deleted_branch_means_what_it_meant,
    of_several_answers_at_once_one_is_given_and_the_others_are_refused,
);

fn a_run_on_a_named_branch_moves_that_branch_alone(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let main = head(&client, &id, "main");
    let path = format!("/threads/{id}/branches");
    let body = json!({"message_id": messages[1], "name": "side"});
    let side = ok(client.post(&path, &body), 201);
    client.run(&id, &turn_as("aside", "m5", json!({"branch": "side"})));
    assert_eq!(head(&client, &id, "main"), main);
    assert_ne!(head(&client, &id, "side"), side["head_checkpoint_id"]);
    assert_eq!(
        names(&client, &id),
        [("main".into(), true), ("side".into(), false)]
    );
    client.run(
        &id,
        &turn_as("on", "m6", json!({"branch": "side", "activate": true})),
    );
    assert_eq!(
        names(&client, &id),
        [("main".into(), false), ("side".into(), true)]
    );
    assert_eq!(
        texts(&client.state(&id)),
        ["one", "echo: one", "aside", "echo: aside", "on", "echo: on"]
    );
    // Its head may be said as well.
    let both = json!({"branch": "main", "checkpoint_id": main});
    client.run(&id, &turn_as("main", "m7", both.clone()));
    assert_eq!(
        state(&client, &id, "branch=main")["values"]["messages"]
            .as_array()
            .unwrap()
            .len(),
        6
    );
    let answer = client.post(&format!("/threads/{id}/runs"), &turn_as("x", "m8", both));
    assert_eq!(code(answer, 409), "head_conflict");
    let unknown = client.post(
        &format!("/threads/{id}/runs"),
        &turn_as("x", "m8", json!({"branch": "no"})),
    );
    assert_eq!(code(unknown, 404), "branch_not_found");
}

fn a_run_at_the_head_of_another_branch_goes_on_there(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let rewind = json!({"message_id": messages[1]});
    ok(client.post(&format!("/threads/{id}/rewind"), &rewind), 201);
    let main = head(&client, &id, "main");
    client.run(&id, &turn_as("three", "m5", json!({"checkpoint_id": main})));
    assert_eq!(
        branches(&client, &id),
        [("main".into(), true, 6), ("main-v2".into(), false, 2)]
    );
    let side = head(&client, &id, "main-v2");
    client.run(
        &id,
        &turn_as("x", "m6", json!({"checkpoint_id": side, "activate": false})),
    );
    assert_eq!(
        branches(&client, &id),
        [("main".into(), true, 6), ("main-v2".into(), false, 4)]
    );
}

fn a_run_at_a_tag_or_message_begins_a_branch_there(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    tag(&client, &id, &messages[1]);
    client.run(&id, &turn_as("by tag", "m5", json!({"tag": "t"})));
    assert_eq!(
        texts(&client.state(&id)),
        ["one", "echo: one", "by tag", "echo: by tag"]
    );
    let quiet = json!({"message_id": messages[1], "activate": false});
    let events = client.stream(&id, &turn_as("quiet", "m6", quiet));
    assert_eq!(events[0].data["branch"], "main-v2-v2");
    let expected = [
        ("main".into(), false, 4),
        ("main-v2".into(), true, 4),
        ("main-v2-v2".into(), false, 4),
    ];
    assert_eq!(branches(&client, &id), expected);
    assert_eq!(
        texts(&state(&client, &id, "branch=main-v2-v2")),
        ["one", "echo: one", "quiet", "echo: quiet"]
    );
    // The last message of a path is where it goes on.
    client.run(&id, &turn_as("on", "m7", json!({"parent_id": messages[3]})));
    assert_eq!(names(&client, &id)[0], ("main".into(), true));
}

fn a_run_before_the_first_message_begins_with_nothing(place: &Place) {
    let (_server, client) = serve(place);
    let (id, _) = two_turns(&client);
    let before = json!({"message_id": "m1", "position": "before"});
    client.run(&id, &turn_as("anew", "m5", before));
    assert_eq!(texts(&client.state(&id)), ["anew", "echo: anew"]);
    assert_eq!(
        branches(&client, &id),
        [("main".into(), false, 4), ("main-v2".into(), true, 2)]
    );
}

fn the_stream_names_the_branch_only_when_one_was_used(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let named = |more: Value, mid: &str| {
        let events = client.stream(&id, &turn_as("x", mid, more));
        assert_eq!(events[0].name, "metadata");
        events[0].data.get("branch").cloned()
    };
    assert_eq!(named(json!({}), "a"), None);
    let old = end_of_first_turn(&client, &id);
    assert_eq!(named(json!({"checkpoint_id": old}), "b"), None);
    assert_eq!(named(json!({"branch": "main"}), "c"), Some(json!("main")));
    assert_eq!(
        named(json!({"activate": true}), "d"),
        Some(json!("main-v2"))
    );
    assert_eq!(
        named(json!({"parent_id": messages[0]}), "e"),
        Some(json!("main-v2-v2"))
    );
}

fn strategies_are_decided_per_branch(place: &Place) {
    let (_server, client) = serve(place);
    let id = with_side_branch(&client);
    let runs = format!("/threads/{id}/runs");
    let first = ok(client.post(&runs, &slow(20_000, json!({}))), 200);
    let refused = |more: Value| client.post(&runs, &slow(1, more)).status;
    assert_eq!(refused(json!({"multitask_strategy": "reject"})), 409);
    assert_eq!(
        refused(json!({"multitask_strategy": "reject", "branch": "main"})),
        409
    );
    let side = json!({"multitask_strategy": "reject", "branch": "side"});
    client.run(&id, &slow(1, side));
    for strategy in ["interrupt", "rollback"] {
        let body = slow(1, json!({"multitask_strategy": strategy, "branch": "side"}));
        client.run(&id, &body);
    }
    let path = format!("{runs}/{}", first["run_id"].as_str().unwrap());
    assert_eq!(ok(client.get(&path), 200)["status"], "running");
    let thread = ok(client.get(&format!("/threads/{id}")), 200);
    assert_eq!(thread["status"], "busy");
    client.run(&id, &slow(1, json!({"multitask_strategy": "interrupt"})));
    assert_eq!(ok(client.get(&path), 200)["status"], "interrupted");
}

fn a_run_that_is_rolled_back_makes_another_branch_active_only_if_its_own_was(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    for _ in 0..2 {
        client.run(&id, &slow(1, json!({})));
    }
    let base = client.history(&id)[1]["checkpoint"]["checkpoint_id"].clone();
    let runs = format!("/threads/{id}/runs");
    for (activate, returns_to_main) in [(true, false), (true, true), (false, false)] {
        let more = json!({"checkpoint_id": base, "activate": activate});
        let run = ok(client.post(&runs, &slow(20_000, more)), 200);
        talk::until("it has its branch", || names(&client, &id).len() == 2);
        assert_eq!(names(&client, &id)[1].1, activate);
        if returns_to_main {
            let path = format!("/threads/{id}/branches/main/activate");
            ok(client.post(&path, &json!({})), 200);
        }
        let before = talk::last_event(&client, &id);
        let cancel = format!(
            "{runs}/{}/cancel?action=rollback&wait=true",
            run["run_id"].as_str().unwrap()
        );
        ok(client.post(&cancel, &json!({})), 200);
        assert_eq!(names(&client, &id), [("main".into(), true)]);
        let told = talk::events(&client, &id, &format!("after={before}"));
        let activated = told
            .iter()
            .filter(|event| event["event_type"] == "BranchActivated");
        let was_active = activate && !returns_to_main;
        assert_eq!(activated.count(), usize::from(was_active), "{told:?}");
        // Only there it shows why the run ended; nothing happened to the other branch.
        let thread = ok(client.get(&format!("/threads/{id}")), 200);
        assert_eq!(thread["error"]["error"] == "UserRollback", was_active);
        client.run(&id, &slow(1, json!({})));
    }
}

/// Rolling the run back deletes the branch that it began, and with it the address of the new run.
fn a_run_whose_address_goes_with_those_that_it_rolls_back_is_refused_and_leaves_them(
    place: &Place,
) {
    let (_server, client) = serve(place);
    let id = client.thread();
    for _ in 0..2 {
        client.run(&id, &slow(1, json!({})));
    }
    let base = client.history(&id)[1]["checkpoint"]["checkpoint_id"].clone();
    let runs = format!("/threads/{id}/runs");
    let began = ok(
        client.post(&runs, &slow(20_000, json!({"checkpoint_id": base}))),
        200,
    );
    talk::until("it has its branch", || names(&client, &id).len() == 2);
    let branch = names(&client, &id)[1].0.clone();
    let queued = slow(
        1,
        json!({"branch": branch, "multitask_strategy": "enqueue"}),
    );
    let queued = ok(client.post(&runs, &queued), 200);
    let last = talk::last_event(&client, &id);
    let refused = slow(
        1,
        json!({"branch": branch, "multitask_strategy": "rollback"}),
    );
    let refused = client.post(&runs, &refused);
    assert_eq!(code(refused, 404), "branch_not_found");
    for (run, status) in [(&began, "running"), (&queued, "pending")] {
        let path = format!("{runs}/{}", run["run_id"].as_str().unwrap());
        assert_eq!(ok(client.get(&path), 200)["status"], status);
    }
    assert_eq!(names(&client, &id).len(), 2);
    assert_eq!(talk::last_event(&client, &id), last);
}

fn a_queued_run_without_address_follows_the_active_branch(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    client.run(&id, &slow(1, json!({})));
    let runs = format!("/threads/{id}/runs");
    let running = ok(client.post(&runs, &slow(20_000, json!({}))), 200);
    let floating = ok(client.post(&runs, &slow(1, json!({}))), 200);
    let body = json!({"name": "side", "activate": true});
    let side = ok(client.post(&format!("/threads/{id}/branches"), &body), 201);
    assert!(side.get("cancelled_runs").is_none());
    let floating = floating["run_id"].as_str().unwrap();
    assert_eq!(client.end_of(&id, floating), "success");
    assert_ne!(
        head(&client, &id, "side"),
        side["head_checkpoint_id"],
        "it took the branch that is active now"
    );
    let running = running["run_id"].as_str().unwrap();
    let path = format!("{runs}/{running}");
    assert_eq!(ok(client.get(&path), 200)["status"], "running");
    ok(
        client.post(&format!("{path}/cancel?wait=true"), &json!({})),
        200,
    );
}

fn addresses_that_make_no_sense_are_refused(place: &Place) {
    let (_server, client) = serve(place);
    let (id, _) = two_turns(&client);
    let head = head(&client, &id, "main");
    let other = end_of_first_turn(&client, &id);
    let runs = format!("/threads/{id}/runs");
    for more in [
        json!({"branch": "main", "tag": "t"}),
        json!({"branch": "main", "parent_id": "m1"}),
        json!({"tag": "t", "checkpoint_id": head}),
        json!({"parent_id": "m1", "checkpoint_id": head}),
        json!({"checkpoint_id": head, "checkpoint": {"checkpoint_id": other}}),
        json!({"checkpoint_id": head, "config": {"configurable": {"checkpoint_id": other}}}),
        json!({"branch": 1}),
        json!({"branch": "a b"}),
        json!({"tag": ""}),
        json!({"activate": "yes"}),
        json!({"parent_id": "m1", "position": "after"}),
        json!({"event_number": 0}),
    ] {
        let answer = client.post(&runs, &turn_as("x", "m9", more.clone()));
        assert_eq!(answer.status, 422, "{more} {}", answer.text());
    }
    for (more, expected) in [
        (json!({"branch": "nope"}), "branch_not_found"),
        (json!({"tag": "nope"}), "tag_not_found"),
        (
            json!({"parent_id": "5a65802f-74fe-4e41-9a19-5fa219b2c04e"}),
            "message_not_found",
        ),
    ] {
        let answer = client.post(&runs, &turn_as("x", "m9", more));
        assert_eq!(code(answer, 404), expected);
    }
    for (more, status, expected) in [
        (json!({"parent_id": "nope"}), 400, "invalid_id"),
        (json!({"message_id": "nope"}), 404, "message_not_found"),
    ] {
        let answer = client.post(&runs, &turn_as("x", "m9", more));
        assert_eq!(code(answer, status), expected);
    }
    let unknown = json!({"checkpoint_id": "1f1e52d3-b51d-655d-8000-078d7d9aa83f"});
    let answer = client.post(&runs, &turn_as("x", "m9", unknown));
    assert_eq!(code(answer, 404), "", "told as LangGraph's clients know it");
    // Equal values may repeat.
    let same = json!({"checkpoint_id": head, "checkpoint": {"checkpoint_id": head}});
    ok(client.post(&runs, &turn_as("x", "m9", same)), 200);
    assert_eq!(branches(&client, &id).len(), 1);
}

fn a_run_with_a_known_id_follows_the_reducer_and_begins_no_branch(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    client.run(&id, &turn_as("two, again", "m3", json!({})));
    // It stands where it stood, and is answered at the end.
    assert_eq!(
        texts(&client.state(&id)),
        [
            "one",
            "echo: one",
            "two, again",
            "echo: two",
            "echo: echo: two"
        ]
    );
    assert_eq!(branches(&client, &id), [("main".into(), true, 5)]);
    let page = talk::read(&client, &id, "");
    assert_eq!(page["messages"][2]["message_id"], *messages[2]);
    assert_eq!(page["messages"][2]["edited"], true);
    assert_eq!(page["messages"][2]["edit_of"], Value::Null);
}

/// What an event is as an address, or why it is none.
fn meant(client: &Client, thread: &str, number: i64) -> (u16, Value) {
    let path = format!("/threads/{thread}/diff?from=event:{number}&to=event:{number}");
    let answer = client.get(&path);
    let body = answer.json();
    match answer.status {
        200 => (200, body["from"]["checkpoint_id"].clone()),
        other => (other, body["code"].clone()),
    }
}

fn an_event_of_a_deleted_ancestor_means_what_it_meant(place: &Place) {
    let (_server, client) = serve(place);
    let (root, _) = two_turns(&client);
    let numbers = 1..=talk::last_event(&client, &root);
    let child = talk::id_of(&talk::fork(&client, &root, &json!({})));
    let grandchild = talk::id_of(&talk::fork(&client, &child, &json!({})));
    let all = |thread: &str| -> Vec<_> {
        let numbers = numbers.clone();
        numbers
            .map(|number| meant(&client, thread, number))
            .collect()
    };
    let before = all(&grandchild);
    assert!(before.iter().filter(|(status, _)| *status == 200).count() > 5);
    let known = before.iter().filter(|(_, id)| !id.is_null());
    assert!(known.count() > 5, "{before:?}");
    for gone in [&child, &root] {
        assert_eq!(client.delete(&format!("/threads/{gone}")).status, 204);
        assert_eq!(all(&grandchild), before);
    }
}

fn an_event_of_a_deleted_branch_means_what_it_meant(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    let path = format!("/threads/{id}/branches");
    let body = json!({"message_id": messages[1], "name": "side"});
    ok(client.post(&path, &body), 201);
    client.run(&id, &turn_as("aside", "m5", json!({"branch": "side"})));
    client.run(&id, &turn_as("again", "m7", json!({"branch": "side"})));
    let tag = format!("/threads/{id}/tags/kept");
    ok(talk::put(&client, &tag, &json!({"branch": "side"})), 201);
    let numbers = 1..=talk::last_event(&client, &id);
    let all = || -> Vec<_> {
        let numbers = numbers.clone();
        numbers.map(|number| meant(&client, &id, number)).collect()
    };
    let before = all();
    assert_eq!(client.delete(&format!("{path}/side")).status, 204);
    assert_eq!(all(), before);
}

fn of_several_answers_at_once_one_is_given_and_the_others_are_refused(place: &Place) {
    let (_server, client) = serve(place);
    for address in [false, true] {
        let id = client.thread();
        let asks = json!({"assistant_id": "approve", "input": {"request": "pay"}});
        client.run(&id, &asks);
        let at = client.state(&id)["checkpoint"]["checkpoint_id"].clone();
        let answers: Vec<_> = (0..8)
            .map(|number| {
                let (client, id) = (client.clone(), id.clone());
                let answer = format!("answer {number}");
                let mut body = json!({"assistant_id": "approve", "command": {"resume": answer}});
                if address {
                    body["checkpoint_id"] = at.clone();
                }
                std::thread::spawn(move || client.post(&format!("/threads/{id}/runs"), &body))
            })
            .collect();
        let answers: Vec<_> = answers.into_iter().map(|one| one.join().unwrap()).collect();
        let (given, refused): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer.status == 200);
        for answer in refused {
            assert_eq!(answer.status, 409, "{}", answer.text());
            assert!(
                answer.text().contains("Another answer"),
                "{}",
                answer.text()
            );
        }
        for run in &given {
            let run = run.json()["run_id"].as_str().unwrap().to_owned();
            assert_eq!(client.end_of(&id, &run), "success");
        }
        // One that came when the first had ended met no question any more.
        assert!(!given.is_empty());
        let result = client.state(&id)["values"]["result"].clone();
        assert!(
            result.as_str().unwrap().starts_with("answer=answer"),
            "{result}"
        );
    }

    // Behind a run that takes long the first answer waits, and no other is let in.
    let id = client.thread();
    client.run(
        &id,
        &json!({"assistant_id": "approve", "input": {"request": "pay"}}),
    );
    let slow = talk::background(&client, &id, &talk::slow(60_000, 1));
    let runs = format!("/threads/{id}/runs");
    let answer = json!({"assistant_id": "approve", "command": {"resume": "yes"}});
    assert_eq!(client.post(&runs, &answer).json()["status"], "pending");
    let refused = client.post(&runs, &answer).refused(409);
    assert!(refused.contains("Another answer"), "{refused}");
    // Nobody answers on a thread that this makes.
    let new = format!("/threads/{}/runs", uuid::Uuid::now_v7());
    let made = talk::with(answer.clone(), "if_not_exists", "create");
    ok(client.post(&new, &made), 200);
    // What is no answer may wait behind it, and a strategy that replaces it is its own decision.
    ok(client.post(&runs, &talk::slow(1, 1)), 200);
    let instead = talk::with(answer, "multitask_strategy", "interrupt");
    let instead = ok(client.post(&runs, &instead), 200);
    let instead = instead["run_id"].as_str().unwrap();
    assert_eq!(client.end_of(&id, instead), "success");
    assert_eq!(client.end_of(&id, &slow), "interrupted");
}
