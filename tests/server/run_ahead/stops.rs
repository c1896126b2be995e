//! Runs that are stopped while supersteps of theirs wait for the database: what they have done is stored first.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use test_support::{
    client::Client,
    on_both_storages,
    place::Place,
    server::{Server, Setup},
    tables::rows,
    talk::{background, until, with},
};

use super::{interrupted::GRACE, is_complete, repeats::executed, stored, supersteps};

on_both_storages!(
    a_cancelled_run_ends_when_what_it_has_done_is_stored,
    a_run_that_is_handed_over_goes_on_behind_what_it_has_done,
    a_run_that_is_handed_over_before_it_stores_anything_still_has_its_answer,
    a_run_that_is_handed_over_before_it_stores_anything_comes_to_its_breakpoint,
    events_of_a_run_that_is_handed_over_are_stored_with_what_it_has_done,
);

/// Supersteps of a run: so many that they are not over before anybody sees that they have begun.
const MANY: usize = 600;

/// What a server says when it stops its runs where they are.
const HANDS_OVER: &str = "leaving them to the next process";

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
        Self::start_with(place, &[])
    }

    fn start_with(place: &Place, settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (gate, trace) = (folder.path().join("gate"), folder.path().join("trace"));
        let point = format!("engine::before_commit=while({})", gate.display());
        let mut setup = Setup::example("faulty_server")
            .env("BACKSTITCH_DRAIN", "0")
            .env("BACKSTITCH_RUN_AHEAD", "1000")
            .env("BACKSTITCH_RUN_AHEAD_AGE", "60000")
            .env("FAILPOINTS", point);
        for (name, value) in settings {
            setup = setup.env(name, *value);
        }
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
    // A machine that is too slow for that once is so not each time.
    let in_time = (0..10).any(|_| is_cancelled_in_time(&place.another()));
    assert!(in_time, "the commits end in time once");
}

/// False if it takes so long that the run may be ended without its commits.
fn is_cancelled_in_time(place: &Place) -> bool {
    let waiting = Waiting::start(place);
    let path = format!("/threads/{}/runs/{}", waiting.thread, waiting.run);
    let client = &waiting.client;
    let begin = Instant::now();
    let (has_ended, status, cancelled) = thread::scope(|scope| {
        let cancel = scope.spawn(|| client.post(&format!("{path}/cancel?wait=true"), &json!({})));
        thread::sleep(Duration::from_millis(500));
        let status = client.get(&path).json()["status"].clone();
        let has_ended = cancel.is_finished();
        fs::remove_file(&waiting.gate).unwrap();
        (has_ended, status, cancel.join().unwrap())
    });
    if begin.elapsed() >= GRACE {
        return false;
    }
    assert!(!has_ended, "it waits for the commits");
    assert_eq!(status, "running");
    assert!(cancelled.status < 300, "{}", cancelled.text());
    assert_eq!(client.get(&path).json()["status"], "interrupted");
    waiting.is_stored(place);
    true
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

/// While the supersteps of its runs are stored, another process is not to take them for those of a dead one.
#[test]
fn a_process_that_stores_what_its_runs_have_done_keeps_its_lease() {
    let place = Place::postgres();
    // Others look for lost runs often, and the one that stops has time enough to renew its lease.
    let mut waiting = Waiting::start_with(&place, &[("BACKSTITCH_LEASE", "5")]);
    let next = place.start(Setup::example("faulty_server").env("BACKSTITCH_LEASE", "2"));
    let lease = || {
        let sql = "SELECT lease_until::text FROM workers JOIN runs USING (worker_id)";
        rows(&place, &next, sql)
    };
    waiting.server.signal("TERM");
    until("it stops", || waiting.server.output().contains(HANDS_OVER));
    let before = lease();
    until("the lease is renewed", || lease() != before);
    // The other one looks meanwhile.
    thread::sleep(Duration::from_secs(1));
    assert!(waiting.server.is_alive(), "it waits for the commits");
    fs::remove_file(&waiting.gate).unwrap();
    assert!(waiting.server.wait().success());
    let end = Client::of(&next).end_of(&waiting.thread, &waiting.run);
    assert_eq!(end, "error", "its limit");
    let lost = "SELECT CAST(losses AS text) FROM runs";
    assert_eq!(rows(&place, &next, lost), [[Some("0".to_owned())]]);
    is_complete(&place, &next, MANY);
    let (_, twice) = executed(&waiting.trace);
    assert!(twice <= 1, "{twice} supersteps were repeated");
}

/// A thread on a server that gives its runs no time when it stops; its nodes leave a trace.
struct Impatient {
    server: Server,
    client: Client,
    thread: String,
    trace: PathBuf,
    _folder: tempfile::TempDir,
}

impl Impatient {
    fn start(place: &Place) -> Self {
        let server = place.start(Setup::example("faulty_server").env("BACKSTITCH_DRAIN", "0"));
        let client = Client::of(&server);
        let folder = tempfile::tempdir().unwrap();
        Self {
            thread: client.thread(),
            trace: folder.path().join("trace"),
            server,
            client,
            _folder: folder,
        }
    }

    fn traced(&self) -> String {
        fs::read_to_string(&self.trace).unwrap_or_default()
    }

    /// Hands a run over while its last node sleeps; returns how it ended at the next process, and what the nodes of
    /// the thread have done.
    fn hand_over(&mut self, run: &str) -> (String, Value) {
        self.server.signal("TERM");
        assert!(self.server.wait().success());
        let before = self.traced();
        self.server.restart();
        self.client = Client::of(&self.server);
        let end = self.client.end_of(&self.thread, run);
        assert!(self.traced().len() > before.len(), "it was executed again");
        let state = self.client.state(&self.thread);
        (end, state["values"]["done"].clone())
    }
}

/// An answer is used in a superstep of which nothing is stored.
fn a_run_that_is_handed_over_before_it_stores_anything_still_has_its_answer(place: &Place) {
    let mut at = Impatient::start(place);
    let input = json!({"how": "ask", "pause": 5000, "trace": at.trace});
    let question = json!({"assistant_id": "fault", "input": input});
    at.client.run(&at.thread, &question);
    let answer =
        json!({"assistant_id": "fault", "command": {"resume": "yes"}, "durability": "exit"});
    let run = background(&at.client, &at.thread, &answer);
    until("the answer was used", || at.traced().contains("yes"));
    let (end, done) = at.hand_over(&run);
    assert_eq!(end, "success");
    assert_eq!(done, json!(["good", "bad"]));
}

/// Its checkpoint would look like one that is behind the breakpoint.
fn a_run_that_is_handed_over_before_it_stores_anything_comes_to_its_breakpoint(place: &Place) {
    let mut at = Impatient::start(place);
    let first = json!({"assistant_id": "fault", "input": {}});
    at.client.run(&at.thread, &first);
    let body = json!({
        "assistant_id": "fault", "input": {"how": "endless", "pause": 5000, "trace": at.trace},
        "interrupt_after": ["bad"], "durability": "exit",
    });
    let run = background(&at.client, &at.thread, &body);
    until("its last node has begun", || at.traced().contains("bad"));
    let (_, done) = at.hand_over(&run);
    assert_eq!(done, json!(["good", "bad", "good", "bad"]));
    assert_eq!(at.client.state(&at.thread)["next"], json!(["bad"]));
}

/// What was shown of supersteps that are stored is not executed again, so nothing else would show it.
fn events_of_a_run_that_is_handed_over_are_stored_with_what_it_has_done(place: &Place) {
    let mut at = Impatient::start(place);
    let body = supersteps(MANY, json!({"trace": at.trace, "pause": 10}));
    let body = with(body, "stream_resumable", true);
    let run = background(&at.client, &at.thread, &body);
    until("the run is under way", || at.traced().lines().count() > 60);
    let (end, _) = at.hand_over(&run);
    assert_eq!(end, "error", "its limit");
    let path = format!(
        "/threads/{}/runs/{run}/stream?stream_mode=updates",
        at.thread
    );
    let mut open = (at.client).open("GET", &path, &[("last-event-id", "-1")], b"");
    let mut updates = 0;
    while let Some(event) = open.event() {
        updates += usize::from(event.name == "updates");
    }
    // The result of a task that had ended may be shown by both processes.
    assert!((MANY..=MANY + 1).contains(&updates), "{updates} of {MANY}");
}
