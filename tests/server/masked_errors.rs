//! What clients see of failures: those of nodes as they are, those of the server without its secrets.

use serde_json::json;
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::Server;
use test_support::tables;
use test_support::talk::{until, with};

on_both_storages!(
    a_failure_of_the_storage_is_shown_by_the_id_of_its_request_alone,
    a_failure_of_the_storage_under_a_node_is_shown_without_what_the_database_said,
    a_failure_of_a_node_is_shown_as_it_is,
);

const SECRET: &str = "secret_of_the_database";

/// Lets the database refuse every new row of a table, with a word that is no client's business.
fn refuse(place: &Place, server: &Server, table: &str) {
    let sql = if place.is_postgres() {
        format!("ALTER TABLE {table} ADD CONSTRAINT {SECRET} CHECK (false) NOT VALID")
    } else {
        format!(
            "CREATE TRIGGER refuses BEFORE INSERT ON {table} \
             BEGIN SELECT RAISE(ABORT, '{SECRET}'); END"
        )
    };
    tables::execute(place, server, &sql).unwrap();
}

fn counter() -> serde_json::Value {
    json!({"assistant_id": "counter", "input": {"count": 0, "log": []}})
}

fn a_failure_of_the_storage_is_shown_by_the_id_of_its_request_alone(place: &Place) {
    let (server, client) = serve(place);
    refuse(place, &server, "checkpoints");
    let thread = client.thread();
    let body = counter().to_string();
    let ask = |client: &Client, door: &str| {
        let id = [("x-request-id", "request-77")];
        let path = format!("/threads/{thread}/runs/{door}");
        client.send("POST", &path, &id, body.as_bytes())
    };
    let shown = |text: &str| {
        assert!(text.contains("InternalError"), "{text}");
        assert!(text.contains("request-77"), "{text}");
        assert!(!text.contains(SECRET), "{text}");
    };
    let waited = ask(&client, "wait");
    assert_eq!(waited.json()["__error__"]["error"], "InternalError");
    shown(waited.text());
    shown(ask(&client, "stream").text());
    shown(client.get(&format!("/threads/{thread}")).text());
    let run = client.get(&format!("/threads/{thread}/runs")).json()[0]["run_id"].clone();
    let join = format!("/threads/{thread}/runs/{}/join", run.as_str().unwrap());
    shown(client.get(&join).text());
    // Neither the row nor an event of the thread names the checkpoint that was refused.
    for (table, column) in [("runs", "last_checkpoint_id"), ("events", "checkpoint_id")] {
        let named = format!(
            "SELECT CAST(count(*) AS text) FROM {table} n WHERE n.{column} IS NOT NULL AND NOT EXISTS \
             (SELECT 1 FROM checkpoints c WHERE c.checkpoint_id = n.{column})"
        );
        let named = tables::rows(place, &server, &named);
        assert_eq!(named[0][0].as_deref(), Some("0"), "{table}");
    }
    // The operator finds it there.
    let log = server.output();
    let line = log
        .lines()
        .find(|line| line.contains("run failed"))
        .unwrap();
    assert!(
        line.contains("request-77") && line.contains(SECRET),
        "{line}"
    );
}

fn a_failure_of_the_storage_under_a_node_is_shown_without_what_the_database_said(place: &Place) {
    let (server, client) = serve(place);
    refuse(place, &server, "store_items");
    // Its node stores an item of long-term memory and returns what that returns.
    let remembering = json!({"assistant_id": "ctx", "input": {"text": "tea"}});
    let answer = client.run(&client.thread(), &remembering);
    assert_eq!(answer["__error__"]["error"], "InternalError", "{answer}");
    assert!(!answer.to_string().contains(SECRET), "{answer}");
    until("the operator finds it", || server.output().contains(SECRET));
}

fn a_failure_of_a_node_is_shown_as_it_is(place: &Place) {
    let (_server, client) = serve(place);
    let thread = client.thread();
    let failing = json!({"assistant_id": "failing", "input": {"fail": true}});
    let error = json!({"error": "ValueError", "message": "boom from node bad"});
    assert_eq!(client.run(&thread, &failing), json!({"__error__": error}));
    let events = client.stream(&thread, &with(failing, "stream_mode", "updates"));
    assert_eq!(events.last().unwrap().data, error);
    assert_eq!(
        client.get(&format!("/threads/{thread}")).json()["error"],
        error
    );
}
