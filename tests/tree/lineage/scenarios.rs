//! The scenarios about runs from older checkpoints, by number.

use super::*;
use test_support::on_both_storages;

on_both_storages!(
    scenario_02_an_old_checkpoint_begins_a_branch,
    scenario_03_a_replayed_question_is_answered_on_the_new_lineage,
    scenario_08_a_branch_shows_its_model_its_own_path,
);

fn scenario_02_an_old_checkpoint_begins_a_branch(place: &Place) {
    let (_server, client) = serve(place);
    let (id, _) = two_turns(&client);
    let before = client.history(&id);
    let old = end_of_first_turn(&client, &id);
    let events = client.stream(&id, &turn_as("again", "m5", json!({"checkpoint_id": old})));
    assert!(events[0].data.get("branch").is_none());
    assert_eq!(
        texts(&client.state(&id)),
        ["one", "echo: one", "again", "echo: again"]
    );
    let expected = [("main".into(), false, 4), ("main-v2".into(), true, 4)];
    assert_eq!(branches(&client, &id), expected);
    let after = client.history(&id);
    let ids: Vec<&str> = after
        .iter()
        .map(|state| state["checkpoint"]["checkpoint_id"].as_str().unwrap())
        .collect();
    assert!(ids.windows(2).all(|pair| pair[0] > pair[1]), "{ids:?}");
    let old: Vec<&Value> = after
        .iter()
        .filter(|state| {
            before
                .iter()
                .any(|old| old["checkpoint"] == state["checkpoint"])
        })
        .collect();
    assert_eq!(old, before.iter().collect::<Vec<_>>());
}

fn scenario_03_a_replayed_question_is_answered_on_the_new_lineage(place: &Place) {
    let (_server, client) = serve(place);
    let id = client.thread();
    let run = |more: Value| {
        let body = extend(json!({"assistant_id": "approve"}), more);
        client.run(&id, &body)
    };
    run(json!({"input": {"request": "x"}}));
    let asked = head(&client, &id, "main");
    let first = run(json!({"command": {"resume": "yes"}}));
    let stopped = run(json!({"checkpoint_id": asked, "input": null}));
    assert!(stopped["__interrupt__"].is_array(), "{stopped}");
    let second = run(json!({"command": {"resume": "no"}}));
    assert_ne!(first, second);
    assert_eq!(state(&client, &id, "branch=main")["values"], first);
    assert_eq!(client.state(&id)["values"], second);
    let expected = [("main".into(), false), ("main-v2".into(), true)];
    assert_eq!(names(&client, &id), expected);
}

fn scenario_08_a_branch_shows_its_model_its_own_path(place: &Place) {
    let (_server, client) = serve(place);
    let (id, messages) = two_turns(&client);
    client.run(&id, &turn_as("three", "m5", json!({})));
    let values = client.run(
        &id,
        &turn_as("aside", "m7", json!({"parent_id": messages[1]})),
    );
    let seen: Vec<&Value> = values["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| &message["content"])
        .collect();
    assert_eq!(seen, ["one", "echo: one", "aside", "echo: aside"]);
}
