//! `POST /runs/batch`: all of its runs, or none.

use serde_json::{Value, json};
use test_support::client::{Answer, Client};
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::{Server, Setup};
use test_support::tables;
use test_support::talk::{ok, until, with};

on_both_storages!(
    a_batch_creates_its_runs_in_order_and_each_has_a_thread,
    a_batch_with_one_bad_run_creates_nothing,
    a_batch_of_which_the_database_refuses_one_run_leaves_nothing,
    a_batch_of_a_thousand_runs_is_created_and_one_more_is_refused,
    a_batch_that_grows_too_large_by_its_assistant_is_refused,
    a_repeated_batch_has_the_runs_of_the_first,
    a_batch_belongs_to_who_sent_it,
);

fn counter() -> Value {
    json!({"assistant_id": "counter", "input": {"count": 0, "log": []}, "on_completion": "keep"})
}

fn send(client: &Client, runs: &[Value]) -> Answer {
    client.post("/runs/batch", &json!(runs))
}

/// How many threads and runs there are.
fn rows(place: &Place, server: &Server) -> (String, String) {
    let count = |table: &str| {
        let sql = format!("SELECT CAST(count(*) AS text) FROM {table}");
        tables::rows(place, server, &sql)[0][0].clone().unwrap()
    };
    (count("threads"), count("runs"))
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap()
}

fn a_batch_creates_its_runs_in_order_and_each_has_a_thread(place: &Place) {
    let (_server, client) = serve(place);
    let names = ["counter", "router", "counter", "failing"];
    let bodies = names.map(|name| {
        let input = match name {
            "failing" => json!({"fail": true}),
            "router" => json!({"n": 1}),
            _ => json!({"count": 0, "log": []}),
        };
        json!({"assistant_id": name, "input": input, "on_completion": "keep"})
    });
    let made = ok(send(&client, &bodies), 200);
    let made = made.as_array().unwrap();
    let graphs: Vec<_> = made
        .iter()
        .map(|run| run["metadata"]["graph_id"].clone())
        .collect();
    assert_eq!(graphs, names);
    assert!(made.iter().all(|run| run["status"] == "pending"));
    let mut threads: Vec<_> = made.iter().map(|run| text(run, "thread_id")).collect();
    let ends: Vec<_> = made
        .iter()
        .map(|run| client.end_of(text(run, "thread_id"), text(run, "run_id")))
        .collect();
    assert_eq!(ends, ["success", "success", "success", "error"]);
    threads.sort_unstable();
    threads.dedup();
    assert_eq!(threads.len(), 4);
    // A temporary one goes with its thread.
    let made = ok(
        send(&client, &[with(counter(), "on_completion", "delete")]),
        200,
    );
    let thread = format!("/threads/{}", text(&made[0], "thread_id"));
    until("the thread is gone", || client.get(&thread).status == 404);
}

fn a_batch_with_one_bad_run_creates_nothing(place: &Place) {
    let (server, client) = serve(place);
    let missing = uuid::Uuid::now_v7().to_string();
    let resume = json!({"assistant_id": "approve", "command": {"resume": 1}});
    for (bad, status) in [
        (json!(5), 422),
        (json!(null), 422),
        (json!([]), 422),
        (json!({}), 422),
        (json!({"assistant_id": "nope"}), 422),
        (json!({"assistant_id": 5}), 422),
        (
            json!({"assistant_id": "{6ba7b821-9dad-11d1-80b4-00c04fd430c8}"}),
            422,
        ),
        (json!({"assistant_id": missing}), 404),
        (
            with(counter(), "config", json!({"recursion_limit": "x"})),
            422,
        ),
        (with(counter(), "metadata", json!(1)), 422),
        (with(counter(), "stream_mode", json!("bogus")), 422),
        (with(counter(), "on_completion", json!("bogus")), 422),
        (with(counter(), "after_seconds", json!(1e12)), 422),
        (with(counter(), "webhook", json!("ftp://x")), 422),
        (resume, 400),
    ] {
        for at in 0..3 {
            let mut runs = vec![counter(), counter()];
            runs.insert(at, bad.clone());
            let answer = send(&client, &runs);
            answer.refused(status);
        }
    }
    for body in ["", "{", "{}", "5", "null", "\"x\"", "[]"] {
        client.post_text("/runs/batch", body).refused(422);
    }
    assert_eq!(rows(place, &server), ("0".to_owned(), "0".to_owned()));
}

fn a_batch_of_which_the_database_refuses_one_run_leaves_nothing(place: &Place) {
    let (server, client) = serve(place);
    let sql = if place.is_postgres() {
        "ALTER TABLE runs ADD CONSTRAINT refuses CHECK (octet_length(kwargs) < 5000) NOT VALID"
    } else {
        "CREATE TRIGGER refuses BEFORE INSERT ON runs WHEN length(new.kwargs) > 5000 \
         BEGIN SELECT RAISE(ABORT, 'refused'); END"
    };
    tables::execute(place, &server, sql).unwrap();
    let mut runs = vec![counter(); 60];
    runs[40]["input"]["log"] = json!(["x".repeat(6000)]);
    send(&client, &runs).refused(500);
    assert_eq!(rows(place, &server), ("0".to_owned(), "0".to_owned()));
    // Nothing is left of it in the process either: the next ones are created and executed.
    runs.remove(40);
    let made = ok(send(&client, &runs), 200);
    for run in made.as_array().unwrap() {
        assert_eq!(
            client.end_of(text(run, "thread_id"), text(run, "run_id")),
            "success"
        );
    }
}

fn a_batch_of_a_thousand_runs_is_created_and_one_more_is_refused(place: &Place) {
    let (server, client) = serve(place);
    let later = with(counter(), "after_seconds", 3600);
    let detail = send(&client, &vec![later.clone(); 1001]).refused(422);
    assert!(detail.contains("1000"), "{detail}");
    assert_eq!(rows(place, &server).1, "0");
    let made = ok(send(&client, &vec![later; 1000]), 200);
    assert_eq!(made.as_array().unwrap().len(), 1000);
    assert_eq!(rows(place, &server), ("1000".to_owned(), "1000".to_owned()));
}

fn a_batch_that_grows_too_large_by_its_assistant_is_refused(place: &Place) {
    let (server, client) = serve(place);
    let large =
        json!({"graph_id": "counter", "config": {"configurable": {"text": "x".repeat(120_000)}}});
    let assistant = ok(client.post("/assistants", &large), 200);
    let run = with(counter(), "assistant_id", assistant["assistant_id"].clone());
    let answer = send(&client, &vec![run.clone(); 300]);
    assert_eq!(test_support::talk::code(&answer, 413), "too_large");
    assert_eq!(rows(place, &server).1, "0");
    ok(send(&client, &vec![run; 3]), 200);
}

fn a_repeated_batch_has_the_runs_of_the_first(place: &Place) {
    let (server, client) = serve(place);
    let body = json!([counter(), counter()]).to_string();
    let send = || {
        let key = [("idempotency-key", "batch-1")];
        ok(
            client.send("POST", "/runs/batch", &key, body.as_bytes()),
            200,
        )
    };
    let ids = |made: &Value| -> Vec<Value> {
        let runs = made.as_array().unwrap().iter();
        runs.map(|run| run["run_id"].clone()).collect()
    };
    let first = ids(&send());
    assert_eq!(ids(&send()), first);
    assert_eq!(rows(place, &server).1, "2");
}

fn a_batch_belongs_to_who_sent_it(place: &Place) {
    let keys = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let server = place.start(keys);
    let client = Client::of(&server);
    let [ann, bob] = ["key-a", "key-b"].map(|key| client.with_key(key));
    client.post("/runs/batch", &json!([counter()])).refused(401);
    let made = ok(send(&ann, &[counter(), counter()]), 200);
    for run in made.as_array().unwrap() {
        let path = format!(
            "/threads/{}/runs/{}",
            text(run, "thread_id"),
            text(run, "run_id")
        );
        bob.get(&path).refused(404);
        assert_eq!(
            ann.end_of(text(run, "thread_id"), text(run, "run_id")),
            "success"
        );
    }
    // Another's assistant is none.
    let own = ok(
        ann.post("/assistants", &json!({"graph_id": "counter"})),
        200,
    );
    let run = with(counter(), "assistant_id", own["assistant_id"].clone());
    send(&bob, &[counter(), run.clone()]).refused(404);
    assert_eq!(rows(place, &server).1, "2");
    ok(send(&ann, &[run]), 200);
}
