//! A Postgres that crashes under a running server, and comes back.

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::place::block_on;
use test_support::postgres::Cluster;
use test_support::server::Setup;
use test_support::talk::until;

fn slow(ms: u64) -> Value {
    json!({
        "assistant_id": "slow",
        "input": {"ms": ms, "ticks": 3},
        "stream_mode": ["values", "custom"],
        "durability": "sync",
    })
}

#[test]
fn a_database_that_goes_away_is_reported_and_its_return_is_enough() {
    let cluster = Cluster::start();
    let database = block_on(cluster.database());
    let server = Setup::example("reference_server")
        .postgres(&database)
        .start();
    let client = Client::of(&server);
    let thread = client.thread();
    client.run(&thread, &slow(1));
    let before = client.state(&thread);
    let other = client.thread();
    let mut open = client.open_stream(&other, &slow(500));
    open.event_named("custom");
    let run = open.run();

    cluster.crash();
    // The process lives, and says what is wrong.
    assert_eq!(client.get("/ok").status, 200);
    client.get("/ok?check_db=1").refused(503);
    for answer in [
        client.get(&format!("/threads/{thread}/state")),
        client.post(&format!("/threads/{thread}/runs"), &slow(1)),
        client.post(&format!("/threads/{thread}/runs/stream"), &slow(1)),
        client.post("/threads", &json!({})),
    ] {
        let detail = answer.refused(503);
        assert!(detail.contains("database"), "{detail}");
        assert!(answer.header("retry-after").is_some());
    }
    cluster.recover();
    let healthy = || client.get("/ok?check_db=1").status == 200;
    until("the database is found again", healthy);
    assert_eq!(client.state(&thread), before);
    let seen = client.run(&thread, &slow(1))["seen"].clone();
    assert_eq!(seen, json!(["work", "rest", "work", "rest"]));
    // The run that was cut goes on where it was, and its thread too.
    assert_eq!(client.end_of(&other, &run), "success");
    let seen = client.run(&other, &slow(1))["seen"].clone();
    let seen = seen.as_array().unwrap();
    assert_eq!(seen[seen.len() - 2..], ["work", "rest"]);
}
