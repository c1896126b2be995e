//! Access that is withdrawn between the check before a read and its end: on every route that reads a thread.

use test_support::gate::{Gate, reached};
use test_support::on_both_storages;
use test_support::routes::{Right, of_threads};
use test_support::talk::until;

use super::*;

on_both_storages!(what_was_read_while_access_was_withdrawn_is_not_shown);

fn what_was_read_while_access_was_withdrawn_is_not_shown(place: &Place) {
    let mut server = serve(place);
    let [ann, ..] = people(&server);
    let names = furnished(&ann, SECRET);
    let thread = names.thread.clone();
    grant(&ann, &thread, "bob", "writer");
    let gate = Gate::new();
    server.restart_with("FAILPOINTS", &gate.at("threads.confirm"));
    let [ann, bob, _] = people(&server);
    // Whoever waits there has read everything.
    let closed = gate.close();
    let mut requests = vec![];
    for route in of_threads() {
        let waits_for_a_run = ["/join", "/stream", "/copy"].iter();
        if route.right == Right::Reader
            && !waits_for_a_run.clone().any(|end| route.path.ends_with(end))
        {
            let (mut path, mut body) = (route.path(&names), route.body(&names));
            // What is in memory of a state is shown as of the check, in the same read. This reads more.
            if route.path.contains("/state") {
                if body.is_null() {
                    path.push_str("?subgraphs=true");
                } else {
                    body["subgraphs"] = true.into();
                }
            }
            requests.push((route.method, path, body, 404));
        }
    }
    assert!(requests.len() > 30, "{requests:?}");
    let patch = json!({"metadata": {"by": "bob"}});
    requests.push(("PATCH", format!("/threads/{thread}"), patch, 404));
    let existing = json!({"thread_id": thread, "if_exists": "do_nothing"});
    requests.push(("POST", "/threads".into(), existing, 409));
    requests.push(("POST", "/threads/search".into(), json!({}), 404));
    let answers = std::thread::scope(|scope| {
        let answers: Vec<_> = requests
            .iter()
            .map(|(method, path, body, _)| {
                let bob = bob.clone();
                scope.spawn(move || send(&bob, method, path, body))
            })
            .collect();
        until("all of them have read", || {
            reached(&server) >= requests.len()
        });
        revoke(&ann, &thread, "bob");
        drop(closed);
        let answers = answers.into_iter().map(|answer| answer.join().unwrap());
        answers.collect::<Vec<_>>()
    });
    for ((method, path, _, expected), answer) in requests.iter().zip(answers) {
        let text = answer.text();
        assert_eq!(answer.status, *expected, "{method} {path}: {text}");
        assert!(!text.contains(SECRET), "{method} {path}: {text}");
    }
    // Each was refused after the read, which the server says.
    until("the log has each refusal", || {
        let log = server.output();
        log.matches("access was refused").count() >= requests.len()
    });
}
