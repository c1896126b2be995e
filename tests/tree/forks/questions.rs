//! Questions of a graph inside that are answered where they were asked, on one branch, fork and copy after another.

use serde_json::{Value, json};
use test_support::{
    on_both_storages,
    server::{Server, Setup},
};

use super::*;

on_both_storages!(
    a_question_inside_is_answered_any_number_of_times_at_its_checkpoint,
    forks_of_forks_and_their_copies_answer_a_question_inside,
    a_question_inside_that_a_fork_alone_has_is_answered_on_its_forks_and_their_copies,
    a_fork_between_two_stops_inside_goes_on_where_the_original_does,
    what_was_stored_at_the_exit_of_a_run_is_kept_on_forks_and_branches,
);

/// A server with a graph whose graph inside keeps its state, and a thread on which that was answered once.
pub fn asked_once(place: &Place) -> (Server, Client, String) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    turn(&client, &thread, &json!({}));
    let kept = answered(&client, &thread, "A0", &json!({}));
    assert_eq!(kept, json!(["first", "A0"]));
    (server, client, thread)
}

/// A run with input, which ends at the question unless it stops before.
pub fn turn(client: &Client, thread: &str, more: &Value) -> Value {
    let body = json!({"assistant_id": "keeper", "input": {"log": ["in"]}});
    client.run(thread, &extend(body, more.clone()))
}

/// What the graph inside keeps after this answer.
pub fn answered(client: &Client, thread: &str, answer: &str, more: &Value) -> Value {
    let body = json!({"assistant_id": "keeper", "command": {"resume": answer}});
    client.run(thread, &extend(body, more.clone()))["kept"].clone()
}

/// What it keeps when it was asked once more and answered this.
fn kept_with(answer: &str) -> Value {
    json!(["first", "A0", "first", answer])
}

pub fn copy_of(client: &Client, thread: &str) -> String {
    let copy = client.post(&format!("/threads/{thread}/copy"), &json!({}));
    id_of(&ok(copy, 200))
}

fn a_question_inside_is_answered_any_number_of_times_at_its_checkpoint(place: &Place) {
    let (_server, client, _) = asked_once(place);
    for durability in ["async", "sync", "exit"] {
        let thread = client.thread();
        let how = json!({"durability": durability});
        turn(&client, &thread, &how);
        answered(&client, &thread, "A0", &how);
        turn(&client, &thread, &how);
        let asked = client.state(&thread)["checkpoint"]["checkpoint_id"].clone();
        let there = extend(how.clone(), json!({"checkpoint_id": asked}));
        for (answer, from) in [("A", &how), ("B", &there), ("C", &there), ("D", &there)] {
            let kept = answered(&client, &thread, answer, from);
            assert_eq!(kept, kept_with(answer), "{durability}");
        }
        let copy = copy_of(&client, &thread);
        for id in [&copy, &thread] {
            let kept = answered(&client, id, "E", &there);
            assert_eq!(kept, kept_with("E"), "{durability}");
        }
    }
}

fn forks_of_forks_and_their_copies_answer_a_question_inside(place: &Place) {
    let (_server, client, root) = asked_once(place);
    turn(&client, &root, &json!({}));
    let fork_of = |thread: &str| id_of(&fork(&client, thread, &json!({})));
    let first = fork_of(&root);
    let second = fork_of(&first);
    let third = fork_of(&second);
    let copy = copy_of(&client, &third);
    for (thread, answer) in [(&first, "A"), (&copy, "B")] {
        let kept = answered(&client, thread, answer, &json!({}));
        assert_eq!(kept, kept_with(answer));
    }
    ok(client.delete(&format!("/threads/{first}")), 204);
    for (thread, answer) in [(&third, "C"), (&second, "D"), (&root, "E")] {
        let kept = answered(&client, thread, answer, &json!({}));
        assert_eq!(kept, kept_with(answer));
    }
}

/// The id of the question names the state inside that asked it: a graph that begins anew asks under another one.
fn a_question_inside_that_a_fork_alone_has_is_answered_on_its_forks_and_their_copies(
    place: &Place,
) {
    let (_server, client) = serve(place);
    let root = client.thread();
    let stop = json!({"input": {"path": [], "pause": true}, "interrupt_before": ["child"]});
    let run =
        |thread: &str, body: Value| client.run(thread, &with(body, "assistant_id", "subgraph"));
    run(&root, stop);
    let asks = id_of(&fork(&client, &root, &json!({})));
    let question = run(&asks, json!({"input": null}))["__interrupt__"][0]["id"].clone();
    let question = question.as_str().unwrap();
    let forked = id_of(&fork(&client, &asks, &json!({})));
    let copy = copy_of(&client, &forked);
    let answered = |thread: &str, answer: &str| {
        let values = run(thread, json!({"command": {"resume": {question: answer}}}));
        let leaf = format!("leaf:{answer}");
        let path = values["path"].as_array().unwrap();
        assert_eq!(path[path.len() - 2..], [json!(leaf), json!("after")]);
    };
    answered(&asks, "A");
    answered(&forked, "B");
    answered(&copy, "C");
}

fn a_fork_between_two_stops_inside_goes_on_where_the_original_does(place: &Place) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let folder = tempfile::tempdir().unwrap();
    let run =
        |thread: &str, body: Value| client.run(thread, &with(body, "assistant_id", "stopover"));
    let trace = folder.path().join("trace");
    run(&thread, json!({"input": {"trace": trace}}));
    run(&thread, json!({"input": null}));
    run(&thread, json!({"command": {"resume": "tea"}}));
    let first = id_of(&fork(&client, &thread, &json!({})));
    let copy = copy_of(&client, &first);
    let expected = run(&thread, json!({"input": null}));
    assert!(expected["__error__"].is_null(), "{expected}");
    assert_eq!(client.state(&thread)["next"], json!([]));
    for other in [&first, &copy] {
        assert_eq!(run(other, json!({"input": null})), expected);
        assert_eq!(client.state(other)["next"], json!([]));
    }
}

fn what_was_stored_at_the_exit_of_a_run_is_kept_on_forks_and_branches(place: &Place) {
    let (_server, client, _) = asked_once(place);
    let thread = client.thread();
    let exit = json!({"durability": "exit"});
    turn(&client, &thread, &exit);
    answered(&client, &thread, "A0", &exit);
    let head = client.state(&thread)["checkpoint"]["checkpoint_id"].clone();
    let forked = id_of(&fork(&client, &thread, &json!({})));
    for (thread, answer, from) in [
        (&thread, "A", json!({})),
        (&thread, "B", json!({"checkpoint_id": head})),
        (&forked, "C", json!({})),
    ] {
        turn(&client, thread, &from);
        let kept = answered(&client, thread, answer, &json!({}));
        assert_eq!(kept, kept_with(answer));
    }
}
