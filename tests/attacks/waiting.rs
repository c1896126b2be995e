//! More waiting runs than a process retains streams for: nothing but memory is different.

use std::time::{Duration, Instant};

use serde_json::json;
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk::{background, ok, slow, until};

use crate::siege::{MIB, Watch, rounds};

on_both_storages!(
    runs_that_nobody_watches_wait_as_rows_and_are_found_there,
    stateless_runs_wait_as_rows_and_their_results_are_found,
);

/// A server that retains so many waiting runs.
fn setup(known: usize) -> Setup {
    Setup::example("reference_server").env("BACKSTITCH_KNOWN_WAITING", known.to_string())
}

fn runs_that_nobody_watches_wait_as_rows_and_are_found_there(place: &Place) {
    let server = place.start(setup(3));
    let watch = Watch::of(&server);
    let client = &Client::of(&server);
    let thread = &client.thread();
    let runs = format!("/threads/{thread}/runs");
    let gate = background(client, thread, &slow(3_600_000, 1));
    // Thirty of the fewer ones are not known: a poll of the queue a second would take twice as long as all may.
    let count = if rounds() < 10 { 33 } else { 40 };
    let queued: Vec<String> = (0..count)
        .map(|_| background(client, thread, &slow(1, 1)))
        .collect();
    let (joined, read, cancelled) = (&queued[2], &queued[4], &queued[6]);
    std::thread::scope(|scope| {
        let result = scope.spawn(|| client.get(&format!("{runs}/{joined}/join")));
        let stream = scope.spawn(|| {
            let path = format!("{runs}/{read}/stream?stream_mode=values");
            client.get(&path).text().to_owned()
        });
        let cancel = client.post(&format!("{runs}/{cancelled}/cancel"), &json!({}));
        assert_eq!(cancel.status, 202, "{}", cancel.text());
        std::thread::sleep(Duration::from_millis(300));
        let begin = Instant::now();
        let open = client.post(&format!("{runs}/{gate}/cancel"), &json!({}));
        assert_eq!(open.status, 202, "{}", open.text());
        for run in &queued {
            let expected = if run == cancelled {
                "interrupted"
            } else {
                "success"
            };
            assert_eq!(client.end_of(thread, run), expected);
        }
        // A poll of the queue a second would take longer.
        assert!(
            begin.elapsed() < Duration::from_secs(15),
            "{:?}",
            begin.elapsed()
        );
        assert!(ok(result.join().unwrap(), 200).is_object());
        let stream = stream.join().unwrap();
        assert!(stream.contains("event: values"), "{stream}");
    });
    watch.held("runs that nobody watches", 64 * MIB);
}

fn stateless_runs_wait_as_rows_and_their_results_are_found(place: &Place) {
    let setup = setup(0).env("BACKSTITCH_SLOTS", "1");
    let server = place.start(setup);
    let watch = Watch::of(&server);
    let client = &Client::of(&server);
    let thread = client.thread();
    let gate = background(client, &thread, &slow(3_600_000, 1));
    let created: Vec<_> = (0..3)
        .map(|_| ok(client.post("/runs", &slow(1, 1)), 200))
        .collect();
    std::thread::scope(|scope| {
        let joins: Vec<_> = created
            .iter()
            .map(|run| {
                let (thread, run) = (run["thread_id"].as_str(), run["run_id"].as_str());
                let path = format!("/threads/{}/runs/{}/join", thread.unwrap(), run.unwrap());
                scope.spawn(move || client.get(&path))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        let path = format!("/threads/{thread}/runs/{gate}/cancel");
        assert_eq!(client.post(&path, &json!({})).status, 202);
        for join in joins {
            let result = ok(join.join().unwrap(), 200);
            assert!(result.get("__error__").is_none(), "{result}");
        }
    });
    until("no stateless thread is left", || {
        let threads = ok(client.post("/threads/search", &json!({})), 200);
        threads.as_array().is_some_and(|threads| threads.len() == 1)
    });
    watch.held("stateless runs that wait", 64 * MIB);
}
