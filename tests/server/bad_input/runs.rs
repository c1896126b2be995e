//! Runs that fail, and what they leave.

use super::*;
use test_support::{on_both_storages, talk::until};

on_both_storages!(
    an_input_that_is_no_object_fails_its_run,
    a_node_that_panics_fails_its_run,
    a_node_that_returns_an_error_fails_its_run,
    a_route_to_nowhere_fails_its_run,
    a_graph_without_end_fails_at_its_limit,
    a_state_a_node_cannot_read_fails_its_run,
    a_run_without_input_on_an_empty_thread_fails,
    a_failed_run_leaves_the_last_good_step,
);

fn an_input_that_is_no_object_fails_its_run(place: &Place) {
    let scene = Scene::new(place);
    for input in [json!("abc"), json!(5), json!([1]), json!(true)] {
        let (error, _) = scene.fails(&json!({"assistant_id": "fault", "input": input}));
        assert_eq!(error["error"], "InvalidUpdateError");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with("Expected dict, got"), "{message}");
    }
    // On a thread with a past, the past stays.
    let body = json!({"assistant_id": "fault", "input": "abc"});
    let error = scene.client.run(&scene.thread, &body);
    assert_eq!(error["__error__"]["error"], "InvalidUpdateError");
    assert_eq!(
        scene.client.state(&scene.thread)["values"],
        scene.before.0["values"]
    );
    scene.lives();
}

fn a_node_that_panics_fails_its_run(place: &Place) {
    let scene = Scene::new(place);
    let (error, thread) = scene.fails(&fault("panic"));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`bad`"), "{message}");
    assert_eq!(scene.client.state(&thread)["next"], json!(["bad"]));
    scene.unharmed();
}

fn a_node_that_returns_an_error_fails_its_run(place: &Place) {
    let scene = Scene::new(place);
    let (error, _) = scene.fails(&fault("error"));
    assert_eq!(error, json!({"error": "ValueError", "message": "no luck"}));
    scene.unharmed();
}

fn a_route_to_nowhere_fails_its_run(place: &Place) {
    let scene = Scene::new(place);
    let (error, thread) = scene.fails(&fault("astray"));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`nowhere`"), "{message}");
    // The node and its route are one unit: nothing of either is kept.
    let state = scene.client.state(&thread);
    assert_eq!(
        (&state["values"]["done"], &state["next"]),
        (&json!(["good"]), &json!(["bad"]))
    );
    scene.unharmed();
}

fn a_graph_without_end_fails_at_its_limit(place: &Place) {
    let scene = Scene::new(place);
    let mut body = fault("endless");
    body["config"] = json!({"recursion_limit": 4});
    let (error, thread) = scene.fails(&body);
    assert_eq!(error["error"], "GraphRecursionError");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("limit of 4") && message.contains("recursion_limit"),
        "{message}"
    );
    assert_eq!(
        scene.client.state(&thread)["values"]["done"],
        json!(["good", "bad", "bad", "bad"])
    );
    scene.unharmed();
}

fn a_state_a_node_cannot_read_fails_its_run(place: &Place) {
    let scene = Scene::new(place);
    let (error, _) = scene.fails(&json!({"assistant_id": "fault", "input": {"how": 5}}));
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("`how`") && message.contains("expected a string"),
        "{message}"
    );
    assert_eq!(message.matches("expected a string").count(), 1, "{message}");
    scene.unharmed();
}

fn a_run_without_input_on_an_empty_thread_fails(place: &Place) {
    let scene = Scene::new(place);
    let (error, _) = scene.fails(&json!({"assistant_id": "fault", "input": null}));
    assert_eq!(error["error"], "EmptyInputError");
    scene.unharmed();
}

fn a_failed_run_leaves_the_last_good_step(place: &Place) {
    let scene = Scene::new(place);
    let (_, thread) = scene.fails(&fault("error"));
    let state = scene.client.state(&thread);
    assert_eq!(state["values"], json!({"how": "error", "done": ["good"]}));
    assert_eq!(state["next"], json!(["bad"]));
    let error = state["tasks"][0]["error"].as_str().unwrap();
    assert!(error.contains("no luck"), "{error}");
    // Without input the node is tried again; with input the graph starts over.
    let again = scene.client.run(&thread, &json!({"assistant_id": "fault"}));
    assert_eq!(again["__error__"]["error"], "ValueError");
    let over = scene.client.run(&thread, &good());
    assert_eq!(over["done"], json!(["good", "good", "bad"]));
    assert_eq!(
        scene.client.get(&format!("/threads/{thread}")).json()["status"],
        "idle"
    );
}

#[test]
fn a_key_of_an_input_that_no_channel_has_is_told_in_the_log_with_what_was_meant() {
    let server = Setup::bundled().env("BACKSTITCH_MEMORY", "true").start();
    let input = json!({"mesages": [{"role": "user", "content": "Hello"}]});
    let run = json!({"assistant_id": "chat", "input": input});
    Client::of(&server).post("/runs/wait", &run);
    until("the log names the channel", || {
        server.output().contains("did you mean `messages`?")
    });
}
