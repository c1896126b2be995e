//! Reading never waits for writing.

use std::{fs, thread};

use serde_json::json;
use test_support::{
    client::Client,
    place::Place,
    server::Setup,
    talk::{agent_thread, note, say, until, whole},
};

/// SQLite has one transaction that writes at a time: all that is read is answered beside one that does not end.
#[test]
fn what_is_read_of_sqlite_waits_for_no_transaction_that_writes() {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    let point = format!("sqlite::before_commit=while({})", gate.display());
    let setup = Setup::example("reference_server").env("FAILPOINTS", point);
    let server = Place::sqlite().start(setup);
    let client = Client::of(&server);
    let thread = agent_thread(&client);
    say(&client, &thread, "hello");
    let cold = agent_thread(&client);
    say(&client, &cold, "hello");
    let search = |client: &Client| client.post("/threads/search", &json!({"limit": 10}));
    let before = whole(&client, &thread);
    fs::write(&gate, "").unwrap();
    thread::scope(|scope| {
        let writing = scope.spawn(|| note(&client, &thread, "u9"));
        until("the transaction is open", || {
            server.output().contains("a fail point was reached")
        });
        for _ in 0..3 {
            assert!(whole(&client, &thread) == before, "nothing has changed");
            whole(&client, &cold);
            let found = search(&client);
            assert_eq!(
                found.json().as_array().unwrap().len(),
                2,
                "{}",
                found.text()
            );
        }
        // It ends when the gate opens, which it has not yet.
        assert!(!writing.is_finished(), "the transaction is open");
        fs::remove_file(&gate).unwrap();
        writing.join().unwrap();
    });
    assert!(whole(&client, &thread) != before, "the message is there");
}
