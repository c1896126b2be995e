//! Commands: their replies, and what is refused.

use std::thread;

use serde_json::json;
use test_support::on_both_storages;
use test_support::place::{Place, serve};

use super::*;

on_both_storages!(
    messages_that_are_no_commands_are_refused,
    commands_that_cannot_be_carried_out_say_why,
    an_input_resumes_an_open_interrupt_and_starts_a_run_otherwise,
    of_two_responses_at_once_one_is_taken,
    several_interrupts_are_resumed_together,
    a_run_starts_from_a_checkpoint,
    messages_come_back_in_the_form_in_which_they_were_shown,
);

fn messages_that_are_no_commands_are_refused(place: &Place) {
    let (_server, client) = serve(place);
    let path = format!("/threads/{}/commands", client.thread());
    let none = "Protocol commands must include an integer id and string method.";
    for (text, id, message) in [
        (
            "not json",
            json!(null),
            "Protocol commands must be valid JSON.",
        ),
        ("", json!(null), "Protocol commands must be valid JSON."),
        ("[]", json!(null), none),
        ("{}", json!(null), none),
        (r#"{"id": 1}"#, json!(1), none),
        (r#"{"id": "x", "method": "run.start"}"#, json!("x"), none),
        (r#"{"id": 1.5, "method": "run.start"}"#, json!(1.5), none),
        (r#"{"id": [1], "method": "run.start"}"#, json!(null), none),
        (r#"{"id": 1, "method": 2}"#, json!(1), none),
    ] {
        let reply = client.post_text(&path, text);
        assert_eq!(reply.status, 400, "{text}");
        let expected =
            json!({"type": "error", "id": id, "error": "invalid_argument", "message": message});
        assert_eq!(reply.json(), expected, "{text}");
    }
    client
        .post("/threads/nope/commands", &json!({}))
        .refused(422);
}

fn commands_that_cannot_be_carried_out_say_why(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let missing = "1f1e52d3-b51d-655d-8000-078d7d9aa83f";
    for (method, params, code) in [
        ("bogus", json!({}), "unknown_command"),
        ("run.start", json!({}), "invalid_argument"),
        ("run.start", json!([]), "invalid_argument"),
        ("run.start", json!({"assistant_id": 1}), "invalid_argument"),
        (
            "run.start",
            json!({"assistant_id": "agent", "config": 1}),
            "invalid_argument",
        ),
        (
            "run.start",
            json!({"assistant_id": "agent", "multitaskStrategy": "x"}),
            "invalid_argument",
        ),
        (
            "run.start",
            json!({"assistant_id": "nope", "input": {}}),
            "unknown_error",
        ),
        (
            "run.start",
            json!({"assistant_id": "agent", "config": {"configurable": {"checkpoint_id": missing}}}),
            "no_such_checkpoint",
        ),
        ("input.respond", json!({}), "invalid_argument"),
        (
            "input.respond",
            json!({"responses": []}),
            "invalid_argument",
        ),
        (
            "input.respond",
            json!({"responses": [{"interrupt_id": "a", "response": 1}, {"interrupt_id": "a", "response": 2}]}),
            "invalid_argument",
        ),
        (
            "input.respond",
            json!({"interrupt_id": "a", "response": 1, "goto": 1}),
            "invalid_argument",
        ),
        (
            "input.respond",
            json!({"interrupt_id": "a", "response": 1}),
            "no_such_interrupt",
        ),
        ("agent.getTree", json!({}), "no_such_run"),
        (
            "subscription.subscribe",
            json!({"channels": ["values"]}),
            "not_supported",
        ),
        ("input.inject", json!({}), "not_supported"),
        ("state.get", json!({}), "not_supported"),
        ("state.listCheckpoints", json!({}), "not_supported"),
        ("state.fork", json!({}), "not_supported"),
    ] {
        assert_eq!(
            refused(&client, &thread, method, params.clone()),
            code,
            "{method} {params}"
        );
    }
    // Nothing was begun, also not on a thread that does not exist.
    let runs = client.get(&format!("/threads/{thread}/runs")).json();
    assert_eq!(runs, json!([]));
    let nowhere = new_thread();
    let params = json!({"interrupt_id": "a", "response": 1});
    assert_eq!(
        refused(&client, &nowhere, "input.respond", params),
        "no_such_interrupt"
    );
    client.get(&format!("/threads/{nowhere}")).refused(404);
}

fn an_input_resumes_an_open_interrupt_and_starts_a_run_otherwise(place: &Place) {
    let (_server, client) = serve(place);
    let thread = new_thread();
    start(&client, &thread, "approve", json!({"request": "pay"}));
    events(&client, &thread, &["lifecycle"], 1);
    start(&client, &thread, "approve", json!("fine"));
    events(&client, &thread, &["lifecycle"], 2);
    assert_eq!(client.state(&thread)["values"]["result"], "answer=fine");
    // Nothing waits now, so that this is an input like the first.
    start(&client, &thread, "approve", json!({"request": "more"}));
    events(&client, &thread, &["lifecycle"], 3);
    let state = client.state(&thread);
    assert_eq!(state["values"]["request"], "more");
    assert_eq!(state["next"], json!(["ask"]));
    // Without an input the run goes on where it waits, and waits there.
    let params = json!({"assistant_id": "approve"});
    command(&client, &thread, "run.start", params);
    let last = events(&client, &thread, &["lifecycle"], 4).pop().unwrap();
    assert_eq!(last["params"]["data"]["event"], "interrupted");
}

fn of_two_responses_at_once_one_is_taken(place: &Place) {
    let (_server, client) = serve(place);
    let thread = new_thread();
    start(&client, &thread, "approve", json!({"request": "pay"}));
    let requested = events(&client, &thread, &["input", "lifecycle"], 1);
    let id = requested[1]["params"]["data"]["interrupt_id"].clone();
    let replies: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let params = json!({"interrupt_id": id, "response": number});
                let (client, thread) = (&client, &thread);
                scope.spawn(move || command(client, thread, "input.respond", params))
            })
            .collect();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let taken: Vec<_> = (0..4)
        .filter(|at| replies[*at]["type"] == "success")
        .collect();
    assert_eq!(taken.len(), 1, "{replies:?}");
    for reply in replies.iter().filter(|reply| reply["type"] == "error") {
        assert_eq!(reply["error"], "no_such_interrupt", "{reply}");
    }
    events(&client, &thread, &["lifecycle"], 2);
    let state = client.state(&thread);
    assert_eq!(state["values"]["answer"], json!(taken[0]));
    let params = json!({"interrupt_id": id, "response": "late"});
    assert_eq!(
        refused(&client, &thread, "input.respond", params),
        "no_such_interrupt"
    );
}

fn several_interrupts_are_resumed_together(place: &Place) {
    let (_server, client) = serve(place);
    let thread = new_thread();
    start(&client, &thread, "approve_many", json!({"answers": []}));
    let requested = events(&client, &thread, &["input", "lifecycle"], 1);
    let requested = requested
        .iter()
        .filter(|one| one["method"] == "input.requested");
    let responses: Vec<_> = requested
        .map(|one| {
            let data = &one["params"]["data"];
            json!({"interrupt_id": data["interrupt_id"], "namespace": [], "response": data["payload"]})
        })
        .collect();
    assert_eq!(responses.len(), 2);
    let mut wrong = responses.clone();
    wrong.push(json!({"interrupt_id": "0".repeat(32), "response": 1}));
    let params = json!({"responses": wrong});
    assert_eq!(
        refused(&client, &thread, "input.respond", params),
        "no_such_interrupt"
    );
    command(
        &client,
        &thread,
        "input.respond",
        json!({"responses": responses}),
    );
    events(&client, &thread, &["lifecycle"], 2);
    let values = client.state(&thread)["values"].clone();
    assert_eq!(values["answers"], json!([["a", "A?"], ["b", "B?"]]));
}

fn a_run_starts_from_a_checkpoint(place: &Place) {
    let (_server, client) = serve(place);
    let thread = new_thread();
    start(&client, &thread, "counter", json!({"count": 1, "log": []}));
    let found = events(&client, &thread, &["checkpoints", "lifecycle"], 1);
    let first = found
        .iter()
        .find(|one| one["params"]["data"]["step"] == 1)
        .unwrap();
    let checkpoint = first["params"]["data"]["id"].clone();
    let params = json!({
        "assistant_id": "counter",
        "config": {"configurable": {"checkpoint_id": checkpoint, "thread_id": thread}},
    });
    let reply = command(&client, &thread, "run.start", params);
    assert_eq!(reply["type"], "success", "{reply}");
    let found = events(&client, &thread, &["values", "lifecycle"], 2);
    let again = found
        .iter()
        .rposition(|one| one["params"]["data"]["event"] == "running");
    let first = &found[again.unwrap() + 1]["params"]["data"];
    assert_eq!(*first, json!({"count": 2, "log": ["first"]}));
}

fn messages_come_back_in_the_form_in_which_they_were_shown(place: &Place) {
    let (_server, client) = serve(place);
    let thread = new_thread();
    let input = json!({"messages": [{"role": "user", "content": "tool: 2 3"}]});
    start(&client, &thread, "agent", input);
    let shown = events(&client, &thread, &["values", "lifecycle"], 1);
    let messages = shown[shown.len() - 2]["params"]["data"]["messages"].clone();
    assert_eq!(messages[1]["content"][0]["type"], "tool_call");
    let before = client.state(&thread)["values"].clone();
    // A client sends the conversation that it has: what is there is replaced by itself.
    let mut all = messages.as_array().unwrap().clone();
    all.push(json!({"role": "user", "content": "more"}));
    start(&client, &thread, "agent", json!({"messages": all}));
    events(&client, &thread, &["lifecycle"], 2);
    let after = client.state(&thread)["values"]["messages"].clone();
    assert_eq!(
        after.as_array().unwrap()[..4],
        before["messages"].as_array().unwrap()[..]
    );
}
