//! How many supersteps are executed twice when a process dies: nodes leave a trace outside of the database.

use std::{collections::BTreeMap, fs, path::Path, thread, time::Duration};

use serde_json::json;
use test_support::{
    client::Client,
    on_both_storages,
    place::Place,
    server::Setup,
    talk::{background, until, with},
};

use super::{QUEUE, is_complete, stored, supersteps};

on_both_storages!(a_crash_repeats_as_many_supersteps_as_may_be_ahead_and_one);

/// Supersteps of a run.
const MANY: usize = 300;

/// The lines of a trace, one for each time that a superstep was executed, and how many of them are repeated.
pub fn executed(trace: &Path) -> (usize, usize) {
    let text = fs::read_to_string(trace).unwrap_or_default();
    let mut times = BTreeMap::new();
    for line in text.lines() {
        *times.entry(line).or_insert(0) += 1;
    }
    let twice = times.values().filter(|times| **times > 1).count();
    assert!(times.values().all(|times| *times <= 2), "{times:?}");
    (text.lines().count(), twice)
}

/// Executes a run whose commits stop in its middle, kills the process (SIGKILL) when the run has come as far ahead of them
/// as it may, and lets another process end the run: how many supersteps were executed twice. The run comes so far ahead
/// at least.
fn repeated(place: &Place, durability: &str, settings: &[(&str, &str)], at_least: usize) -> usize {
    let place = place.another();
    let folder = tempfile::tempdir().unwrap();
    let (gate, trace) = (folder.path().join("gate"), folder.path().join("trace"));
    // Commits wait from the tenth one on.
    let point = format!("engine::before_commit=while({})@10", gate.display());
    fs::write(&gate, "").unwrap();
    let mut setup = Setup::example("faulty_server")
        .env("BACKSTITCH_LEASE", "1")
        .env("FAILPOINTS", point);
    for (name, value) in settings {
        setup = setup.env(name, *value);
    }
    let mut server = place.start(setup);
    let client = Client::of(&server);
    let thread = client.thread();
    let body = supersteps(MANY, json!({"trace": trace, "pause": 3}));
    let run = background(&client, &thread, &with(body, "durability", durability));
    until("a commit waits at the gate", || {
        server.output().contains("a fail point was reached")
    });
    // The input is stored too, and is no superstep.
    until("the run is as far ahead as it may be", || {
        executed(&trace).0 + 1 >= stored(&place, &server) + at_least
    });
    let (mut before, mut quiet) = (0, 0);
    // A process that has no processor for a while executes nothing either.
    until("the run waits for its commits", || {
        thread::sleep(Duration::from_millis(300));
        let now = executed(&trace).0;
        quiet = if now == std::mem::replace(&mut before, now) {
            quiet + 1
        } else {
            0
        };
        quiet == 5
    });
    server.kill();
    assert!(before < MANY, "the run has not ended");
    let left = stored(&place, &server);
    fs::remove_file(&gate).unwrap();
    server.restart();
    let client = Client::of(&server);
    assert_eq!(client.end_of(&thread, &run), "error", "its limit");
    is_complete(&place, &server, MANY);
    let (lines, twice) = executed(&trace);
    assert_eq!(lines - twice, MANY, "each superstep was executed");
    println!("{durability} {settings:?}: {left} of {before} were stored, {twice} were repeated");
    twice
}

fn a_crash_repeats_as_many_supersteps_as_may_be_ahead_and_one(place: &Place) {
    const ONE: (&str, &str) = ("BACKSTITCH_RUN_AHEAD", "1");
    const LONG: (&str, &str) = ("BACKSTITCH_RUN_AHEAD_AGE", "60000");
    thread::scope(|scope| {
        let killed = |durability, settings: &'static [_], at_least| {
            scope.spawn(move || repeated(place, durability, settings, at_least))
        };
        let by_default = killed("async", &[], 2);
        let as_many = killed("async", &[LONG], QUEUE + 1);
        let one = killed("async", &[ONE, LONG], 2);
        let sync = killed("sync", &[], 1);
        let by_default = by_default.join().unwrap();
        assert!((2..=QUEUE + 1).contains(&by_default), "{by_default}");
        assert_eq!(as_many.join().unwrap(), QUEUE + 1);
        assert_eq!(one.join().unwrap(), 2);
        assert_eq!(sync.join().unwrap(), 1);
    });
}
