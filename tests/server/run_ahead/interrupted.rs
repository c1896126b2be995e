//! Runs that are ended by another run, or with several others, while supersteps of theirs wait for the database.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use test_support::{
    client::Client,
    on_both_storages,
    place::Place,
    server::{Server, Setup},
    tables::rows,
    talk::{background, ok, until, with},
};

use super::{count, is_complete, stored, supersteps};

on_both_storages!(
    a_run_that_another_one_interrupts_has_stored_what_its_client_was_shown,
    a_run_that_cannot_store_anything_is_interrupted_all_the_same,
    a_run_goes_on_ahead_when_the_one_that_was_to_interrupt_it_is_refused,
    a_request_that_is_refused_for_what_it_brings_along_waits_for_no_run,
);

/// More supersteps than a run comes to in a test.
const MANY: usize = 5_000;
/// How long what a run has done is waited for at least before it is ended all the same.
pub const GRACE: Duration = Duration::from_secs(2);

/// A run that is shown to a client and goes on ahead of its commits, which wait as long as a file exists.
struct Ahead {
    server: Server,
    client: Client,
    thread: String,
    run: String,
    /// Supersteps that its client was shown.
    shown: Arc<AtomicUsize>,
    reader: JoinHandle<()>,
    gate: PathBuf,
    _folder: tempfile::TempDir,
}

impl Ahead {
    fn start(place: &Place) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let gate = folder.path().join("gate");
        let point = format!("engine::before_commit=while({})", gate.display());
        let setup = Setup::example("faulty_server")
            .env("BACKSTITCH_RUN_AHEAD", "1000")
            .env("BACKSTITCH_RUN_AHEAD_AGE", "60000")
            .env("FAILPOINTS", point);
        let server = place.start(setup);
        let client = Client::of(&server);
        let thread = client.thread();
        let open = client.open_stream(&thread, &supersteps(MANY, json!({"pause": 10})));
        let run = open.run();
        let (shown, reader) = count(open);
        until("the run is under way", || {
            shown.load(Ordering::SeqCst) > 10 && stored(place, &server) > 12
        });
        fs::write(&gate, "").unwrap();
        let ahead = Self {
            server,
            client,
            thread,
            run,
            shown,
            reader,
            gate,
            _folder: folder,
        };
        until("the run is ahead", || {
            ahead.shown() > stored(place, &ahead.server) + 20
        });
        ahead
    }

    fn shown(&self) -> usize {
        self.shown.load(Ordering::SeqCst)
    }

    fn status(&self) -> Value {
        let path = format!("/threads/{}/runs/{}", self.thread, self.run);
        self.client.get(&path).json()["status"].clone()
    }

    /// Lets `end` end the run, and returns how many supersteps its client had been shown before. The run is executed until
    /// its commits end. None if that took so long that the run may have been ended without them.
    fn interrupt<T: Send>(&self, end: impl FnOnce(&Client) -> T + Send) -> Option<(usize, T)> {
        thread::scope(|scope| {
            let before = self.shown();
            let begin = Instant::now();
            let interrupting = scope.spawn(|| end(&self.client));
            thread::sleep(Duration::from_millis(500));
            let (has_ended, status) = (interrupting.is_finished(), self.status());
            fs::remove_file(&self.gate).unwrap();
            let ended = interrupting.join().unwrap();
            if begin.elapsed() >= GRACE {
                return None;
            }
            assert!(!has_ended, "it waits for the commits");
            assert_eq!(status, "running");
            Some((before, ended))
        })
    }

    /// Fails unless the next run, which has this state at its end, began with what the client of the first one had been
    /// shown.
    fn was_continued(self, place: &Place, before: usize, values: &Value) {
        assert_eq!(self.client.end_of(&self.thread, &self.run), "interrupted");
        self.reader.join().unwrap();
        let shown = self.shown.load(Ordering::SeqCst);
        // The next run has two supersteps.
        let kept = values["done"].as_array().unwrap().len() - 2;
        println!("{before} shown before, {kept} kept, {shown} shown in all");
        assert!(kept >= before, "{kept} of {before}");
        assert!(kept + 1 >= shown, "{kept} of {shown}");
        // With the two of the next run, its input and its start.
        is_complete(place, &self.server, kept + 4);
    }
}

/// What `attempt` returns on a machine that is quick enough for once: it is tried at most ten times.
fn in_time<T>(attempt: impl FnMut() -> Option<T>) -> T {
    let mut attempts = std::iter::repeat_with(attempt).take(10).flatten();
    attempts.next().unwrap()
}

/// A run of two supersteps.
fn next() -> Value {
    let body = json!({"assistant_id": "fault", "input": {"how": "end", "pause": 1}});
    with(body, "multitask_strategy", "interrupt")
}

fn a_run_that_another_one_interrupts_has_stored_what_its_client_was_shown(place: &Place) {
    let (place, ahead, before, values) = in_time(|| {
        let place = place.another();
        let ahead = Ahead::start(&place);
        let (before, values) = ahead.interrupt(|client| client.run(&ahead.thread, &next()))?;
        Some((place, ahead, before, values))
    });
    ahead.was_continued(&place, before, &values);
}

/// What is stuck is waited for as long as a cancelled run is.
fn a_run_that_cannot_store_anything_is_interrupted_all_the_same(place: &Place) {
    let ahead = Ahead::start(place);
    let before = ahead.shown();
    let run = background(&ahead.client, &ahead.thread, &next());
    assert_eq!(ahead.status(), "interrupted");
    fs::remove_file(&ahead.gate).unwrap();
    assert_eq!(ahead.client.end_of(&ahead.thread, &run), "success");
    ahead.reader.join().unwrap();
    let values = ahead.client.state(&ahead.thread)["values"].clone();
    let kept = values["done"].as_array().unwrap().len() - 2;
    assert!(kept > 10, "what had been stored stays");
    assert!(kept < before, "the commits were stuck: {kept} of {before}");
    is_complete(place, &ahead.server, kept + 4);
}

/// Nobody finds out that somebody tried.
fn a_run_goes_on_ahead_when_the_one_that_was_to_interrupt_it_is_refused(place: &Place) {
    let ahead = Ahead::start(place);
    // It is refused after it has waited for what the run had done.
    let unknown = json!({
        "thread_id": ahead.thread,
        "content": "hello",
        "assistant_id": "nobody",
        "multitask_strategy": "interrupt",
    });
    let begin = Instant::now();
    let refused = ahead.client.post("/commands/send-message", &unknown);
    assert!((400..500).contains(&refused.status), "{}", refused.text());
    assert!(begin.elapsed() > Duration::from_secs(1), "{begin:?}");
    fs::remove_file(&ahead.gate).unwrap();
    let before = ahead.shown();
    until("it goes on", || ahead.shown() > before + 20);
    // It does not wait for each of its supersteps any more.
    fs::write(&ahead.gate, "").unwrap();
    until("the run is ahead again", || {
        ahead.shown() > stored(place, &ahead.server) + 20
    });
    assert_eq!(ahead.status(), "running");
}

fn a_request_that_is_refused_for_what_it_brings_along_waits_for_no_run(place: &Place) {
    let ahead = Ahead::start(place);
    let path = format!("/threads/{}/runs", ahead.thread);
    let metadata = |name: &str| {
        let fields = (0..40).map(|at| (format!("{name}{at}"), json!("x")));
        Value::Object(fields.collect())
    };
    let assistant = json!({"graph_id": "fault", "metadata": metadata("a")});
    let assistant = ok(ahead.client.post("/assistants", &assistant), 200);
    // Each has what it may have, and both together too much.
    let own = with(next(), "metadata", metadata("b"));
    let both = with(own, "assistant_id", assistant["assistant_id"].clone());
    // Once at least: the others may have waited for a processor, but who waits for a run waits each time.
    in_time(|| {
        let begin = Instant::now();
        let refused = ahead.client.post(&path, &both);
        assert_eq!(refused.status, 422, "{}", refused.text());
        let took = begin.elapsed();
        println!("refused after {took:?}");
        (took < Duration::from_secs(1)).then_some(())
    });
    assert_eq!(ahead.status(), "running");
    fs::remove_file(&ahead.gate).unwrap();
}

/// The process that executes it is asked first, as when it is cancelled alone.
#[test]
fn a_run_that_is_cancelled_with_others_from_another_process_has_stored_what_was_shown() {
    let (place, ahead, before, cancelled) = in_time(|| {
        let place = Place::postgres();
        let ahead = Ahead::start(&place);
        let other = ahead.server.replica();
        let there = Client::of(&other);
        let which = json!({"thread_id": ahead.thread, "run_ids": [ahead.run]});
        let (before, cancelled) = ahead.interrupt(|_| there.post("/runs/cancel", &which))?;
        Some((place, ahead, before, cancelled))
    });
    assert_eq!(cancelled.status, 204, "{}", cancelled.text());
    assert_eq!(ahead.status(), "interrupted");
    ahead.reader.join().unwrap();
    let kept = ahead.client.state(&ahead.thread)["values"]["done"].clone();
    let kept = kept.as_array().unwrap().len();
    let shown = ahead.shown.load(Ordering::SeqCst);
    assert!(kept >= before, "{kept} of {before}");
    assert!(kept + 1 >= shown, "{kept} of {shown}");
    // The state also shows the result of a task whose superstep was not made any more.
    let pending = "SELECT CAST(count(*) AS text) FROM checkpoint_writes w WHERE w.idx = 0
        AND NOT EXISTS (SELECT 1 FROM checkpoints c WHERE c.parent_checkpoint_id = w.checkpoint_id)";
    let pending = rows(&place, &ahead.server, pending)[0][0].clone().unwrap();
    let supersteps = kept - pending.parse::<usize>().unwrap();
    is_complete(&place, &ahead.server, supersteps);
}
