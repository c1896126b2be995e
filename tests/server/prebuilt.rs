//! The examples made of prebuilt agents, as clients meet them: approvals over HTTP, workers, hand-offs.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use test_support::{client::Client, programs, server::Setup};

fn human(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

fn texts(values: &Value) -> Vec<&str> {
    let messages = values["messages"].as_array().unwrap();
    messages
        .iter()
        .map(|m| m["content"].as_str().unwrap())
        .collect()
}

#[test]
fn a_server_with_tool_approval_and_structured_response_is_25_lines() {
    let program = programs::repository().join("examples/tables.rs");
    let lines = std::fs::read_to_string(program).unwrap().lines().count();
    assert!(lines <= 25, "{lines}");

    let server = Setup::example("tables").start();
    let client = Client::of(&server);
    let thread = client.thread();
    let run = |body: &Value| client.run(&thread, body);
    let asked = run(&json!({"assistant_id": "tables", "input": human("A table for 4")}));
    let request = &asked["__interrupt__"][0]["value"];
    let table = json!({"restaurant": "Engen", "guests": 4});
    assert_eq!(request["action_requests"][0]["name"], "book", "{asked}");
    assert_eq!(request["action_requests"][0]["args"], table);
    assert_eq!(
        request["review_configs"][0],
        json!({"action_name": "book", "allowed_decisions": ["approve", "edit", "reject", "respond"]})
    );
    let decide = |decisions: Value| json!({"assistant_id": "tables", "command": {"resume": {"decisions": decisions}}});
    // A decision that does not fit fails its run and leaves the interrupt open.
    let path = format!("/threads/{thread}/runs/wait");
    let refused = client.post(&path, &decide(json!([]))).json();
    assert!(
        refused.to_string().contains("1 tool calls wait"),
        "{refused}"
    );
    let done = run(&decide(json!([{"type": "approve"}])));
    assert_eq!(done["structured_response"], table, "{done}");
    assert!(
        texts(&done).contains(&"A table for 4 at Engen is booked."),
        "{done}"
    );
}

#[test]
fn a_supervisor_reads_what_its_workers_reply() {
    let server = Setup::example("supervisor").start();
    let client = Client::of(&server);
    let body =
        json!({"assistant_id": "team", "input": human("What do 12 tickets to Bergen cost?")});
    let done = client.run(&client.thread(), &body);
    let expected = [
        "What do 12 tickets to Bergen cost?",
        "",
        "A ticket costs 349 kr.",
        "",
        "12 times 349 is 4188.",
        "12 tickets to Bergen cost 4188 kr.",
    ];
    assert_eq!(texts(&done), expected);
}

#[test]
fn agents_of_a_swarm_hand_over_and_the_last_one_goes_on() {
    let server = Setup::example("swarm").start();
    let client = Client::of(&server);
    let thread = client.thread();
    let say = |text: &str| {
        client.run(
            &thread,
            &json!({"assistant_id": "desk", "input": human(text)}),
        )
    };
    let done = say("My lamp is broken");
    let expected = [
        "My lamp is broken",
        "",
        "support takes over.",
        "",
        "a repair of the lamp is ordered",
        "Fine: a repair of the lamp is ordered.",
    ];
    assert_eq!(texts(&done), expected);
    let done = say("Thanks");
    assert_eq!(done["messages"][7]["name"], "support", "{done}");
    let done = say("I want to buy another");
    let last = done["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last["name"], "sales", "{done}");
}

#[test]
fn the_pieces_of_a_reply_make_the_message_that_is_stored() {
    let server = Setup::example("reference_server").start();
    let client = Client::of(&server);
    let thread = client.thread();
    let body = json!({
        "assistant_id": "agent", "input": human("hello"), "stream_mode": ["messages-tuple"],
    });
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    for event in client.stream(&thread, &body) {
        if event.name == "messages" && event.data[0]["type"] == "AIMessageChunk" {
            let id = event.data[0]["id"].as_str().unwrap().to_owned();
            *shown.entry(id).or_default() += event.data[0]["content"].as_str().unwrap();
        }
    }
    let state = client.state(&thread);
    let messages = state["values"]["messages"].as_array().unwrap().iter();
    let replies = messages.filter(|message| message["type"] == "ai");
    let text = |message: &Value, key: &str| message[key].as_str().unwrap().to_owned();
    let stored: BTreeMap<_, _> = replies
        .map(|message| (text(message, "id"), text(message, "content")))
        .collect();
    assert!(!shown.is_empty());
    assert_eq!(shown, stored);
}

#[test]
fn an_agent_recalls_in_another_conversation_what_it_was_told() {
    let output = std::process::Command::new(programs::example("memory_agent"))
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    let (first, second) = shown.split_once("another conversation").unwrap();
    assert_eq!(first.matches("tool: Remembered as").count(), 3, "{shown}");
    // One fact, by its topic: the name in the question is in two of them.
    let recalled = second.lines().filter(|line| line.contains("tool: "));
    let recalled: Vec<_> = recalled.collect();
    assert!(
        recalled.len() == 1 && recalled[0].ends_with("Ada drinks tea with lemon."),
        "{shown}"
    );
}
