//! Runs that are stopped while supersteps of theirs wait for the database: what they have done is stored first.

use std::{fs, path::PathBuf, thread, time::Duration};

use serde_json::json;
use test_support::{
    client::Client,
    on_both_storages,
    place::Place,
    server::{Server, Setup},
    talk::{background, until, with},
};

use super::{is_complete, repeats::executed, stored, supersteps};

on_both_storages!(
    a_cancelled_run_ends_when_what_it_has_done_is_stored,
    a_run_that_is_handed_over_goes_on_behind_what_it_has_done,
    a_run_that_stores_its_last_state_alone_is_handed_over_with_what_it_has_done,
);

/// Supersteps of a run.
const MANY: usize = 300;

/// A run that goes on ahead of its commits, which wait as long as a file exists.
struct Waiting {
    server: Server,
    client: Client,
    thread: String,
    run: String,
    gate: PathBuf,
    trace: PathBuf,
    _folder: tempfile::TempDir,
}

impl Waiting {
    fn start(place: &Place) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (gate, trace) = (folder.path().join("gate"), folder.path().join("trace"));
        let point = format!("engine::before_commit=while({})", gate.display());
        let setup = Setup::example("faulty_server")
            .env("BACKSTITCH_DRAIN", "0")
            .env("BACKSTITCH_RUN_AHEAD", "1000")
            .env("BACKSTITCH_RUN_AHEAD_AGE", "60000")
            .env("FAILPOINTS", point);
        let server = place.start(setup);
        let client = Client::of(&server);
        let thread = client.thread();
        let body = supersteps(MANY, json!({"trace": trace, "pause": 10}));
        let run = background(&client, &thread, &body);
        until("the run is under way", || executed(&trace).0 > 10);
        fs::write(&gate, "").unwrap();
        until("the run is ahead", || {
            executed(&trace).0 > stored(place, &server) + 20
        });
        Self {
            server,
            client,
            thread,
            run,
            gate,
            trace,
            _folder: folder,
        }
    }

    /// Fails unless each superstep that was executed is stored; the last one may have been cut off.
    fn is_stored(&self, place: &Place) {
        let done = executed(&self.trace).0;
        let stored = stored(place, &self.server) - 1;
        println!("{stored} of {done} supersteps are stored");
        assert!(stored == done || stored + 1 == done, "{stored} of {done}");
        is_complete(place, &self.server, stored);
    }
}

fn a_cancelled_run_ends_when_what_it_has_done_is_stored(place: &Place) {
    let waiting = Waiting::start(place);
    let path = format!("/threads/{}/runs/{}", waiting.thread, waiting.run);
    let client = &waiting.client;
    thread::scope(|scope| {
        let cancel = scope.spawn(|| client.post(&format!("{path}/cancel?wait=true"), &json!({})));
        thread::sleep(Duration::from_millis(500));
        assert!(!cancel.is_finished(), "it waits for the commits");
        assert_eq!(client.get(&path).json()["status"], "running");
        fs::remove_file(&waiting.gate).unwrap();
        let cancelled = cancel.join().unwrap();
        assert!(cancelled.status < 300, "{}", cancelled.text());
    });
    assert_eq!(client.get(&path).json()["status"], "interrupted");
    waiting.is_stored(place);
}

fn a_run_that_is_handed_over_goes_on_behind_what_it_has_done(place: &Place) {
    let mut waiting = Waiting::start(place);
    waiting.server.signal("TERM");
    thread::sleep(Duration::from_millis(500));
    assert!(waiting.server.is_alive(), "it waits for the commits");
    fs::remove_file(&waiting.gate).unwrap();
    assert!(waiting.server.wait().success());
    waiting.is_stored(place);
    waiting.server.restart();
    let client = Client::of(&waiting.server);
    assert_eq!(
        client.end_of(&waiting.thread, &waiting.run),
        "error",
        "its limit"
    );
    is_complete(place, &waiting.server, MANY);
    let (_, twice) = executed(&waiting.trace);
    // The one that had just begun.
    assert!(twice <= 1, "{twice} supersteps were repeated");
}

fn a_run_that_stores_its_last_state_alone_is_handed_over_with_what_it_has_done(place: &Place) {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let setup = Setup::example("faulty_server").env("BACKSTITCH_DRAIN", "0");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    let thread = client.thread();
    let body = supersteps(MANY, json!({"trace": trace, "pause": 5}));
    let run = background(&client, &thread, &with(body, "durability", "exit"));
    until("the run is under way", || executed(&trace).0 > 10);
    assert!(server.terminate().success());
    let (done, _) = executed(&trace);
    server.restart();
    let client = Client::of(&server);
    assert_eq!(client.end_of(&thread, &run), "error", "its limit");
    let (lines, twice) = executed(&trace);
    println!("{done} were done, {twice} repeated");
    assert_eq!(lines - twice, MANY, "each superstep was executed");
    assert!(twice <= 1, "{twice} supersteps were repeated");
    let state = client.state(&thread);
    assert_eq!(state["values"]["done"].as_array().unwrap().len(), MANY);
}
