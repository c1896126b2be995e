//! What the tables that are derived from events ask Postgres for, however many threads are behind.

use serde_json::json;
use test_support::client::Client;
use test_support::place::block_on;
use test_support::server::Setup;
use test_support::talk::until;

use super::OfPostgres;

/// Threads whose tables are derived together.
const THREADS: usize = 40;

/// How many threads the tables know.
fn derived(meter: &OfPostgres) -> usize {
    block_on(async {
        let url = &meter.database.url;
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
            .await
            .unwrap();
        let connection = tokio::spawn(connection);
        let query = "SELECT count(*) FROM thread_heads WHERE last_preview IS NOT NULL";
        let row = client.query_one(query, &[]).await.unwrap();
        connection.abort();
        usize::try_from(row.get::<_, i64>(0)).unwrap()
    })
}

#[test]
fn a_round_of_many_threads_takes_as_many_statements_as_one_of_a_few() {
    let (setup, meter) = OfPostgres::start();
    // Another process has the states in memory.
    let elsewhere = Setup::example("bench_server").env("DATABASE_URL", &*meter.database.url);
    let elsewhere = elsewhere.start();
    let client = Client::of(&elsewhere);
    let long = "x".repeat(3000);
    let turn = json!({
        "assistant_id": "chat",
        "input": {"messages": [{"type": "human", "content": format!("hello {long}")}]},
    });
    for _ in 0..THREADS {
        let thread = client.thread();
        client.run(&thread, &turn);
        client.run(&thread, &turn);
    }
    until("all are derived", || derived(&meter) == THREADS);
    drop(elsewhere);

    let server = setup.env("BACKSTITCH_LEASE", "3600").start();
    let client = Client::of(&server);
    let before = meter.proxy.count();
    let rebuilt = client.post("/admin/projections/rebuild", &json!({}));
    assert_eq!(rebuilt.status, 202);
    until("all are derived once more", || derived(&meter) == THREADS);
    let executed = meter.proxy.since(before);
    let count = |what: &[&str]| {
        let texts = executed.iter();
        texts
            .filter(|text| what.iter().any(|part| text.contains(part)))
            .count()
    };
    let states = count(&["checkpoint_blobs"]);
    let all = count(&[
        "checkpoint_blobs",
        "events e",
        "message_nodes",
        "thread_heads",
        "threads t WHERE t.thread_id =",
    ]);
    println!("{all} statements for what is derived, {states} for states");
    assert!(states > 0, "states are read");
    // Three rounds, if the threads are found in the middle of the rebuild.
    assert!(all <= 20, "{all} statements: {executed:#?}");
}
