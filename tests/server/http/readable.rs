//! What one client gets wrong stays readable for all others, and what it got right is kept.

use super::*;
use test_support::on_both_storages;
use test_support::talk::{background, until};

on_both_storages!(
    an_input_that_a_channel_refuses_leaves_the_thread_readable,
    an_update_that_a_channel_refuses_is_not_kept,
    an_update_shows_on_the_row_and_begins_a_thread,
    large_floats_come_back_as_they_were_sent,
    cancelling_names_runs_or_a_status_not_both,
    an_answer_that_is_sent_twice_counts_once,
);

fn failed(client: &Client, thread: &str, body: &Value) {
    let answer = client.run(thread, body);
    assert!(answer.get("__error__").is_some(), "{answer}");
}

/// The row, the state, the history and the lists.
fn readable(client: &Client, thread: &str) -> Value {
    let row = client.get(&format!("/threads/{thread}"));
    assert_eq!(row.status, 200, "{}", row.text());
    for path in ["state", "history"] {
        let answer = client.get(&format!("/threads/{thread}/{path}"));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    let found = client.post("/threads/search", &json!({"ids": [thread]}));
    assert_eq!(found.status, 200, "{}", found.text());
    assert_eq!(found.json()[0]["thread_id"], thread);
    row.json()
}

fn an_input_that_a_channel_refuses_leaves_the_thread_readable(place: &Place) {
    let (_server, client) = serve(place);
    let unknown = json!({"type": "remove", "id": "nope", "content": ""});
    for (body, good) in [
        (
            json!({"assistant_id": "agent", "input": {"messages": [unknown]}}),
            json!({"assistant_id": "agent", "input": {"messages": "hello"}}),
        ),
        (
            json!({"assistant_id": "counter", "input": {"count": "x"}}),
            counter(),
        ),
    ] {
        let thread = client.thread();
        failed(&client, &thread, &body);
        assert_eq!(readable(&client, &thread)["status"], "error");
        let after = client.run(&thread, &good);
        assert!(after.get("__error__").is_none(), "{after}");
        assert_eq!(readable(&client, &thread)["values"], after);
    }
}

fn an_update_that_a_channel_refuses_is_not_kept(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let before = client.run(&thread, &counter());
    let update = json!({"assistant_id": "counter", "command": {"update": {"count": "x"}}});
    failed(&client, &thread, &update);
    assert_eq!(readable(&client, &thread)["values"], before);
    let after = client.run(&thread, &counter());
    assert!(after.get("__error__").is_none(), "{after}");
}

fn an_update_shows_on_the_row_and_begins_a_thread(place: &Place) {
    let (_server, client) = serve(place);
    let update = json!({"assistant_id": "counter", "command": {"update": {"count": 5}}});
    let thread = client.thread();
    let before = client.run(&thread, &counter())["count"].as_i64().unwrap();
    client.run(&thread, &update);
    let state = client.state(&thread);
    assert_eq!(state["values"]["count"], before + 5);
    assert_eq!(readable(&client, &thread)["values"], state["values"]);

    let fresh = client.thread();
    let values = client.run(&fresh, &update);
    assert_eq!(values["count"], before + 5);
    assert_eq!(readable(&client, &fresh)["values"], values);
    assert_eq!(
        client.history(&fresh).last().unwrap()["metadata"]["source"],
        "input"
    );
}

fn large_floats_come_back_as_they_were_sent(place: &Place) {
    let (_server, client) = serve(place);
    let body = r#"{"metadata":{"a":1e22,"b":1e16,"c":-1.5e300,"d":2.5e-7,"e":"1e9"}}"#;
    let made = client.post_text("/threads", body);
    assert_eq!(made.status, 200, "{}", made.text());
    let thread = made.json()["thread_id"].as_str().unwrap().to_owned();
    let row = readable(&client, &thread);
    let sent: Value = serde_json::from_str(body).unwrap();
    assert_eq!(row["metadata"], sent["metadata"]);
    let run = with(counter(), "metadata", json!({"z": 1e25}));
    client.run(&thread, &run);
    assert_eq!(client.state(&thread)["metadata"]["z"], json!(1e25));
    readable(&client, &thread);
}

fn cancelling_names_runs_or_a_status_not_both(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let run = background(&client, &thread, &slow(30, 400));
    until("it works", || {
        client.state(&thread)["next"] == json!(["work"])
    });
    let one = json!({"thread_id": thread, "run_ids": [run]});
    let both = with(one.clone(), "status", "all");
    assert!(
        client
            .post("/runs/cancel", &both)
            .refused(422)
            .contains("not both")
    );
    assert_eq!(readable(&client, &thread)["status"], "busy");
    assert_eq!(client.post("/runs/cancel", &one).status, 204);
    assert_eq!(client.end_of(&thread, &run), "interrupted");
}

fn an_answer_that_is_sent_twice_counts_once(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let asks = json!({"assistant_id": "approve", "input": {"request": "r"}});
    let asked = client.run(&thread, &asks);
    let id = asked["__interrupt__"][0]["id"].as_str().unwrap();
    let answer = json!({"assistant_id": "approve", "command": {"resume": {id: "yes"}}});
    let first = client.run(&thread, &answer);
    assert_eq!(client.run(&thread, &answer), first);
    assert_eq!(readable(&client, &thread)["status"], "idle");

    // Where something else is asked, an answer to nothing is a mistake, and the question stays.
    client.run(&thread, &asks);
    failed(&client, &thread, &answer);
    let again = client.state(&thread);
    let open = again["interrupts"][0]["id"].as_str().unwrap();
    let answer = json!({"assistant_id": "approve", "command": {"resume": {open: "yes"}}});
    client.run(&thread, &answer);
    assert_eq!(readable(&client, &thread)["status"], "idle");
}
