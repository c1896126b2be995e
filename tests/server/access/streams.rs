//! Open streams whose client loses its access: they end soon, at every process.

use std::time::{Duration, Instant};

use test_support::client::Open;
use test_support::on_both_storages;

use super::*;
use crate::agents::assistant;

on_both_storages!(
    every_kind_of_stream_ends_when_access_is_withdrawn,
    messages_and_calls_of_agents_end_when_access_is_withdrawn,
    streams_of_others_go_on,
    streams_opened_with_access_given_anew_stay_open,
    the_stream_of_a_thread_shows_a_stranger_nothing,
);

/// The longest that a stream may outlive the access of its client.
const LIMIT: Duration = Duration::from_secs(5);

/// Streams of every kind on a thread whose run is executed.
pub(crate) fn every_kind(client: &Client, thread: &str, run: &str) -> Vec<Open> {
    let log = [("accept", "text/event-stream")];
    let paths = [
        (format!("/threads/{thread}/events"), &log[..]),
        (format!("/runs/{run}/stream"), &[]),
        (format!("/runs/{run}/join"), &[]),
        (format!("/threads/{thread}/runs/{run}/stream"), &[]),
        (format!("/threads/{thread}/runs/{run}/join"), &[]),
        (format!("/threads/{thread}/stream"), &[]),
    ];
    let open = paths.into_iter().map(|(path, headers)| {
        let open = client.open("GET", &path, headers, b"");
        assert_eq!(open.status, 200, "{path}");
        open
    });
    open.collect()
}

fn every_kind_of_stream_ends_when_access_is_withdrawn(place: &Place) {
    let server = serve(place);
    // A second process, where there can be one: it is told of nothing.
    let replica = place.is_postgres().then(|| server.replica());
    let [ann, bob, _] = people(&server);
    let other = replica.as_ref().map(people);
    let thread = ann.thread();
    grant(&ann, &thread, "bob", "reader");
    let mut own = ann.open_stream(&thread, &talk::slow(100, 300));
    own.event_named("custom");
    let run = own.run();
    let mut open = every_kind(&bob, &thread, &run);
    if let Some([_, bob, _]) = &other {
        open.extend(every_kind(bob, &thread, &run));
    }
    revoke(&ann, &thread, "bob");
    let begin = Instant::now();
    for mut stream in open {
        assert!(stream.breaks(), "it ended as if that were all");
        assert!(begin.elapsed() < LIMIT, "{:?}", begin.elapsed());
    }
    // The run goes on: it is not that of the client.
    let status = get(&ann, &thread, "runs")[0]["status"].clone();
    assert_eq!(status, "running");
}

fn messages_and_calls_of_agents_end_when_access_is_withdrawn(place: &Place) {
    let server = serve(place);
    let [ann, bob, cid] = people(&server);
    let rpc = |client: &Client, path: &str, method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let accept = [("accept", "application/json, text/event-stream")];
        let open = client.open("POST", path, &accept, body.to_string().as_bytes());
        assert_eq!(open.status, 200, "{method}");
        open
    };
    // It would take ten minutes.
    let input = json!({"ms": 50, "ticks": 12_000});
    let path = format!("/a2a/{}", assistant("slow"));
    for method in ["message/stream", "message/send"] {
        let thread = ann.thread();
        grant(&ann, &thread, "bob", "writer");
        grant(&ann, &thread, "cid", "reader");
        let message = json!({"role": "user", "messageId": "m", "contextId": thread,
                             "parts": [{"kind": "data", "data": input}]});
        let mut of_bob = rpc(&bob, &path, method, json!({"message": message}));
        talk::until("the run is executed", || {
            get(&cid, &thread, "runs")[0]["status"] == "running"
        });
        revoke(&ann, &thread, "bob");
        let begin = Instant::now();
        while of_bob.chunk_or_break().is_some() {}
        assert!(begin.elapsed() < LIMIT, "{method}: {:?}", begin.elapsed());
    }
    // The thread of a call is its client's own, until it is given away.
    let call = json!({"name": "slow", "arguments": input});
    let mut of_bob = rpc(&bob, "/mcp", "tools/call", call);
    let list = || bob.get("/threads").json();
    talk::until("the call has a thread", || list()[0].is_object());
    let thread = talk::id_of(&list()[0]);
    grant(&bob, &thread, "cid", "owner");
    revoke(&cid, &thread, "bob");
    let begin = Instant::now();
    assert!(of_bob.breaks(), "it ended as if that were all");
    assert!(begin.elapsed() < LIMIT, "{:?}", begin.elapsed());
}

fn streams_of_others_go_on(place: &Place) {
    let server = serve(place);
    let [ann, bob, cid] = people(&server);
    let thread = ann.thread();
    grant(&ann, &thread, "bob", "writer");
    grant(&ann, &thread, "cid", "reader");
    let mut own = ann.open_stream(&thread, &talk::slow(100, 120));
    own.event_named("custom");
    let run = own.run();
    let mut of_cid = every_kind(&cid, &thread, &run);
    let mut of_bob = every_kind(&bob, &thread, &run);
    // A lower level still reads.
    grant(&ann, &thread, "bob", "reader");
    revoke(&ann, &thread, "cid");
    for stream in &mut of_cid {
        assert!(stream.breaks());
    }
    // The stream of the thread goes on.
    let mut of_thread = of_bob.pop().unwrap();
    assert_eq!(of_thread.event_named("custom").name, "custom");
    let joined = of_bob.pop().unwrap().rest();
    let joined: Value = serde_json::from_slice(&joined).unwrap();
    assert_eq!(joined["seen"], json!(["work", "rest"]));
    assert!(!of_bob.pop().unwrap().breaks());
    while let Some(event) = own.event() {
        assert_ne!(event.name, "error", "{event:?}");
    }
}

fn streams_opened_with_access_given_anew_stay_open(place: &Place) {
    let server = serve(place);
    let [ann, bob, _] = people(&server);
    let thread = talk::agent_thread(&ann);
    grant(&ann, &thread, "bob", "writer");
    // More than connections hold, so that the server cannot get rid of it: nobody reads.
    let modes = json!(["values", "updates", "tasks", "checkpoints", "debug"]);
    let loud = talk::with(talk::turn(&"x".repeat(3_000_000)), "stream_mode", modes);
    let unread = bob.open_stream(&thread, &loud);
    assert_eq!(ann.end_of(&thread, &unread.run()), "success");
    revoke(&ann, &thread, "bob");
    talk::until("the old stream is withdrawn", || {
        server
            .output()
            .contains("access was withdrawn from open streams")
    });
    grant(&ann, &thread, "bob", "reader");
    let mut again = bob.open("GET", &format!("/threads/{thread}/stream"), &[], b"");
    ann.run(&thread, &talk::turn("hello"));
    assert_eq!(again.event_named("metadata").name, "metadata");
    drop(unread);
}

pub(super) fn the_stream_of_a_thread_shows_a_stranger_nothing(place: &Place) {
    let server = serve(place);
    let [ann, bob, cid] = people(&server);
    let id = uuid::Uuid::now_v7().to_string();
    // Nobody knows yet whose it will be.
    let path = format!("/threads/{id}/stream");
    let mut of_ann = ann.open("GET", &path, &[], b"");
    ok(ann.post("/threads", &json!({"thread_id": id})), 200);
    let mut late = bob.open("GET", &path, &[], b"");
    let mut of_cid = cid.open("GET", &path, &[], b"");
    grant(&ann, &id, "bob", "reader");
    let body = talk::with(talk::slow(10, 1), "stream_resumable", true);
    ann.run(&id, &body);
    assert_eq!(of_ann.event_named("metadata").name, "metadata");
    // Who may read it when the stream begins sees it, others see nothing until they come again.
    let mut again = bob.open("GET", &path, &[("last-event-id", "-")], b"");
    assert_eq!(again.event_named("metadata").name, "metadata");
    for silent in [&mut of_cid, &mut late] {
        assert_eq!(silent.status, 200);
        let heartbeat = String::from_utf8(silent.chunk().unwrap()).unwrap();
        assert_eq!(heartbeat, ": heartbeat\r\n\r\n");
    }
}
