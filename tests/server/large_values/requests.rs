//! Requests of runs: lists, ends of runs and deliveries read those that they show.

use rusqlite::Connection;
use serde_json::json;
use test_support::{
    client::Client,
    server::Setup,
    tables,
    talk::{background, ok, until},
};

use super::{KEY, VALUES, read_for, text};
use crate::receiver::{Receiver, Reply};

fn setup() -> Setup {
    let setup = Setup::example("reference_server").env("BACKSTITCH_WEBHOOK_ALLOW_LOOPBACK", "true");
    setup.env("BACKSTITCH_API_KEYS", format!("ann={KEY}"))
}

#[test]
fn runs_are_shown_and_cancelled_without_their_requests() {
    let mut server = setup().start();
    let ann = Client::of(&server).with_key(KEY);
    let thread = ann.thread();
    let runs: Vec<_> = (0..VALUES)
        .map(|number| {
            let input = json!({"request": text(number)});
            let run = json!({"assistant_id": "approve", "input": input, "after_seconds": 3600});
            background(&ann, &thread, &run)
        })
        .collect();
    let path = format!("/threads/{thread}/runs");
    let list = read_for(&mut server, "a list of runs", |client| {
        let list = ok(
            client.get(&format!("{path}?select=run_id&select=status")),
            200,
        );
        assert_eq!(list.as_array().unwrap().len(), VALUES);
    });
    let whole = read_for(&mut server, "a list of runs with requests", |client| {
        let list = ok(client.get(&path), 200);
        assert_eq!(list[0]["kwargs"]["input"]["request"], text(VALUES - 1));
    });
    let cancel = read_for(&mut server, "the end of a run", |client| {
        let cancel = format!("{path}/{}/cancel?wait=1", runs[1]);
        assert!(client.post(&cancel, &json!({})).status < 300);
    });
    let join = read_for(&mut server, "the result of a run", |client| {
        let join = client.get(&format!("{path}/{}/join", runs[1]));
        assert_eq!(join.status, 200);
    });
    assert!(list < 0.5 && join < 0.5, "{list:.2} {join:.2}");
    assert!(whole < 1.25 * VALUES as f64, "{whole:.2}");
    // Its row is written anew: SQLite reads it, and again as it frees the pages of the old one.
    assert!(cancel < 2.5, "{cancel:.2}");
}

/// How many deliveries of these are owed.
fn owed(db: &Connection, which: &str) -> usize {
    let sql = format!("SELECT count(*) FROM outbox WHERE {which}");
    let count: i64 = db.query_row(&sql, [], |row| row.get(0)).unwrap();
    count.try_into().unwrap()
}

#[test]
fn a_delivery_of_a_run_without_a_thread_reads_no_other_one() {
    let mut server = setup().start();
    let ann = Client::of(&server).with_key(KEY);
    let receiver = Receiver::replying(&[Reply::Status(500)]);
    for number in 0..VALUES {
        let input = json!({"count": 1, "log": [text(number)]});
        let run =
            json!({"assistant_id": "counter", "input": input, "webhook": receiver.url("done")});
        ok(ann.post("/runs", &run), 200);
    }
    let file = tables::file(&server);
    let db = Connection::open(&file).unwrap();
    until("all deliveries have failed", || {
        owed(&db, "last_error IS NOT NULL") == VALUES
    });
    // None is being sent as their times change.
    server.terminate();
    let later = "UPDATE outbox SET next_at = next_at + 3600000000";
    assert_eq!(db.execute(later, []).unwrap(), VALUES);
    drop(db);
    receiver.reply(&[Reply::Status(204)]);
    server.restart();
    let read = read_for(&mut server, "a delivery", |_| {
        let db = Connection::open(&file).unwrap();
        let one = "UPDATE outbox SET next_at = 0 WHERE run_id = (SELECT min(run_id) FROM outbox)";
        assert_eq!(db.execute(one, []).unwrap(), 1);
        until("it is delivered", || owed(&db, "1") == VALUES - 1);
    });
    let delivered = receiver.received().last().unwrap().body();
    assert_eq!(delivered["status"], "success");
    // Its row is taken, which writes it anew, and read for the report.
    assert!(read < 3.5, "{read:.2}");
}
