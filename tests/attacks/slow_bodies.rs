//! Requests whose last byte is held back while rights change: on every route that takes a body.

use serde_json::json;
use test_support::access::{SECRET, bystander, furnished, grant, people, revoke, seen, serve};
use test_support::client::{Client, Held};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::routes::{Names, Right, Route, all};
use test_support::talk::{self, get, ok, put, store};

use crate::siege::{MIB, Watch};

on_both_storages!(
    a_thread_that_came_to_be_while_a_body_was_read_is_somebody_elses,
    rights_withdrawn_while_a_body_was_read_are_withdrawn,
    a_level_lowered_while_a_body_was_read_is_the_lower_one,
    a_manager_revoked_while_a_body_was_read_makes_nobody_an_owner,
);

/// What may come of many bodies that are held back, each of some hundred bytes.
const MOST: u64 = 64 * MIB;

/// Routes whose bodies are not held back here, and why no right that changes meanwhile matters to them.
const ELSEWHERE: [(&str, &[&str]); 6] = [
    (
        "assistants are their creator's or everybody's: nobody gives or withdraws a level on them",
        &[
            "POST /assistants/search",
            "POST /assistants",
            "POST /assistants/count",
            "PATCH /assistants/{assistant_id}",
            "POST /assistants/{assistant_id}/versions",
            "POST /assistants/{assistant_id}/latest",
        ],
    ),
    (
        "items of long-term memory are their principal's alone",
        &[
            "PUT /store/items",
            "DELETE /store/items",
            "POST /store/items/search",
            "POST /store/namespaces",
        ],
    ),
    (
        "the settings say who may call it, which do not change while a server runs",
        &["POST /admin/projections/rebuild"],
    ),
    (
        "each run has a new thread of its own, whatever its body says",
        &[
            "POST /mcp",
            "POST /runs",
            "POST /runs/stream",
            "POST /runs/batch",
            "POST /runs/wait",
            "POST /runs/crons",
        ],
    ),
    (
        "lists of crons show those of their principal alone",
        &["POST /runs/crons/search", "POST /runs/crons/count"],
    ),
    (
        "a cron is its principal's, and each of its runs is checked when it is due",
        &["PATCH /runs/crons/{cron_id}"],
    ),
];

/// The route of messages to agents: a context is a thread.
const AGENTS: &str = "/a2a/{assistant_id}";
/// The route of the events of a thread, which never end and of which strangers see none.
const EVENTS: &str = "/threads/{thread_id}/stream/events";
/// The route of commands, which are refused in the body of its response.
const COMMANDS: &str = "/threads/{thread_id}/commands";

/// All other routes with a body.
fn routes_with_bodies() -> Vec<Route> {
    let mut elsewhere: Vec<&str> = ELSEWHERE
        .iter()
        .flat_map(|(_, all)| *all)
        .copied()
        .collect();
    let mut routes = all();
    routes.retain(|route| {
        let name = format!("{} {}", route.method, route.path);
        let count = elsewhere.len();
        elsewhere.retain(|one| *one != name);
        route.takes_body && elsewhere.len() == count
    });
    assert!(elsewhere.is_empty(), "no such routes: {elsewhere:?}");
    routes
}

/// Begins a request on each of the routes twice, without and with an idempotency key, and holds
/// its last byte back. The server reads the bodies by then.
fn hold(client: &Client, routes: Vec<Route>, names: &Names) -> Vec<(Route, Held)> {
    let mut held = vec![];
    for route in routes {
        let mut bodies = vec![route.body(names)];
        if route.path == AGENTS {
            let text = json!([{"kind": "text", "text": "x"}]);
            let message = json!({
                "kind": "message", "role": "user", "messageId": "m1", "contextId": names.thread, "parts": text,
            });
            bodies.push(json!({
                "jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message},
            }));
        }
        let path = route.path(names);
        for body in bodies {
            let body = body.to_string();
            let key = uuid::Uuid::now_v7().to_string();
            let with_key = [("idempotency-key", &*key)];
            held.push((
                route,
                client.hold(route.method, &path, &[], body.as_bytes()),
            ));
            if route.method != "PATCH" {
                held.push((
                    route,
                    client.hold(route.method, &path, &with_key, body.as_bytes()),
                ));
            }
        }
    }
    held
}

/// A run whose events the stream of a thread repeats to whoever may read it.
fn run_with_events(client: &Client, thread: &str) {
    let input = json!({"messages": [talk::user(SECRET)]});
    let command = json!({
        "id": 1, "method": "run.start", "params": {"assistant_id": "agent", "input": input},
    });
    let reply = ok(
        client.post(&format!("/threads/{thread}/commands"), &command),
        200,
    );
    let run = reply["result"]["run_id"].as_str().unwrap();
    assert_eq!(client.end_of(thread, run), "success");
    let path = format!("/threads/{thread}/stream/events");
    let mut open = client.open("POST", &path, &[], br#"{"channels":["lifecycle"]}"#);
    assert_eq!(open.event().unwrap().name, "lifecycle");
}

/// Sends the last bytes to a server on which the thread is somebody else's by then: it is told nowhere that there is
/// such a thread, but where one with its id was to be made.
fn finish_as_a_stranger(held: Vec<(Route, Held)>) {
    let mut streams = vec![];
    for (route, held) in held {
        if route.path == EVENTS {
            streams.push(held.open());
            continue;
        }
        let answer = held.finish();
        let text = answer.text();
        let expected = match route.path {
            "/threads" | "/commands/create-thread" => 409,
            "/threads/search" | "/threads/count" | "/threads/prune" | AGENTS | COMMANDS => 200,
            _ => 404,
        };
        assert_eq!(answer.status, expected, "{route:?}: {text}");
        assert!(!text.contains(SECRET), "{route:?}: {text}");
        if route.path == AGENTS {
            // No such task, or no such context.
            let code = &answer.json()["error"]["code"];
            assert!(*code == -32001 || *code == -32602, "{text}");
        } else if route.path == COMMANDS {
            assert_eq!(answer.json()["error"], "unknown_error", "{text}");
        } else if expected == 200 {
            let nothing = [json!([]), json!(0), json!({"pruned_count": 0})];
            assert!(nothing.contains(&answer.json()), "{route:?}: {text}");
        }
    }
    for mut stream in streams {
        assert_eq!(stream.status, 200);
        assert_eq!(stream.chunk().unwrap(), b": heartbeat\r\n\r\n");
    }
}

fn a_thread_that_came_to_be_while_a_body_was_read_is_somebody_elses(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let thread = uuid::Uuid::now_v7().to_string();
    let held = hold(&bob, routes_with_bodies(), &Names::of(&thread));
    assert!(held.len() > 50, "{}", held.len());
    let more = json!({"thread_id": thread, "if_exists": "do_nothing"}).to_string();
    let done_nothing = bob.hold("POST", "/threads", &[], more.as_bytes());
    talk::create(
        &ann,
        &json!({"thread_id": thread, "metadata": {"graph_id": "agent", "word": SECRET}}),
    );
    store(
        &ann,
        &thread,
        &json!({"id": "u1", "role": "user", "content": SECRET}),
    );
    run_with_events(&ann, &thread);
    let before = seen(&ann, &thread);
    finish_as_a_stranger(held);
    let answer = done_nothing.finish();
    assert_eq!(answer.status, 409, "{}", answer.text());
    assert!(!answer.text().contains(SECRET));
    assert_eq!(seen(&ann, &thread), before);
    watch.held("bodies of a thread to come", MOST);
}

fn rights_withdrawn_while_a_body_was_read_are_withdrawn(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let names = furnished(&ann, SECRET);
    run_with_events(&ann, &names.thread);
    grant(&ann, &names.thread, "bob", "owner");
    let held = hold(&bob, routes_with_bodies(), &names);
    revoke(&ann, &names.thread, "bob");
    let before = seen(&ann, &names.thread);
    finish_as_a_stranger(held);
    assert_eq!(seen(&ann, &names.thread), before);
    // A refusal is not an answer to keep: who gets the right back may repeat the request.
    let log = server.output();
    assert!(log.contains("access was refused"), "{log}");
    watch.held("bodies of a client whose rights go", MOST);
}

fn a_level_lowered_while_a_body_was_read_is_the_lower_one(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let names = furnished(&ann, SECRET);
    grant(&ann, &names.thread, "bob", "manager");
    let mut routes = routes_with_bodies();
    routes.retain(|route| route.right > Right::Reader || route.path == AGENTS);
    let held = hold(&bob, routes, &names);
    grant(&ann, &names.thread, "bob", "reader");
    let before = seen(&ann, &names.thread);
    let mut seen_tasks = 0;
    for (route, held) in held {
        let answer = held.finish();
        let text = answer.text();
        match route.path {
            COMMANDS => assert_eq!(answer.json()["error"], "permission_denied", "{text}"),
            // Whoever may read a thread may see its tasks.
            AGENTS if answer.status == 200 => {
                assert_eq!(answer.json()["result"]["kind"], "task", "{text}");
                seen_tasks += 1;
            }
            _ => assert_eq!(answer.status, 403, "{route:?}: {text}"),
        }
    }
    assert_eq!(seen_tasks, 2);
    assert_eq!(seen(&ann, &names.thread), before);
    watch.held("bodies of a client whose level is lowered", MOST);
}

fn a_manager_revoked_while_a_body_was_read_makes_nobody_an_owner(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let names = furnished(&ann, SECRET);
    let members = format!("/threads/{}/members", names.thread);
    for who in ["bob", "cid"] {
        grant(&ann, &names.thread, "bob", "manager");
        let path = format!("{members}/{who}");
        let held = bob.hold("PUT", &path, &[], br#"{"level":"owner"}"#);
        revoke(&ann, &names.thread, "bob");
        let answer = held.finish();
        assert_eq!(answer.status, 404, "{}", answer.text());
        let owner = json!([{"principal": "ann", "level": "owner"}]);
        assert_eq!(get(&ann, &names.thread, "members")["members"], owner);
    }
    // Nor does one who still is a manager.
    grant(&ann, &names.thread, "bob", "manager");
    let answer = put(&bob, &format!("{members}/bob"), &json!({"level": "owner"}));
    answer.refused(403);
    watch.held("bodies of a manager who is revoked", MOST);
}
