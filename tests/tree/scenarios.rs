//! The scenarios of plain runs, by number; every other room begins with its own.

use serde_json::{Value, json};

use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::Setup;
use test_support::talk::{code, contents, create, events, get, numbers, ok, read, say, user};

on_both_storages!(
    scenario_01_a_run_without_an_address_goes_on_from_the_latest_state,
    scenario_19_a_message_whose_worker_was_killed_is_answered_once_by_another,
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

/// The model has answered and the process dies before that is stored; another one takes the run
/// over. That a worker which only slept writes nothing more is shown where there are several of
/// them, in `replicas`, and row by row in `conformance`.
fn scenario_19_a_message_whose_worker_was_killed_is_answered_once_by_another(place: &Place) {
    let setup = Setup::example("faulty_server")
        .env("BACKSTITCH_LEASE", "1")
        .env("BACKSTITCH_RUN_AHEAD", "1");
    // Each superstep is written alone: the third commit is that of the answer.
    let mut server = place.start(setup.env("FAILPOINTS", "engine::before_commit=abort@3"));
    let client = Client::of(&server);
    let thread = create(&client, &json!({"metadata": {"graph_id": "talk"}}));
    let send = |client: &Client, text: &str| {
        let body = json!({"thread_id": thread, "content": text});
        let sent = ok(client.post("/commands/send-message", &body), 202);
        sent["run_id"].as_str().unwrap().to_owned()
    };
    let lost = send(&client, "hello");
    assert!(!server.wait().success(), "it was killed");
    server.restart_with("FAILPOINTS", "");
    let client = Client::of(&server);
    assert_eq!(client.end_of(&thread, &lost), "success");

    let page = read(&client, &thread, "");
    assert_eq!(
        contents(&page["messages"]),
        ["hello", "so: hello"],
        "one answer"
    );
    let all = events(&client, &thread, "limit=1000");
    assert_eq!(numbers(&all), (1..).take(all.len()).collect::<Vec<_>>());
    let told = |kind: &str| -> Vec<&Value> {
        let of_kind = all.iter().filter(|event| event["event_type"] == kind);
        of_kind.map(|event| &event["payload"]).collect()
    };
    let ends = told("RunFinished");
    assert_eq!(ends.len(), 1);
    assert_eq!(
        (&ends[0]["run_id"], &ends[0]["status"]),
        (&json!(lost), &json!("success"))
    );
    assert_eq!(told("LLMResponseGenerated").len(), 1);
    assert_eq!(told("RunStarted").len(), 2, "by one worker after the other");
    // One settled checkpoint, that of the answer.
    let messages = page["messages"].as_array().unwrap();
    let settled = |at: usize| &messages[at]["settled_checkpoint_id"];
    assert_eq!(*settled(1), page["checkpoint_id"]);
    assert_ne!(*settled(0), page["checkpoint_id"]);
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
