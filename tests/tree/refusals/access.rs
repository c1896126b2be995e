//! Threads that are not there or somebody else's, and levels that are too low.

use super::*;
use test_support::on_both_storages;
use test_support::server::Setup;

on_both_storages!(
    no_operation_finds_a_thread_that_is_not_there,
    no_operation_takes_a_thread_id_that_is_none,
    no_operation_shows_a_stranger_that_a_thread_is_there,
    every_operation_asks_for_its_level,
);

/// Who may.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Level {
    Reader,
    Writer,
    Manager,
    Owner,
}
use Level::{Manager, Owner, Reader, Writer};

/// An operation on a thread: who may, whether LangGraph has none like it (then each refusal has a
/// code), method, path below the thread (`/` begins a path of its own), body.
type Operation = (Level, bool, &'static str, &'static str, Value);

/// Operations on one thread. The body of a command takes the thread's id.
fn operations() -> Vec<Operation> {
    let run = json!({"assistant_id": "agent", "input": {"messages": [user("new")]}});
    vec![
        (
            Writer,
            true,
            "POST",
            "/commands/send-message",
            json!({"thread_id": "", "content": "x"}),
        ),
        (
            Writer,
            true,
            "POST",
            "/commands/fork-thread",
            json!({"source_thread_id": ""}),
        ),
        (Writer, true, "POST", "fork", json!({})),
        (Reader, true, "GET", "forks", Value::Null),
        (Writer, true, "POST", "messages", user("new")),
        (Reader, true, "GET", "messages", Value::Null),
        (Reader, true, "GET", "branches", Value::Null),
        (Writer, true, "POST", "branches", json!({"name": "x"})),
        (Writer, true, "POST", "rewind", json!({"message_id": "u1"})),
        (Writer, true, "POST", "btw", json!({})),
        (Writer, true, "POST", "restore", json!({"tag": "t"})),
        (Writer, true, "POST", "branches/main-v2/activate", json!({})),
        (
            Writer,
            true,
            "PATCH",
            "branches/main-v2",
            json!({"name": "x"}),
        ),
        (Writer, true, "DELETE", "branches/main-v2", Value::Null),
        (Writer, true, "PUT", "tags/x", json!({})),
        (Reader, true, "GET", "tags", Value::Null),
        (Reader, true, "GET", "tags/t", Value::Null),
        (Writer, true, "DELETE", "tags/t", Value::Null),
        (Reader, true, "GET", "tree", Value::Null),
        (Reader, true, "GET", "head", Value::Null),
        (Reader, true, "GET", "events", Value::Null),
        (
            Reader,
            true,
            "GET",
            "diff?from=branch:main&to=branch:main-v2",
            Value::Null,
        ),
        (Reader, true, "GET", "members", Value::Null),
        (
            Manager,
            true,
            "PUT",
            "members/dora",
            json!({"level": "reader"}),
        ),
        (Manager, true, "DELETE", "members/bob", Value::Null),
        (Reader, false, "GET", "", Value::Null),
        (Writer, false, "PATCH", "", json!({"metadata": {"x": 1}})),
        (Owner, false, "DELETE", "", Value::Null),
        (Owner, false, "DELETE", "?scope=tree", Value::Null),
        (Owner, false, "DELETE", "?dry_run=true", Value::Null),
        (Reader, false, "GET", "state", Value::Null),
        (
            Writer,
            false,
            "POST",
            "state",
            json!({"values": {"messages": []}}),
        ),
        (Reader, false, "GET", "history", Value::Null),
        (Reader, false, "POST", "history", json!({})),
        (Reader, false, "GET", "runs", Value::Null),
        (Writer, false, "POST", "runs", run.clone()),
        (Writer, false, "POST", "runs/wait", run.clone()),
        (Writer, false, "POST", "runs/stream", run),
        (Reader, false, "POST", "copy", Value::Null),
    ]
}

fn on(thread: &str, (.., method, path, body): &Operation) -> Request {
    let mut body = body.clone();
    for name in ["thread_id", "source_thread_id"] {
        if body.get(name).is_some() {
            body[name] = json!(thread);
        }
    }
    let path = if path.starts_with('/') {
        (*path).to_owned()
    } else {
        format!("/threads/{thread}/{path}").replace("/?", "?")
    };
    (*method, path.trim_end_matches('/').to_owned(), body)
}

/// Every operation on `thread` is refused with this status, those of ours with this code.
fn refused(family: &Family, thread: &str, status: u16, expected: &str) {
    let rows = operations().into_iter().map(|operation| {
        let code = if operation.1 { expected } else { "" };
        (on(thread, &operation), status, code)
    });
    family.refuses(rows.collect());
}

fn no_operation_finds_a_thread_that_is_not_there(place: &Place) {
    refused(&Family::new(place), &nothing(), 404, "thread_not_found");
}

fn no_operation_takes_a_thread_id_that_is_none(place: &Place) {
    refused(&Family::new(place), "nothing", 422, "invalid_request");
}

/// A server with keys, and a family of ann's.
fn shared(place: &Place) -> Family {
    let keys = "ann=key-a,bob=key-b,cid=key-c";
    let setup = Setup::example("reference_server").env("BACKSTITCH_API_KEYS", keys);
    let server = place.start(setup);
    let ann = Client::of(&server).with_key("key-a");
    Family::of(server, ann)
}

fn no_operation_shows_a_stranger_that_a_thread_is_there(place: &Place) {
    let family = shared(place);
    let cid = family.client.with_key("key-c");
    let before = family.seen();
    for operation in operations() {
        // To the letter what is said of one that is nowhere.
        let unknown = nothing();
        let of_none = send(&cid, &on(&unknown, &operation));
        let of_anns = send(&cid, &on(&family.thread, &operation));
        assert_eq!(of_anns.status, 404, "{operation:?}: {}", of_anns.text());
        let told = of_none.text().replace(&unknown, &family.thread);
        assert_eq!(of_anns.text(), told, "{operation:?}");
    }
    assert_eq!(family.seen(), before);
}

fn every_operation_asks_for_its_level(place: &Place) {
    let family = shared(place);
    let bob = family.client.with_key("key-b");
    for (level, name) in [(Reader, "reader"), (Writer, "writer"), (Manager, "manager")] {
        let path = format!("/threads/{}/members/bob", family.thread);
        let granted = put(&family.client, &path, &json!({"level": name}));
        assert!(granted.status < 300, "{}", granted.text());
        let before = family.seen();
        for operation in operations() {
            let request = on(&family.thread, &operation);
            if operation.0 > level {
                assert_eq!(
                    code(send(&bob, &request), 403),
                    "forbidden",
                    "{name} {request:?}"
                );
            } else if operation.0 == Reader && operation.2 == "GET" {
                let answer = send(&bob, &request);
                assert_eq!(answer.status, 200, "{name} {request:?}: {}", answer.text());
            }
        }
        assert_eq!(family.seen(), before, "{name}");
    }
}
