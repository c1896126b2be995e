//! Graphs that a function makes for the config of a run (`talk` in `tests/server/own_server.rs`).

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::{
    client::Client,
    on_both_storages,
    place::Place,
    server::{Server, Setup},
    talk::background,
};

on_both_storages!(
    each_config_has_its_graph_and_a_thread_is_read_and_edited_with_that_of_its_last_run,
    a_graph_that_cannot_be_made_ends_its_run_as_an_error_and_leaves_its_thread_readable,
    a_graph_is_made_within_the_time_of_the_setting_or_not_at_all,
    a_run_that_was_cancelled_before_it_began_does_not_change_the_graph_of_its_thread,
    schemas_and_drawings_are_those_of_the_config_of_the_assistant,
);

fn setup() -> Setup {
    Setup::example("own_server").env("OPEN", "1")
}

fn run(language: Option<&str>, more: &[(&str, Value)]) -> Value {
    let mut body = json!({"assistant_id": "talk", "input": {}});
    if let Some(language) = language {
        body["context"] = json!({"language": language});
    }
    for (key, value) in more {
        body[*key] = value.clone();
    }
    body
}

fn wait(client: &Client, thread: &str, body: &Value) -> Value {
    let answer = client.post(&format!("/threads/{thread}/runs/wait"), body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn state(client: &Client, thread: &str) -> Value {
    client.get(&format!("/threads/{thread}/state")).json()
}

fn times(server: &Server, language: &str) -> usize {
    let line = format!("made {language}");
    server.output().lines().filter(|one| *one == line).count()
}

fn each_config_has_its_graph_and_a_thread_is_read_and_edited_with_that_of_its_last_run(
    place: &Place,
) {
    let mut server = place.start(setup());
    let client = Client::of(&server);
    let (english, french) = (client.thread(), client.thread());
    let said = |values: Value| values["said"].clone();
    let last = wait(&client, &english, &run(None, &[]));
    assert_eq!(said(last), json!(["Hello", "."]));
    let stops = [("interrupt_before", json!(["fin"]))];
    wait(&client, &french, &run(Some("fr"), &stops));
    for _ in 0..2 {
        let thread = client.thread();
        let last = wait(&client, &thread, &run(Some("fr"), &[]));
        assert_eq!(said(last), json!(["Bonjour", "."]));
    }
    assert_eq!(times(&server, "fr"), 1, "configs of one key have one graph");

    // A process that has made nothing yet reads the thread with the same graph.
    for restarts in [false, true] {
        if restarts {
            server.restart();
        }
        let client = Client::of(&server);
        assert_eq!(
            state(&client, &french)["next"],
            json!(["fin"]),
            "{restarts}"
        );
        let shown = client.get(&format!("/threads/{french}")).json();
        assert_eq!(shown["status"], "interrupted");
        let history = client.get(&format!("/threads/{french}/history")).json();
        assert_eq!(history[0]["next"], json!(["fin"]));
    }
    let client = Client::of(&server);
    let path = format!("/threads/{french}/state");
    let foreign = client.post(
        &path,
        &json!({"values": {"said": ["x"]}, "as_node": "hello"}),
    );
    assert!(foreign.status >= 400, "{}", foreign.text());
    let own = client.post(
        &path,
        &json!({"values": {"said": ["Salut"]}, "as_node": "bonjour"}),
    );
    assert_eq!(own.status, 200, "{}", own.text());
    assert_eq!(state(&client, &french)["next"], json!(["fin"]));
    let goes_on = run(Some("fr"), &[("input", Value::Null)]);
    let last = wait(&client, &french, &goes_on);
    assert_eq!(said(last), json!(["Bonjour", "Salut", "."]));
}

fn a_graph_that_cannot_be_made_ends_its_run_as_an_error_and_leaves_its_thread_readable(
    place: &Place,
) {
    let server = place.start(setup().env("BACKSTITCH_GRAPH_TIMEOUT", "1"));
    let client = Client::of(&server);
    for (language, reason) in [
        ("fails", "there is no such dictionary"),
        ("panics", "panicked"),
        ("hangs", "BACKSTITCH_GRAPH_TIMEOUT"),
        ("other", "same state"),
    ] {
        let thread = client.thread();
        wait(&client, &thread, &run(None, &[]));
        let ended = wait(&client, &thread, &run(Some(language), &[]));
        let error = &ended["__error__"];
        assert_eq!(error["error"], "GraphFactoryError", "{language}: {ended}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(reason) && !message.contains("secret"),
            "{message}"
        );
        let runs = client.get(&format!("/threads/{thread}/runs")).json();
        assert_eq!(runs[0]["status"], "error");
        assert_eq!(
            client.get(&format!("/threads/{thread}")).json()["status"],
            "error"
        );
        assert_eq!(
            state(&client, &thread)["values"]["said"],
            json!(["Hello", "."])
        );
        let edit = json!({"values": {"said": ["x"]}});
        let refused = client
            .post(&format!("/threads/{thread}/state"), &edit)
            .refused(400);
        assert!(refused.contains(reason), "{refused}");
        let last = wait(&client, &thread, &run(Some("fr"), &[]));
        assert_eq!(last["said"], json!(["Hello", ".", "Bonjour", "."]));
    }
}

fn a_graph_is_made_within_the_time_of_the_setting_or_not_at_all(place: &Place) {
    let mut server = place.start(setup());
    for (limit, made) in [("1", "after 300"), ("2", "after 1300")] {
        server.restart_with("BACKSTITCH_GRAPH_TIMEOUT", limit);
        let client = Client::of(&server);
        let said = wait(&client, &client.thread(), &run(Some(made), &[]));
        assert_eq!(
            said["said"],
            json!(["Hello", "."]),
            "{made} ms of {limit} s"
        );
        let begin = Instant::now();
        // One that comes after the limit would be made all the same where nobody looks in between.
        let ended = wait(&client, &client.thread(), &run(Some("hangs"), &[]));
        let took = begin.elapsed();
        let message = ended["__error__"]["message"].as_str().unwrap();
        assert!(message.contains("BACKSTITCH_GRAPH_TIMEOUT"), "{message}");
        let limit = Duration::from_secs(limit.parse().unwrap());
        assert!(
            took >= limit && took < limit + Duration::from_secs(5),
            "{took:?}"
        );
    }
}

fn a_run_that_was_cancelled_before_it_began_does_not_change_the_graph_of_its_thread(place: &Place) {
    let server = place.start(setup());
    let client = Client::of(&server);
    let thread = client.thread();
    let stops = [("interrupt_before", json!(["end"]))];
    wait(&client, &thread, &run(None, &stops));
    // More of them than are read at first.
    for _ in 0..12 {
        let later = run(Some("fr"), &[("after_seconds", json!(3600))]);
        let later = background(&client, &thread, &later);
        let cancel = format!("/threads/{thread}/runs/{later}/cancel?wait=true");
        assert_eq!(client.send("POST", &cancel, &[], b"").status, 200);
        assert_eq!(client.end_of(&thread, &later), "interrupted");
        assert_eq!(state(&client, &thread)["next"], json!(["end"]));
    }
    let path = format!("/threads/{thread}/state");
    for (node, status) in [("bonjour", 400), ("hello", 200)] {
        let edit = json!({"values": {"said": ["x"]}, "as_node": node});
        let answer = client.post(&path, &edit);
        assert_eq!(answer.status, status, "{node}: {}", answer.text());
    }
}

fn schemas_and_drawings_are_those_of_the_config_of_the_assistant(place: &Place) {
    let server = place.start(setup());
    let client = Client::of(&server);
    let create = |language: &str| {
        let body = json!({"graph_id": "talk", "context": {"language": language}});
        let made = client.post("/assistants", &body).json();
        made["assistant_id"].as_str().unwrap().to_owned()
    };
    let nodes = |id: &str| {
        client
            .get(&format!("/assistants/{id}/graph"))
            .text()
            .to_owned()
    };
    assert!(nodes("talk").contains("hello"));
    let french = create("fr");
    assert!(nodes(&french).contains("bonjour") && !nodes(&french).contains("hello"));
    let refused = client
        .get(&format!("/assistants/{}/schemas", create("fails")))
        .refused(400);
    assert!(refused.contains("there is no such dictionary"), "{refused}");
    // Runs of the assistant have its config.
    let body = json!({"assistant_id": french, "input": {}});
    let last = wait(&client, &client.thread(), &body);
    assert_eq!(last["said"], json!(["Bonjour", "."]));
}

#[test]
fn a_server_whose_default_graph_cannot_be_made_does_not_start() {
    let config = json!({"talk": {"context": {"language": "fails"}}});
    let (status, output) = setup()
        .env("LANGGRAPH_CONFIG", config.to_string())
        .refused();
    assert_eq!(status.code(), Some(1));
    assert!(
        output.contains("`talk`") && output.contains("no such dictionary"),
        "{output}"
    );
}
