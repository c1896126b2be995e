//! Who may start runs by commands, resume them, and read the events of a thread.

use std::time::{Duration, Instant};

use serde_json::json;
use test_support::on_both_storages;
use test_support::place::{Place, block_on};
use test_support::server::Setup;
use test_support::talk::{self, ok, put};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::websocket::connect;
use super::*;

on_both_storages!(
    commands_take_a_writer_and_events_a_reader,
    a_socket_shows_a_stranger_nothing_and_ends_when_access_is_withdrawn,
    events_at_every_process_end_when_access_is_withdrawn,
);

const KEYS: &str = "ann=key-a,bob=key-b,cid=key-c";

/// The longest that events may come after the access of their client was withdrawn.
const LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn commands_take_a_writer_and_events_a_reader(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", KEYS);
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

pub(crate) fn a_socket_shows_a_stranger_nothing_and_ends_when_access_is_withdrawn(place: &Place) {
    let server = place.start(Setup::example("reference_server").env("BACKSTITCH_API_KEYS", KEYS));
    // A second process, where there can be one: it is told of nothing.
    let replica = place.is_postgres().then(|| server.replica());
    let ann = Client::of(&server).with_key("key-a");
    let thread = ann.thread();
    let own = format!("/threads/{thread}");
    let reader = json!({"level": "reader"});
    assert!(put(&ann, &format!("{own}/members/bob"), &reader).status < 300);
    block_on(async {
        assert!(
            connect(&server, &thread, None).await.is_err(),
            "without a key"
        );
        let mut of_bob = connect(&server, &thread, Some("key-b")).await.unwrap();
        let mut of_cid = connect(&server, &thread, Some("key-c")).await.unwrap();
        for socket in [&mut of_bob, &mut of_cid] {
            let all = json!({"channels": ["lifecycle", "values"]});
            let reply = socket.command("subscription.subscribe", all).await;
            assert_eq!(reply["type"], "success", "{reply}");
        }
        let run = json!({"assistant_id": "counter", "input": {"count": 1, "log": []}});
        for (socket, code) in [
            (&mut of_bob, "permission_denied"),
            (&mut of_cid, "unknown_error"),
        ] {
            let reply = socket.command("run.start", run.clone()).await;
            assert_eq!(reply["error"], code, "{reply}");
        }
        start(&ann, &thread, "counter", run["input"].clone());
        assert!(!of_bob.run().await.is_empty());
        // To a stranger there is nothing before the reply to the next command.
        let ask = json!({"id": 9, "method": "run.start", "params": run});
        of_cid.send(ask.to_string()).await;
        let next = of_cid.read().await.unwrap();
        assert_eq!(next["id"], 9, "{next}");
        let mut sockets = vec![of_bob];
        if let Some(replica) = &replica {
            let mut elsewhere = connect(replica, &thread, Some("key-b")).await.unwrap();
            let all = json!({"channels": ["lifecycle", "values"]});
            elsewhere.command("subscription.subscribe", all).await;
            // What it shows proves that the access was read before it is withdrawn.
            assert!(!elsewhere.run().await.is_empty());
            sockets.push(elsewhere);
        }
        ok(ann.delete(&format!("{own}/members/bob")), 204);
        let begin = Instant::now();
        for mut socket in sockets {
            let code = loop {
                if let Err(code) = socket.read().await {
                    break code;
                }
            };
            assert_eq!(code, Some(CloseCode::Policy));
            assert!(begin.elapsed() < LIMIT, "{:?}", begin.elapsed());
        }
    });
    let runs = talk::get(&ann, &thread, "runs");
    assert_eq!(runs.as_array().unwrap().len(), 1, "nothing was begun");
}

fn events_at_every_process_end_when_access_is_withdrawn(place: &Place) {
    let server = place.start(Setup::example("reference_server").env("BACKSTITCH_API_KEYS", KEYS));
    // A second process, where there can be one: it is told of nothing.
    let replica = place.is_postgres().then(|| server.replica());
    let ann = Client::of(&server).with_key("key-a");
    let thread = new_thread();
    start(&ann, &thread, "approve", json!({"request": "pay"}));
    let member = format!("/threads/{thread}/members/bob");
    assert!(put(&ann, &member, &json!({"level": "reader"})).status < 300);
    let of_bob = |server| {
        let bob = Client::of(server).with_key("key-b");
        open(&bob, &thread, json!({"channels": ["lifecycle"]}))
    };
    let servers = [Some(&server), replica.as_ref()];
    let mut streams: Vec<_> = servers.into_iter().flatten().map(of_bob).collect();
    for stream in &mut streams {
        // What it shows proves that the access was read before it is withdrawn.
        assert_eq!(ends(stream, 1).len(), 2);
    }
    ok(ann.delete(&member), 204);
    let begin = Instant::now();
    for mut stream in streams {
        assert!(stream.breaks(), "it ended as if that were all");
        assert!(begin.elapsed() < LIMIT, "{:?}", begin.elapsed());
    }
}
