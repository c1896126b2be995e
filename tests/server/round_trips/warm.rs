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

/// The state of a thread whose last run ended here is one statement: its row and the level of the client on it. That of a
/// checkpoint whose values are in memory is one with the row of the checkpoint, and what is pending there. `most` are the
/// bounds of both.
fn a_hot_state_is_one_statement(setup: Setup, meter: &dyn Meter, most: [f64; 2]) {
    let server = setup
        .env("BACKSTITCH_API_KEYS", "ann=key-a")
        .env("BACKSTITCH_LEASE", "3600")
        .start();
    let measured = Measured::when_idle(meter);
    let [of_head, by_id] = most.map(|most| move |cost: Cost, _| cost.statements <= most);
    let client = Client::of(&server).with_key("key-a");
    let thread = client.thread();
    client.run(&thread, &turn());
    client.run(&thread, &turn());
    let now = measured.cost(of_head, || {
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
    let then = measured.cost(by_id, || {
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
    a_hot_state_is_one_statement(setup, &meter, [1.5, 1.5]);
}

#[test]
fn a_hot_state_is_one_snapshot_of_sqlite() {
    let (setup, meter) = OfSqlite::start();
    // The thread and the level; and the checkpoint, the size and the rows of what is pending there: each with a beginning
    // and an end.
    a_hot_state_is_one_statement(setup, &meter, [4.5, 7.5]);
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

/// The statements of Postgres that `read` makes a server execute, by what they read: the thread alone, its head with it, and
/// anything else of checkpoints.
fn reads(meter: &OfPostgres, read: impl FnOnce()) -> [usize; 3] {
    let before = meter.proxy.count();
    read();
    let executed = meter.proxy.since(before);
    let count = |is: &dyn Fn(&Arc<str>) -> bool| executed.iter().filter(|text| is(text)).count();
    let with_head = |text: &Arc<str>| text.contains("AS checkpoint_metadata");
    [
        count(&|text| text.contains("AS is_reparented")),
        count(&with_head),
        count(&|text| reads_checkpoints(text) && !with_head(text)),
    ]
}

#[test]
fn a_hot_state_reads_no_checkpoint_of_postgres() {
    let (setup, meter) = OfPostgres::start();
    let server = setup.start();
    let client = Client::of(&server);
    let thread = client.thread();
    client.run(&thread, &turn());
    let states = |times: u64| (0..times).for_each(|_| drop(client.state(&thread)));
    assert_eq!(reads(&meter, || states(RUNS)), [RUNS as usize, 0, 0]);
}

/// The row of a checkpoint is looked up in the same statement as the thread where something may have changed beside it;
/// its values are in memory. One more statement finds that out, once.
#[test]
fn a_head_that_others_may_have_changed_is_read_without_its_values_and_with_its_thread() {
    let (setup, meter) = OfPostgres::start();
    let server = setup.start();
    let client = Client::of(&server);
    let thread = client.thread();
    let once = || drop(client.state(&thread));
    // Which gives the head another parent.
    let prune = |thread: &str| {
        let body = json!({"thread_ids": [thread], "strategy": "keep_latest"});
        assert_eq!(client.post("/threads/prune", &body).status, 200);
    };
    for _ in 0..2 {
        client.run(&thread, &turn());
        client.run(&thread, &turn());
        assert_eq!(reads(&meter, once), [1, 0, 0]);
        prune(&thread);
        assert_eq!(reads(&meter, once), [1, 1, 0]);
        assert_eq!(reads(&meter, once), [0, 1, 0]);
        assert_eq!(reads(&meter, once), [0, 1, 0]);
    }
    // Another process has the last run.
    let elsewhere = Setup::example("bench_server").env("DATABASE_URL", &*meter.database.url);
    let elsewhere = elsewhere.start();
    client.run(&thread, &turn());
    Client::of(&elsewhere).run(&thread, &turn());
    assert_eq!(reads(&meter, once)[..2], [1, 1]);
    assert_eq!(reads(&meter, once), [0, 1, 0]);
    client.run(&thread, &turn());
    assert_eq!(reads(&meter, once), [1, 0, 0]);
}
