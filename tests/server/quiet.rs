//! What the log of a server says of runs that others replaced: nothing that needs anybody's care.

use serde_json::json;
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::Server;
use test_support::talk::{background, slow, turn, until, with};

on_both_storages!(
    a_run_that_another_one_supersedes_is_no_failure_in_the_log,
    a_run_whose_thread_is_deleted_is_no_failure_in_the_log,
    a_run_that_fails_is_a_failure_in_the_log,
);

/// The lines of a server's log that warn.
fn warnings(server: &Server) -> Vec<String> {
    let log = server.output();
    let lines = log.lines();
    lines
        .filter(|line| line.contains("WARN") || line.contains("ERROR"))
        .map(str::to_owned)
        .collect()
}

/// The same once every run has ended, which the drain waits for.
fn warnings_of_all(server: &mut Server) -> Vec<String> {
    assert!(server.terminate().success());
    until("all of the log is read", || {
        server.output().contains("draining")
    });
    warnings(server)
}

fn begun(client: &Client, thread: &str, run: &str) {
    let path = format!("/threads/{thread}/runs/{run}");
    until("the run has begun", || {
        client.get(&path).json()["status"] != json!("pending")
    });
}

fn a_run_that_another_one_supersedes_is_no_failure_in_the_log(place: &Place) {
    let (mut server, client) = serve(place);
    for strategy in ["interrupt", "rollback"] {
        for durability in ["sync", "async", "exit"] {
            let thread = client.thread();
            let first = with(slow(40, 100), "durability", durability);
            let run = background(&client, &thread, &first);
            begun(&client, &thread, &run);
            let next = with(slow(1, 1), "multitask_strategy", strategy);
            client.run(&thread, &next);
        }
    }
    assert_eq!(warnings_of_all(&mut server), Vec::<String>::new());
}

fn a_run_whose_thread_is_deleted_is_no_failure_in_the_log(place: &Place) {
    let (mut server, client) = serve(place);
    for durability in ["sync", "async", "exit"] {
        let thread = client.thread();
        // Several supersteps, some of which find that their thread is gone.
        client.run(&thread, &slow(1, 1));
        let run = background(
            &client,
            &thread,
            &with(slow(100, 4), "durability", durability),
        );
        begun(&client, &thread, &run);
        let deleted = client.delete(&format!("/threads/{thread}"));
        assert_eq!(deleted.status, 204, "{}", deleted.text());
    }
    assert_eq!(warnings_of_all(&mut server), Vec::<String>::new());
}

fn a_run_that_fails_is_a_failure_in_the_log(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let mut body = turn("hello");
    body["config"] = json!({"recursion_limit": 1});
    body["assistant_id"] = json!("counter");
    body["input"] = json!({"count": 0, "log": []});
    client.post(&format!("/threads/{thread}/runs/wait"), &body);
    until("the failure is logged", || !warnings(&server).is_empty());
    let log = warnings(&server);
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(log[0].contains("run failed"), "{log:?}");
}
