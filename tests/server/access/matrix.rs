//! Every route against every level, and against nobody.

use test_support::on_both_storages;

use super::*;
use test_support::routes::{Names, Right, all, of_threads};

on_both_storages!(
    every_route_of_a_thread_is_closed_to_strangers_as_if_there_were_none,
    every_route_of_a_thread_takes_its_level_and_no_more,
    administration_is_for_those_whom_the_settings_name,
);

/// Routes that say something else of a foreign thread than that there is none.
fn skips(path: &str) -> bool {
    // Foreign threads are passed over.
    path == "/threads/prune"
}

fn every_route_of_a_thread_is_closed_to_strangers_as_if_there_were_none(place: &Place) {
    let server = serve(place);
    let [ann, _, cid] = people(&server);
    let names = furnished(&ann, SECRET);
    let before = seen(&ann, &names.thread);
    for route in of_threads() {
        let nowhere = Names {
            thread: uuid::Uuid::now_v7().to_string(),
            ..names.clone()
        };
        let [of_none, of_anns] = [&nowhere, &names].map(|names| {
            let answer = send(&cid, route.method, &route.path(names), &route.body(names));
            let text = answer.text().replace(&names.thread, "THREAD");
            (answer.status, text)
        });
        if !skips(route.path) {
            assert_eq!(of_anns.0, 404, "{route:?}: {}", of_anns.1);
        }
        assert_eq!(of_anns, of_none, "{route:?}");
        assert!(!of_anns.1.contains(SECRET), "{route:?}");
    }
    assert_eq!(seen(&ann, &names.thread), before);
}

fn every_route_of_a_thread_takes_its_level_and_no_more(place: &Place) {
    let server = serve(place);
    let [ann, bob, _] = people(&server);
    for (level, name) in [
        (Right::Reader, "reader"),
        (Right::Writer, "writer"),
        (Right::Manager, "manager"),
    ] {
        let names = furnished(&ann, SECRET);
        grant(&ann, &names.thread, "bob", name);
        grant(&ann, &names.thread, "dora", "reader");
        let before = seen(&ann, &names.thread);
        let (may, may_not): (Vec<_>, Vec<_>) = of_threads()
            .into_iter()
            .partition(|route| route.right <= level);
        for route in may_not {
            let answer = send(&bob, route.method, &route.path(&names), &route.body(&names));
            assert_eq!(answer.status, 403, "{name} {route:?}: {}", answer.text());
            if route.method != "HEAD" {
                assert_eq!(talk::code(&answer, 403), "forbidden", "{name} {route:?}");
            }
        }
        assert_eq!(seen(&ann, &names.thread), before, "{name}");
        for route in may.into_iter().filter(|route| !skips(route.path)) {
            let answer = send(&bob, route.method, &route.path(&names), &route.body(&names));
            let refused = matches!(answer.status, 401 | 403)
                || answer.text().contains("Thread with ID")
                || answer.text().contains("Thread or assistant");
            assert!(!refused, "{name} {route:?}: {}", answer.text());
        }
    }
}

fn administration_is_for_those_whom_the_settings_name(place: &Place) {
    let server = serve(place);
    let [ann, ..] = people(&server);
    let root = Client::of(&server).with_key("key-r");
    let names = furnished(&ann, SECRET);
    for route in all() {
        if route.right != Right::Admin {
            continue;
        }
        let path = route.path(&names);
        let answer = send(&ann, route.method, &path, &route.body(&names));
        assert_eq!(talk::code(answer, 403), "forbidden", "{route:?}");
        let answer = send(&root, route.method, &path, &route.body(&names));
        assert!(answer.status < 300, "{route:?}: {}", answer.text());
    }
    // Without keys everybody on this machine may.
    let open = Setup::example("reference_server").start();
    let answer = Client::of(&open).post("/admin/projections/rebuild", &json!({}));
    assert_eq!(answer.status, 202, "{}", answer.text());
}
