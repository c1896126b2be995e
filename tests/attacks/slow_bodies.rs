//! Requests whose last byte is held back while rights change: on every route that takes a body.

use serde_json::json;
use test_support::access::{SECRET, bystander, furnished, grant, people, revoke, seen, serve};
use test_support::client::{Client, Held};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::routes::{Names, Right, Route, naming_threads, of_threads};
use test_support::talk::{self, get, put, store};

use crate::siege::{MIB, Watch};

on_both_storages!(
    a_thread_that_came_to_be_while_a_body_was_read_is_somebody_elses,
    rights_withdrawn_while_a_body_was_read_are_withdrawn,
    a_level_lowered_while_a_body_was_read_is_the_lower_one,
    a_manager_revoked_while_a_body_was_read_makes_nobody_an_owner,
);

/// What may come of many bodies that are held back, each of some hundred bytes.
const MOST: u64 = 64 * MIB;

/// Begins a request on each of the routes twice, without and with an idempotency key, and holds
/// its last byte back. The server reads the bodies by then.
fn hold(client: &Client, routes: Vec<Route>, names: &Names) -> Vec<(Route, Held)> {
    let mut held = vec![];
    for route in routes.into_iter().filter(Route::takes_body) {
        let body = route.body(names).to_string();
        let path = route.path(names);
        held.push((
            route,
            client.hold(route.method, &path, &[], body.as_bytes()),
        ));
        if route.method != "PATCH" {
            let key = uuid::Uuid::now_v7().to_string();
            let headers = [("idempotency-key", &*key)];
            held.push((
                route,
                client.hold(route.method, &path, &headers, body.as_bytes()),
            ));
        }
    }
    held
}

fn a_thread_that_came_to_be_while_a_body_was_read_is_somebody_elses(place: &Place) {
    let server = serve(place);
    let watch = Watch::beside(&server, &bystander(&server));
    let [ann, bob, _] = people(&server);
    let thread = uuid::Uuid::now_v7().to_string();
    let held = hold(&bob, naming_threads(), &Names::of(&thread));
    assert!(held.len() > 40, "{}", held.len());
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
    let before = seen(&ann, &thread);
    for (route, held) in held {
        let answer = held.finish();
        let text = answer.text();
        let expected = match route.path {
            "/threads" | "/commands/create-thread" => 409,
            "/threads/search" | "/threads/count" | "/threads/prune" | "/a2a/{assistant_id}" => 200,
            _ => 404,
        };
        assert_eq!(answer.status, expected, "{route:?}: {text}");
        assert!(!text.contains(SECRET), "{route:?}: {text}");
        if route.path == "/a2a/{assistant_id}" {
            assert_eq!(answer.json()["error"]["code"], -32001, "{text}");
        } else if expected == 200 {
            let nothing = [json!([]), json!(0), json!({"pruned_count": 0})];
            assert!(nothing.contains(&answer.json()), "{route:?}: {text}");
        }
    }
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
    grant(&ann, &names.thread, "bob", "owner");
    let held = hold(&bob, of_threads(), &names);
    assert!(held.len() > 35, "{}", held.len());
    revoke(&ann, &names.thread, "bob");
    let before = seen(&ann, &names.thread);
    for (route, held) in held {
        let answer = held.finish();
        if route.path == "/threads/prune" {
            assert_eq!(answer.json(), json!({"pruned_count": 0}));
        } else {
            assert_eq!(answer.status, 404, "{route:?}: {}", answer.text());
        }
    }
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
    let mut routes = of_threads();
    routes.retain(|route| route.right > Right::Reader);
    let held = hold(&bob, routes, &names);
    grant(&ann, &names.thread, "bob", "reader");
    let before = seen(&ann, &names.thread);
    for (route, held) in held {
        let answer = held.finish();
        assert_eq!(answer.status, 403, "{route:?}: {}", answer.text());
    }
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
