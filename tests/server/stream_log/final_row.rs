//! What a run with a stored stream writes when it ends.

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::tables::rows;
use test_support::talk::{self, with};

use super::{join, names, number, of_thread, rest, serve};

on_both_storages!(
    who_watches_a_thread_is_shown_the_end_of_a_run_whose_process_died_with_it,
    a_run_that_another_one_interrupts_has_one_end_in_the_stream_of_the_thread,
);

/// What the transaction of a final row wrote of the log of its run.
const WITH_THE_ROW: &str = "SELECT CAST(count(*) AS text), CAST(max(e.last_seq) AS text) FROM runs r \
     JOIN run_events e ON e.run_id = r.run_id AND e.xmin = r.xmin WHERE CAST(r.run_id AS text) = ";

#[test]
fn the_last_frames_are_stored_with_the_final_row() {
    let place = Place::postgres();
    let (server, client) = serve(&place);
    let resumable = |body: Value| with(body, "stream_resumable", true);
    let failing = json!({"assistant_id": "failing", "input": {"fail": true}});
    let waiting = json!({"assistant_id": "approve", "input": {"request": "r"}});
    for body in [talk::slow(1, 3), failing, waiting, talk::turn("hello")] {
        let thread = match body["assistant_id"].as_str() {
            Some("agent") => talk::agent_thread(&client),
            _ => client.thread(),
        };
        let mut open = client.open_stream(&thread, &resumable(body));
        let run = open.run();
        let shown: Vec<_> = std::iter::from_fn(|| open.event()).collect();
        // The end follows what the run itself shows.
        let end = number(shown.last().unwrap()) + 1;
        let sql = format!("{WITH_THE_ROW}'{run}'");
        let found = rows(&place, &server, &sql).remove(0);
        assert_ne!(found[0].as_deref(), Some("0"));
        assert_eq!(found[1].as_deref(), Some(&*end.to_string()), "{shown:?}");
        // Readers who come later see the same.
        assert_eq!(rest(join(&client, &thread, &run, "-1")), shown);
    }
}

/// The process dies once the end of a run is stored, and before anybody was shown it.
fn who_watches_a_thread_is_shown_the_end_of_a_run_whose_process_died_with_it(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_LEASE", "1");
    let mut server = place.start(setup.env("FAILPOINTS", "engine::after_commit=abort"));
    let client = Client::of(&server);
    let thread = client.thread();
    // Nothing of it is written before its end.
    let body = with(
        with(talk::slow(1, 2), "stream_resumable", true),
        "durability",
        "exit",
    );
    let path = format!("/threads/{thread}/runs/stream");
    let mut open = client.open("POST", &path, &[], body.to_string().as_bytes());
    let run = open.run();
    while open.chunk_or_break().is_some() {}
    server.restart_with("FAILPOINTS", "");
    let client = Client::of(&server);
    assert_eq!(client.end_of(&thread, &run), "success");
    let row = client.get(&format!("/threads/{thread}/runs/{run}")).json();
    let watched = of_thread(&client, &thread, 1);
    assert_eq!(watched.last().unwrap().data["run_id"], *run);
    let shown = rest(join(&client, &thread, &run, "-1"));
    assert_eq!(names(&shown).last(), Some(&"values"), "{shown:?}");
    assert!(
        shown.iter().all(|event| event.data["attempt"] != 2),
        "{row}"
    );
}

/// The other one writes the final row, while the run is in a node and has nothing to store.
fn a_run_that_another_one_interrupts_has_one_end_in_the_stream_of_the_thread(place: &Place) {
    let (server, client) = serve(place);
    let thread = client.thread();
    let resumable = |body: Value| with(body, "stream_resumable", true);
    let mut open = client.open_stream(&thread, &resumable(talk::slow(200, 1000)));
    let first = open.run();
    open.event_named("custom");
    let body = resumable(with(talk::slow(1, 1), "multitask_strategy", "interrupt"));
    client.stream(&thread, &body);
    assert_eq!(client.end_of(&thread, &first), "interrupted");
    let watched = of_thread(&client, &thread, 2);
    let ends = watched
        .iter()
        .filter(|event| event.data["status"] == "run_done" && event.data["run_id"] == *first);
    assert_eq!(ends.count(), 1, "{watched:?}");
    let shown: Vec<_> = std::iter::from_fn(|| open.event()).collect();
    // What it had shown before is there too, and nothing more.
    let stored = rest(join(&client, &thread, &first, "-1"));
    assert!(stored.ends_with(&shown), "{stored:?}: {}", server.output());
}
