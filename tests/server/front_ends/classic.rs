//! Clients of runs and their streams: the hook of the JavaScript SDK, agent-chat-ui, assistant-ui.

use serde_json::{Value, json};
use test_support::client::{Client, Event};
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::talk::{create, ok, until, with};

use super::{contents, data, human, open, rest};

on_both_storages!(
    agent_chat_ui_finds_threads_and_shows_edits_and_resumes_them,
    the_hook_stops_a_run_and_comes_back_to_another_after_a_reload,
    assistant_ui_shows_messages_as_they_grow_and_cancels_by_leaving,
);

/// What the hook sends with every run of a page that comes back after a reload.
fn run(graph: &str, input: Option<Value>) -> Value {
    let mut body = json!({
        "assistant_id": graph, "stream_mode": ["messages-tuple", "values"],
        "stream_resumable": true, "on_disconnect": "continue",
    });
    if let Some(input) = input {
        body["input"] = input;
    }
    body
}

fn stream(client: &Client, thread: &str, body: &Value) -> Vec<Event> {
    rest(open(
        client,
        "POST",
        &format!("/threads/{thread}/runs/stream"),
        body,
    ))
}

fn history(client: &Client, thread: &str) -> Vec<Value> {
    let path = format!("/threads/{thread}/history");
    let states = ok(client.post(&path, &json!({"limit": 100})), 200);
    states.as_array().unwrap().clone()
}

/// The state in which a message was there first, as the hook finds it.
fn first_with(history: &[Value], text: &str) -> Value {
    let has = |state: &&Value| {
        let messages = state["values"]["messages"].as_array();
        messages.is_some_and(|all| all.iter().any(|message| message["content"] == text))
    };
    history.iter().rfind(has).unwrap().clone()
}

/// A checkpoint as the hook sends it back: without its thread.
fn address(checkpoint: &Value) -> Value {
    let mut checkpoint = checkpoint.clone();
    checkpoint.as_object_mut().unwrap().remove("thread_id");
    checkpoint
}

fn agent_chat_ui_finds_threads_and_shows_edits_and_resumes_them(place: &Place) {
    let (_server, client) = serve(place);
    ok(client.get("/info"), 200);
    let thread = create(&client, &json!({"metadata": {}}));

    let path = format!("/threads/{thread}/runs/stream");
    let first = open(&client, "POST", &path, &run("agent", Some(human("one"))));
    let address_of_run = format!("/threads/{thread}/runs/{}", first.run());
    assert_eq!(first.header("content-location"), Some(&*address_of_run));
    let stream_of_run = format!("{address_of_run}/stream");
    assert_eq!(first.header("location"), Some(&*stream_of_run));
    let exposed = first.header("access-control-expose-headers").unwrap();
    let exposed = exposed.to_lowercase();
    let exposed: Vec<_> = exposed.split(',').map(str::trim).collect();
    assert!(exposed.contains(&"location") && exposed.contains(&"content-location"));
    let events = rest(first);
    for message in data(&events, "messages") {
        assert_eq!(message[1]["langgraph_node"], "model");
        assert!(message[1]["langgraph_checkpoint_ns"].is_string());
    }
    let last = data(&events, "values")[1..].last().copied().unwrap();
    assert_eq!(contents(last), ["one", "echo: one"]);
    // By the graph's name, and by the id of its assistant.
    let row = ok(client.get(&format!("/threads/{thread}")), 200);
    for key in ["graph_id", "assistant_id"] {
        let wanted = json!({"metadata": {key: row["metadata"][key]}, "limit": 100});
        let found = ok(client.post("/threads/search", &wanted), 200);
        assert_eq!(found[0]["thread_id"], thread, "{key}");
    }

    // The page edits the message: from the checkpoint before it.
    let before = history(&client, &thread);
    let origin = first_with(&before, "one");
    let parent = address(&origin["parent_checkpoint"]);
    let edit = with(run("agent", Some(human("two"))), "checkpoint", parent);
    stream(&client, &thread, &edit);
    let after = history(&client, &thread);
    assert_eq!(contents(&after[0]["values"]), ["two", "echo: two"]);
    // Both versions are in the history, below one parent.
    let edited = first_with(&after, "two");
    assert_ne!(edited["checkpoint"], origin["checkpoint"]);
    assert_eq!(
        first_with(&after, "one")["checkpoint"],
        origin["checkpoint"]
    );
    let siblings = after
        .iter()
        .filter(|state| state["parent_checkpoint"] == origin["parent_checkpoint"]);
    assert_eq!(siblings.count(), 2);
    // The next turn goes on from what the page shows, here the first version.
    let shown = before[0]["checkpoint"].clone();
    let next = with(
        run("agent", Some(human("three"))),
        "checkpoint",
        address(&shown),
    );
    let events = stream(&client, &thread, &next);
    let last = data(&events, "values").last().copied().unwrap();
    assert_eq!(contents(last), ["one", "echo: one", "three", "echo: three"]);
    // A reply is made anew from the checkpoint before it, without an input.
    let reply = first_with(&history(&client, &thread), "echo: three");
    let parent = address(&reply["parent_checkpoint"]);
    let events = stream(
        &client,
        &thread,
        &with(run("agent", None), "checkpoint", parent),
    );
    let last = data(&events, "values").last().copied().unwrap();
    assert_eq!(contents(last), ["one", "echo: one", "three", "echo: three"]);
}

fn the_hook_stops_a_run_and_comes_back_to_another_after_a_reload(place: &Place) {
    let (_server, client) = serve(place);
    let thread = create(&client, &json!({"metadata": {}}));
    let path = format!("/threads/{thread}/runs/stream");
    let slow = |ms| run("slow", Some(json!({"ms": ms, "ticks": 4})));
    let stopped = open(&client, "POST", &path, &slow(60_000));
    let of_run = format!("/threads/{thread}/runs/{}", stopped.run());
    drop(stopped);
    // The page has left, and its run goes on until it says otherwise.
    let path_of_cancel = format!("{of_run}/cancel?wait=0&action=interrupt");
    ok(client.post_text(&path_of_cancel, ""), 202);
    until("the run is interrupted", || {
        ok(client.get(&of_run), 200)["status"] == "interrupted"
    });

    let thread = create(&client, &json!({"metadata": {}}));
    let path = format!("/threads/{thread}/runs/stream");
    let mut left = open(&client, "POST", &path, &slow(100));
    let first = left.event().unwrap();
    let of_run = format!("/threads/{thread}/runs/{}", left.run());
    drop(left);
    let rejoin = format!("{of_run}/stream?cancel_on_disconnect=0");
    let again = client.open("GET", &rejoin, &[("last-event-id", "-1")], b"");
    let events = rest(again);
    assert_eq!(events[0], first);
    assert_eq!(ok(client.get(&of_run), 200)["status"], "success");
    let state = history(&client, &thread).remove(0);
    assert_eq!(data(&events, "values").last(), Some(&&state["values"]));
}

fn assistant_ui_shows_messages_as_they_grow_and_cancels_by_leaving(place: &Place) {
    let (_server, client) = serve(place);
    let thread = create(&client, &json!({}));
    let body = |graph: &str, input: Value| {
        json!({
            "assistant_id": graph, "input": input, "stream_mode": ["messages", "updates", "custom"],
            "on_disconnect": "cancel",
        })
    };
    let events = stream(&client, &thread, &body("agent", human("one two")));
    let partial = data(&events, "messages/partial");
    let grown: Vec<_> = partial
        .iter()
        .map(|list| list[0]["content"].as_str().unwrap())
        .collect();
    assert!(grown.is_sorted_by(|a, b| b.starts_with(a)), "{grown:?}");
    assert_eq!(grown.last(), Some(&"echo: one two"));

    // What is asked of a person is in the first task of the state.
    let thread = create(&client, &json!({}));
    stream(
        &client,
        &thread,
        &body("approve", json!({"request": "pay"})),
    );
    let state = client.state(&thread);
    let interrupt = &state["tasks"][0]["interrupts"][0];
    assert_eq!(interrupt["value"]["question"], "approve?");
    let resume = json!({
        "assistant_id": "approve", "command": {"resume": "yes"}, "stream_mode": ["messages", "updates"],
        "on_disconnect": "cancel",
    });
    stream(&client, &thread, &resume);
    assert_eq!(client.state(&thread)["values"]["result"], "answer=yes");

    // A prefix that a proxy puts before the path is the proxy's: addresses are relative to the host.
    let thread = create(&client, &json!({}));
    let path = format!("/threads/{thread}/runs/stream");
    let slow = body("slow", json!({"ms": 60_000, "ticks": 1}));
    let left = open(&client, "POST", &path, &slow);
    assert!(left.header("location").unwrap().starts_with("/threads/"));
    let run = left.run();
    drop(left);
    assert_eq!(client.end_of(&thread, &run), "interrupted");
}
