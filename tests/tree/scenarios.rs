//! The scenarios of plain runs, by number; every other room begins with its own.

use serde_json::{Value, json};

use crate::on_both_storages;
use crate::support;
use crate::support::client::Client;
use crate::support::place::{Place, serve};
use crate::support::server::Setup;
use crate::support::talk::{
    code, contents, create, events, get, numbers, ok, path, read, say, until, user,
};

on_both_storages!(
    scenario_01_a_run_without_an_address_goes_on_from_the_latest_state,
    scenario_19_a_message_whose_worker_was_killed_ends_once_and_the_next_is_answered,
);

fn scenario_01_a_run_without_an_address_goes_on_from_the_latest_state(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    assert_eq!(client.state(&thread)["values"], json!({}));
    assert_eq!(client.state(&thread)["checkpoint"], Value::Null);
    say(&client, &thread, "Hello");
    let second = say(&client, &thread, "How are you?");
    assert_eq!(
        contents(&second["messages"]),
        ["Hello", "echo: Hello", "How are you?", "echo: How are you?"]
    );
    let state = client.state(&thread);
    assert_eq!(state["values"], second);
    // The second run was given its own message and nothing else.
    let runs = get(&client, &thread, "runs");
    assert_eq!(runs.as_array().unwrap().len(), 2);
    let given = &runs[0]["kwargs"]["input"]["messages"];
    assert_eq!(contents(given), ["How are you?"]);
    let history = client.history(&thread);
    let newest = history
        .iter()
        .map(|state| &state["checkpoint"]["checkpoint_id"]);
    let newest = newest.max_by_key(|id| id.as_str().unwrap()).unwrap();
    assert_eq!(state["checkpoint"]["checkpoint_id"], *newest);
    let head = get(&client, &thread, "head");
    assert_eq!(head["latest_checkpoint_id"], *newest);
}

/// No other worker takes up the run of one that died: it ends as `error`, once, its message
/// stays without an answer, and the next run answers both. That a worker which only slept writes
/// nothing more is shown where there are several of them, in `replicas`.
fn scenario_19_a_message_whose_worker_was_killed_ends_once_and_the_next_is_answered(place: &Place) {
    let mut server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let thread = create(&client, &json!({"metadata": {"graph_id": "talk"}}));
    let send = |client: &Client, text: &str| {
        let body = json!({"thread_id": thread, "content": text});
        let sent = ok(client.post("/commands/send-message", &body), 202);
        sent["run_id"].as_str().unwrap().to_owned()
    };
    let lost = send(&client, "wait");
    until("the message is in the state", || {
        path(&client, &thread, "").len() == 1
    });
    server.kill();
    server.restart();
    let client = Client::of(&server);
    assert_eq!(client.end_of(&thread, &lost), "error");
    let next = send(&client, "hello");
    assert_eq!(client.end_of(&thread, &next), "success");

    let page = read(&client, &thread, "");
    assert_eq!(
        contents(&page["messages"]),
        ["wait", "hello", "so: hello"],
        "one answer"
    );
    let all = events(&client, &thread, "limit=1000");
    assert_eq!(numbers(&all), (1..).take(all.len()).collect::<Vec<_>>());
    let told = |kind: &str| -> Vec<&Value> {
        let of_kind = all.iter().filter(|event| event["event_type"] == kind);
        of_kind.map(|event| &event["payload"]).collect()
    };
    let ends: Vec<_> = told("RunFinished")
        .iter()
        .map(|end| {
            (
                end["run_id"].as_str().unwrap(),
                end["status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(ends, [(&*lost, "error"), (&*next, "success")]);
    assert_eq!(told("LLMResponseGenerated").len(), 1);
    // The checkpoint of the answer is settled, and settles nothing else.
    let settled: Vec<_> = page["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| &message["settled_checkpoint_id"])
        .collect();
    assert_eq!(*settled[2], page["checkpoint_id"]);
    assert!(settled[..2].iter().all(|id| **id != page["checkpoint_id"]));
    let made = told("CheckpointCreated");
    let of_answer = made
        .iter()
        .filter(|made| made["checkpoint_id"] == page["checkpoint_id"]);
    assert_eq!(of_answer.count(), 1);

    let refused = |thread: &str, message: Value| {
        let mut body = message;
        body["thread_id"] = json!(thread);
        client.post("/commands/send-message", &body)
    };
    let unknown = uuid::Uuid::now_v7().to_string();
    assert_eq!(code(refused(&unknown, user("x")), 404), "thread_not_found");
    assert_eq!(code(refused(&thread, user(" ")), 400), "blank_message");
    assert_eq!(events(&client, &thread, "limit=1000"), all);
}
