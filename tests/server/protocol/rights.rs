//! Who may start runs by commands, resume them, and read the events of a thread.

use serde_json::json;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk::{self, ok, put};

use super::*;

on_both_storages!(commands_take_a_writer_and_events_a_reader,);

fn commands_take_a_writer_and_events_a_reader(place: &Place) {
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b,cid=key-c");
    let server = place.start(setup);
    let client = Client::of(&server);
    let [ann, bob, cid] = ["key-a", "key-b", "key-c"].map(|key| client.with_key(key));
    let thread = new_thread();
    start(&ann, &thread, "approve", json!({"request": "pay"}));
    let requested = events(&ann, &thread, &["input", "lifecycle"], 1);
    let id = requested[1]["params"]["data"]["interrupt_id"].clone();
    let respond = json!({"interrupt_id": id, "response": "no"});
    let run = json!({"assistant_id": "approve", "input": {"request": "x"}});

    // To a stranger the thread is one that is not there.
    let own = format!("/threads/{thread}");
    assert_eq!(
        refused(&cid, &thread, "input.respond", respond.clone()),
        "no_such_interrupt"
    );
    assert_eq!(
        refused(&cid, &thread, "run.start", run.clone()),
        "unknown_error"
    );
    let mut silent = open(&cid, &thread, json!({"channels": ["lifecycle"]}));
    let heartbeat = String::from_utf8(silent.chunk().unwrap()).unwrap();
    assert_eq!(heartbeat, ": heartbeat\r\n\r\n");

    let level = |who: &str, level: &str| {
        let path = format!("{own}/members/{who}");
        assert!(put(&ann, &path, &json!({"level": level})).status < 300);
    };
    level("bob", "reader");
    assert_eq!(
        refused(&bob, &thread, "input.respond", respond.clone()),
        "permission_denied"
    );
    assert_eq!(
        refused(&bob, &thread, "run.start", run),
        "permission_denied"
    );
    let mut of_bob = open(&bob, &thread, json!({"channels": ["lifecycle"]}));
    assert_eq!(ends(&mut of_bob, 1).len(), 2);
    let runs = talk::get(&ann, &thread, "runs");
    assert_eq!(runs.as_array().unwrap().len(), 1, "nothing was begun");

    level("bob", "writer");
    assert_eq!(
        command(&bob, &thread, "input.respond", respond)["type"],
        "success"
    );
    assert_eq!(ends(&mut of_bob, 1).len(), 2);
    // A stream ends soon after the access is withdrawn.
    ok(ann.delete(&format!("{own}/members/bob")), 204);
    assert!(of_bob.breaks());
}
