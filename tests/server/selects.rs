//! `select` of lists: what is not selected is not even read, so that it can be left out where it is too large or
//! cannot be read.

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::{Server, Setup};
use test_support::tables::execute;
use test_support::talk::{agent_thread, extend, ok, patch, say};

on_both_storages!(
    what_is_not_selected_of_threads_is_not_read,
    threads_show_their_values_without_their_metadata,
    interrupts_are_those_of_the_whole_thread_and_are_shown_without_its_state,
    what_is_not_selected_of_assistants_is_not_read,
    an_assistant_that_is_too_large_is_shown_without_its_large_fields,
    what_is_not_selected_of_crons_is_not_read,
    a_cron_that_is_too_large_is_shown_without_its_payload,
    metadata_of_runs_is_read_without_their_large_requests,
    a_run_that_is_too_large_is_shown_with_its_metadata,
);

/// What a search selects, once it was found that it can be read or not.
fn search(client: &Client, path: &str, select: &[&str]) -> Option<Value> {
    let answer = client.post(path, &json!({"select": select}));
    if answer.status == 500 {
        return None;
    }
    Some(ok(answer, 200)[0].clone())
}

fn what_is_not_selected_of_threads_is_not_read(place: &Place) {
    let (server, client) = serve(place);
    let new = json!({"metadata": {"m": 1}});
    let thread = ok(client.post("/threads", &new), 200)["thread_id"].clone();
    let threads = |select: &[&str]| search(&client, "/threads/search", select);
    let rest = ["thread_id", "status", "error", "interrupts"];
    // No thread has such a config, and none can be read that has.
    execute(place, &server, "UPDATE threads SET config = '[]'").unwrap();
    assert_eq!(threads(&["config"]), None);
    assert_eq!(threads(&["metadata"]), Some(json!({"metadata": {"m": 1}})));
    assert_eq!(
        threads(&rest),
        Some(json!({"thread_id": thread, "status": "idle"}))
    );
    if !place.is_postgres() {
        execute(place, &server, "UPDATE threads SET metadata = '[]'").unwrap();
        assert_eq!(threads(&["metadata"]), None);
        assert_eq!(
            threads(&rest),
            Some(json!({"thread_id": thread, "status": "idle"}))
        );
    }
}

fn threads_show_their_values_without_their_metadata(place: &Place) {
    let (_server, client) = serve(place);
    let thread = agent_thread(&client);
    say(&client, &thread, "hi");
    let whole = ok(client.post("/threads/search", &json!({})), 200)[0].clone();
    assert_eq!(whole["values"]["messages"].as_array().unwrap().len(), 2);
    for select in [
        vec!["values"],
        vec!["interrupts"],
        vec!["config", "error"],
        vec!["metadata", "updated_at"],
    ] {
        let found = search(&client, "/threads/search", &select).unwrap();
        assert_eq!(found.as_object().unwrap().len(), select.len());
        for name in select {
            assert_eq!(found[name], whole[name], "{name}");
        }
    }
    let extract = json!({
        "select": ["thread_id"], "extract": {"graph": "metadata.graph_id", "last": "values.messages[-1].type"},
    });
    let found = ok(client.post("/threads/search", &extract), 200)[0].clone();
    assert_eq!(
        found["extracted"],
        json!({"graph": "agent", "last": "ai"}),
        "what is extracted is read"
    );
    // By values, of which the name of the graph decides how they are read.
    let by_values =
        json!({"values": {"messages": whole["values"]["messages"]}, "select": ["thread_id"]});
    let found = ok(client.post("/threads/search", &by_values), 200);
    assert_eq!(found, json!([{"thread_id": thread}]));
}

/// Each thread has as many interrupts as it has questions, also after some of them were answered.
fn interrupts_are_those_of_the_whole_thread_and_are_shown_without_its_state(place: &Place) {
    let server = place.start(Setup::example("faulty_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let runs = format!("/threads/{thread}/runs/wait");
    let run = |more: Value| {
        let body = json!({"assistant_id": "rescued"});
        ok(client.post(&runs, &extend(body, more)), 200)
    };
    let selected = || search(&client, "/threads/search", &["interrupts"]);
    let whole = || ok(client.post("/threads/search", &json!({})), 200)[0].clone();
    let check = |open: usize| {
        let interrupts = whole()["interrupts"].clone();
        assert_eq!(interrupts.as_object().unwrap().len(), open);
        assert_eq!(selected(), Some(json!({"interrupts": interrupts})));
        interrupts
    };
    run(json!({"input": {"text": "x".repeat(100_000)}}));
    let questions = check(2);
    let of = |question: &str| {
        let mut all = questions.as_object().unwrap().values();
        let found = all.find(|one| one[0]["value"] == question).unwrap();
        found[0]["id"].as_str().unwrap().to_owned()
    };
    // An answer to the error handler leaves the question of the other task, and a second one nothing.
    run(json!({"command": {"resume": {of("once more?"): "yes"}}}));
    assert_eq!(
        check(1),
        json!({questions.as_object().unwrap().iter()
        .find(|(_, one)| one[0]["value"] == "and then?").unwrap().0: [{"id": of("and then?"), "value": "and then?"}]})
    );

    // What is stored of the values cannot be read, and is not.
    let unreadable = if place.is_postgres() {
        "'\\xff'"
    } else {
        "x'ff'"
    };
    let blobs = format!("UPDATE checkpoint_blobs SET blob = {unreadable}");
    let results = format!("UPDATE checkpoint_writes SET writes = {unreadable} WHERE idx = 0");
    assert!(execute(place, &server, &blobs).unwrap() > 0);
    assert!(execute(place, &server, &results).unwrap() > 0);
    assert_eq!(search(&client, "/threads/search", &["values"]), None);
    let left = selected().unwrap();
    assert_eq!(left["interrupts"].as_object().unwrap().len(), 1);

    let other = client.thread();
    ok(
        client.post(
            &format!("/threads/{other}/runs/wait"),
            &json!({"assistant_id": "rescued", "input": {"text": "y"}}),
        ),
        200,
    );
    assert_eq!(
        selected().unwrap()["interrupts"].as_object().unwrap().len(),
        2
    );
}

fn what_is_not_selected_of_assistants_is_not_read(place: &Place) {
    let (server, client) = serve(place);
    let new = json!({
        "graph_id": "counter", "name": "mine", "metadata": {"m": 1}, "config": {"tags": ["t"]}, "context": {"c": 1},
    });
    let made = ok(client.post("/assistants", &new), 200);
    let assistants = |select: &[&str]| {
        let body = json!({"name": "mine", "select": select});
        let answer = client.post("/assistants/search", &body);
        (answer.status == 200).then(|| answer.json()[0].clone())
    };
    let unreadable = if place.is_postgres() {
        "'\\xff'"
    } else {
        "x'ff'"
    };
    for (column, value, others) in [
        ("config", unreadable, ["context", "metadata"]),
        ("context", unreadable, ["metadata", "name"]),
        ("metadata", "'[]'", ["name", "graph_id"]),
    ] {
        assert_eq!(assistants(&[column]), Some(json!({column: made[column]})));
        let sql = format!("UPDATE assistants SET {column} = {value} WHERE name = 'mine'");
        assert_eq!(execute(place, &server, &sql), Ok(1));
        assert_eq!(assistants(&[column]), None);
        for other in others {
            assert_eq!(assistants(&[other]), Some(json!({other: made[other]})));
        }
    }
}

fn an_assistant_that_is_too_large_is_shown_without_its_large_fields(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_MEMORY_BUDGET", "64")
        .env("BACKSTITCH_ASSISTANT_BYTES", "4000000");
    let server = place.start(setup);
    let client = Client::of(&server);
    // One body after the other fits the memory, the assistant with both does not.
    let large = json!({"text": "x".repeat(1_000_000)});
    let new = json!({"graph_id": "counter", "name": "mine", "config": large});
    let made = ok(client.post("/assistants", &new), 200);
    let path = format!("/assistants/{}", made["assistant_id"].as_str().unwrap());
    ok(patch(&client, &path, &json!({"context": large})), 200);
    let body = json!({"name": "mine"});
    let refused = client.post("/assistants/search", &body).refused(413);
    assert!(
        refused.contains("leave out config, context and metadata with `select`"),
        "{refused}"
    );
    let body = json!({"name": "mine", "select": ["name", "config"]});
    let found = ok(client.post("/assistants/search", &body), 200);
    assert_eq!(found[0]["name"], "mine");
}

/// Bytes that make a value of this column unreadable.
fn unreadable(place: &Place) -> &'static str {
    if place.is_postgres() {
        "'\\xff'"
    } else {
        "x'ff'"
    }
}

fn what_is_not_selected_of_crons_is_not_read(place: &Place) {
    let (server, client) = serve(place);
    let new = json!({
        "assistant_id": "counter", "schedule": "0 0 1 1 *", "input": {"count": 1}, "metadata": {"m": 1},
        "end_time": "2999-01-01T00:00:00Z",
    });
    let made = ok(client.post("/runs/crons", &new), 200);
    let crons = |select: &[&str]| search(&client, "/runs/crons/search", select);
    let shown = |name: &str| Some(json!({name: made[name]}));
    for name in ["payload", "metadata", "end_time", "schedule"] {
        assert_eq!(crons(&[name]), shown(name));
    }
    let sql = format!("UPDATE crons SET payload = {}", unreadable(place));
    assert_eq!(execute(place, &server, &sql), Ok(1));
    assert_eq!(crons(&["payload"]), None);
    assert_eq!(crons(&["metadata", "payload"]), None);
    // The payload has an end as it was written.
    assert_eq!(crons(&["end_time"]), None);
    for name in ["metadata", "schedule", "next_run_date"] {
        assert_eq!(crons(&[name]), shown(name));
    }
    let sql = "UPDATE crons SET end_time = NULL";
    assert_eq!(execute(place, &server, sql), Ok(1));
    assert_eq!(crons(&["end_time"]), Some(json!({"end_time": null})));
    let sql = "UPDATE crons SET metadata = '[]'";
    assert_eq!(execute(place, &server, sql), Ok(1));
    assert_eq!(crons(&["metadata"]), None);
    assert_eq!(
        crons(&["schedule", "end_time"]).unwrap()["end_time"],
        json!(null)
    );
}

/// A server with little memory, and a client of it.
fn serve_little(place: &Place) -> (Server, Client) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_MEMORY_BUDGET", "64")
        .env("BACKSTITCH_CRON_BYTES", "4000000");
    let server = place.start(setup);
    let client = Client::of(&server);
    (server, client)
}

fn a_cron_that_is_too_large_is_shown_without_its_payload(place: &Place) {
    let (_server, client) = serve_little(place);
    let new = json!({
        "assistant_id": "counter", "schedule": "0 0 1 1 *", "input": {"text": "x".repeat(2_000_000)},
        "metadata": {"m": 1},
    });
    let made = client.post("/runs/crons", &new);
    assert_eq!(made.status, 200, "{}", made.text());
    let refused = client.post("/runs/crons/search", &json!({})).refused(413);
    assert!(refused.contains("with `select`"), "{refused}");
    for select in [&["metadata"][..], &["end_time", "metadata", "cron_id"]] {
        let found = search(&client, "/runs/crons/search", select).unwrap();
        assert_eq!(found["metadata"], json!({"m": 1}));
    }
}

/// The runs of a thread with these fields, once it was found that they can be read or not.
fn runs(client: &Client, thread: &str, select: &[&str]) -> Option<Value> {
    let fields: Vec<String> = select.iter().map(|name| format!("select={name}")).collect();
    let answer = client.get(&format!("/threads/{thread}/runs?{}", fields.join("&")));
    (answer.status != 500).then(|| ok(answer, 200))
}

/// A run that waits for an hour, with an input of so many bytes.
fn waiting_run(client: &Client, thread: &str, bytes: usize, metadata: &Value) -> Value {
    let body = json!({
        "assistant_id": "counter", "input": {"text": "x".repeat(bytes)}, "after_seconds": 3600,
        "metadata": metadata,
    });
    ok(client.post(&format!("/threads/{thread}/runs"), &body), 200)
}

fn metadata_of_runs_is_read_without_their_large_requests(place: &Place) {
    let (server, client) = serve(place);
    for of_thread in [
        json!({}),
        json!({"of_thread": {"n": [1.5]}, "m": "thread's"}),
    ] {
        let thread = test_support::talk::create(&client, &json!({"metadata": of_thread}));
        let metadata = json!({"m": "\u{0}", "n": 1});
        let mut made = [
            waiting_run(&client, &thread, 100_000, &metadata),
            waiting_run(&client, &thread, 10, &metadata),
            waiting_run(&client, &thread, 5000, &json!({})),
        ];
        made.reverse();
        let shown: Vec<Value> = made
            .iter()
            .map(|run| json!({"metadata": run["metadata"]}))
            .collect();
        assert_eq!(runs(&client, &thread, &["metadata"]), Some(json!(shown)));
        let whole = ok(client.get(&format!("/threads/{thread}/runs")), 200);
        for (run, made) in whole.as_array().unwrap().iter().zip(&made) {
            assert_eq!(run["metadata"], made["metadata"]);
            assert_eq!(run["kwargs"], made["kwargs"]);
        }
        let sql = format!(
            "UPDATE runs SET kwargs = {} WHERE length(kwargs) > 4096",
            unreadable(place)
        );
        assert_eq!(execute(place, &server, &sql), Ok(2));
        // A request that is shown is read: these two are shown without theirs.
        let read = runs(&client, &thread, &["kwargs"]).unwrap();
        let read = read.as_array().unwrap().iter();
        assert_eq!(read.filter(|run| run["kwargs"].is_null()).count(), 2);
        assert_eq!(runs(&client, &thread, &["metadata"]), Some(json!(shown)));
        let found = runs(&client, &thread, &["metadata", "run_id"]).unwrap();
        for (run, made) in found.as_array().unwrap().iter().zip(&made) {
            assert_eq!(
                *run,
                json!({"metadata": made["metadata"], "run_id": made["run_id"]})
            );
        }
    }
}

fn a_run_that_is_too_large_is_shown_with_its_metadata(place: &Place) {
    let (_server, client) = serve_little(place);
    let thread = client.thread();
    let made = waiting_run(&client, &thread, 2_000_000, &json!({"m": 1}));
    let refused = client.get(&format!("/threads/{thread}/runs")).refused(413);
    assert!(
        refused.contains("kwargs and metadata with `select`"),
        "{refused}"
    );
    let found = runs(&client, &thread, &["metadata"]).unwrap();
    assert_eq!(found[0]["metadata"], made["metadata"]);
}
