//! Threads whose last run ended in this process: what their state, and their next turn, ask the database for.

use std::sync::Arc;

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::server::Setup;

use super::{Cost, Measured, Meter, OfPostgres, OfSqlite, RUNS};

fn turn() -> Value {
    json!({
        "assistant_id": "chat",
        "input": {"messages": [{"type": "human", "content": "hello"}]},
    })
}

/// The state of a thread whose last run ended here is one statement: the level of the client on it, its row,
/// that of the checkpoint and what is pending there. So is that of a checkpoint that was read before.
fn a_hot_state_is_one_statement(setup: Setup, meter: &dyn Meter, most: f64) {
    let server = setup
        .env("BACKSTITCH_API_KEYS", "ann=key-a")
        .env("BACKSTITCH_LEASE", "3600")
        .start();
    let measured = Measured::when_idle(meter);
    let within = |cost: Cost, _| cost.statements <= most;
    let client = Client::of(&server).with_key("key-a");
    let thread = client.thread();
    client.run(&thread, &turn());
    client.run(&thread, &turn());
    let now = measured.cost(within, || {
        let state = client.state(&thread);
        assert_eq!(state["values"]["messages"].as_array().unwrap().len(), 4);
    });
    let long = client.thread();
    client.run(
        &long,
        &json!({"assistant_id": "loop", "input": {"count": 0, "target": 9}}),
    );
    let middle = client.history(&long)[4].clone();
    let id = middle["checkpoint"]["checkpoint_id"].as_str().unwrap();
    let path = format!("/threads/{long}/state/{id}");
    let then = measured.cost(within, || {
        let state = client.get(&path).json();
        assert_eq!(state["values"], middle["values"]);
    });
    println!(
        "a hot state: {:.2} statements, one by its id: {:.2}",
        now.statements, then.statements
    );
}

#[test]
fn a_hot_state_is_one_statement_of_postgres() {
    let (setup, meter) = OfPostgres::start();
    a_hot_state_is_one_statement(setup, &meter, 1.5);
}

#[test]
fn a_hot_state_is_one_snapshot_of_sqlite() {
    let (setup, meter) = OfSqlite::start();
    // The thread, the level, the checkpoint, the size and the rows of what is pending there, with a beginning and
    // an end.
    a_hot_state_is_one_statement(setup, &meter, 7.5);
}

/// Executes turns of a chat: how many checkpoints were read for them, if `reads` says how many were until now.
fn checkpoints_read(client: &Client, reads: impl Fn() -> usize) -> usize {
    let thread = client.thread();
    client.run(&thread, &turn());
    let before = reads();
    for _ in 0..RUNS {
        client.run(&thread, &turn());
    }
    let read = reads() - before;
    println!("{read} checkpoints were read in {RUNS} turns");
    let before = reads();
    client.history(&thread);
    assert!(reads() > before, "reading a checkpoint counts");
    read
}

#[test]
fn a_warm_turn_reads_no_checkpoint_of_sqlite() {
    let (setup, meter) = OfSqlite::start();
    let server = setup.start();
    let read = checkpoints_read(&Client::of(&server), || {
        let loads = |line: &&str| line.starts_with("[\"SELECT c.checkpoint_ns, c.checkpoint_id");
        meter.executed().lines().filter(loads).count()
    });
    // Tables are derived from the events meanwhile, which may read one in the middle of a run.
    assert!(read < 5, "{read} in {RUNS} turns");
}

/// Whether a statement reads rows of checkpoints or values of channels.
fn reads_checkpoints(text: &Arc<str>) -> bool {
    let reads = text.contains("c.blob_versions") || text.contains("checkpoint_blobs");
    reads && !text.contains("INSERT INTO")
}

#[test]
fn a_warm_turn_reads_no_checkpoint_of_postgres() {
    let (setup, meter) = OfPostgres::start();
    let server = setup.start();
    let read = checkpoints_read(&Client::of(&server), || {
        let executed = meter.proxy.since(0);
        executed
            .iter()
            .filter(|text| reads_checkpoints(text))
            .count()
    });
    assert_eq!(read, 0, "in {RUNS} turns");
}

/// The row of the checkpoint is looked up in the same statement as the thread, for what may have changed beside it; its
/// values are in memory.
#[test]
fn a_hot_state_reads_no_values_of_postgres() {
    let (setup, meter) = OfPostgres::start();
    let server = setup.start();
    let client = Client::of(&server);
    let thread = client.thread();
    client.run(&thread, &turn());
    let before = meter.proxy.count();
    for _ in 0..RUNS {
        client.state(&thread);
    }
    let executed = meter.proxy.since(before);
    let states = executed
        .iter()
        .filter(|text| text.contains("AS checkpoint_metadata"));
    assert_eq!(states.count() as u64, RUNS);
    let values = executed
        .iter()
        .filter(|text| text.contains("checkpoint_blobs"));
    assert_eq!(values.collect::<Vec<_>>(), Vec::<&Arc<str>>::new());
    let others = executed.iter().filter(|text| reads_checkpoints(text));
    assert_eq!(others.count() as u64, RUNS, "one statement for each");
}
