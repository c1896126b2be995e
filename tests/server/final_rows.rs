//! Final rows of runs that a database refuses.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use test_support::client::{Client, Event, Open};
use test_support::place::Place;
use test_support::server::Setup;
use test_support::tables;
use test_support::talk::{background, slow, until};

/// Lets the database refuse that a run ends with any of the words.
fn refuse(place: &Place, server: &test_support::server::Server, words: &str) {
    let sql = if place.is_postgres() {
        format!("ALTER TABLE runs ADD CONSTRAINT refuses CHECK (status NOT IN ({words}))")
    } else {
        format!(
            "CREATE TRIGGER refuses BEFORE UPDATE ON runs WHEN new.status IN ({words}) \
             BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
    };
    tables::execute(place, server, &sql).unwrap();
}

fn accept(place: &Place, server: &test_support::server::Server) {
    let sql = if place.is_postgres() {
        "ALTER TABLE runs DROP CONSTRAINT refuses"
    } else {
        "DROP TRIGGER refuses"
    };
    tables::execute(place, server, sql).unwrap();
}

#[test]
fn a_run_whose_end_is_refused_for_good_ends_once_with_an_error() {
    for place in [Place::sqlite(), Place::postgres()] {
        let server = place.start(Setup::example("reference_server").env("BACKSTITCH_LEASE", "2"));
        let client = Client::of(&server);
        let thread = client.thread();
        refuse(&place, &server, "'success'");
        let run = background(&client, &thread, &slow(1, 1));
        assert_eq!(client.end_of(&thread, &run), "error");
        let row = client.get(&format!("/threads/{thread}")).json();
        assert_eq!(row["status"], "error");
        assert_eq!(row["error"]["error"], "InternalError");
        let attempts = tables::rows(&place, &server, "SELECT CAST(attempt AS text) FROM runs");
        assert_eq!(attempts, [[Some("1".to_owned())]]);
        // What it did is there, and the thread goes on.
        accept(&place, &server);
        let seen = client.run(&thread, &slow(1, 1))["seen"].clone();
        assert_eq!(seen, json!(["work", "rest", "work", "rest"]));
    }
}

#[test]
fn a_run_whose_every_end_is_refused_ends_as_soon_as_one_is_accepted() {
    for place in [Place::sqlite(), Place::postgres()] {
        let server = place.start(Setup::example("reference_server").env("BACKSTITCH_LEASE", "1"));
        let client = Client::of(&server);
        let thread = client.thread();
        refuse(&place, &server, "'success', 'error'");
        let run = background(&client, &thread, &slow(1, 1));
        // Both ends are tried for longer than a lease.
        let refusals = || server.output().matches("could not be stored").count();
        until("the end was refused again and again", || refusals() > 9);
        accept(&place, &server);
        assert_eq!(client.end_of(&thread, &run), "error");
        let attempts = tables::rows(&place, &server, "SELECT CAST(attempt AS text) FROM runs");
        assert_eq!(attempts, [[Some("1".to_owned())]]);
    }
}

/// A run that fails, and whose stream is stored.
fn failing() -> Value {
    json!({
        "assistant_id": "failing", "input": {"fail": true}, "stream_resumable": true,
        "durability": "sync",
    })
}

/// Somebody who reads a stream.
struct Reader {
    seen: Arc<Mutex<Vec<Event>>>,
    reads: JoinHandle<()>,
}

impl Reader {
    fn of(mut open: Open) -> Self {
        assert_eq!(open.status, 200);
        let seen = Arc::<Mutex<Vec<Event>>>::default();
        let events = seen.clone();
        let reads = std::thread::spawn(move || {
            while let Ok(Some(event)) = open.event_or_break() {
                events.lock().unwrap().push(event);
            }
        });
        Self { seen, reads }
    }

    fn events(&self) -> Vec<Event> {
        self.seen.lock().unwrap().clone()
    }

    /// All events, once the stream is over.
    fn whole(self) -> Vec<Event> {
        self.reads.join().unwrap();
        Arc::into_inner(self.seen).unwrap().into_inner().unwrap()
    }
}

/// The data of the only failure, the last of the events.
fn failure(events: &[Event]) -> &Value {
    let failures = events.iter().filter(|event| event.name == "error");
    assert_eq!(failures.count(), 1, "{events:?}");
    let last = events.last().unwrap();
    assert_eq!(last.name, "error", "{events:?}");
    &last.data
}

fn has_failure(events: &[Event]) -> bool {
    events.iter().any(|event| event.name == "error")
}

fn read_anew(client: &Client, path: &str, after: &str) -> Vec<Event> {
    Reader::of(client.open("GET", path, &[("last-event-id", after)], b"")).whole()
}

#[test]
fn a_stored_stream_shows_a_failure_once_the_end_of_its_run_is_stored() {
    for is_temporary in [false, true] {
        for place in [Place::sqlite(), Place::postgres()] {
            let setup = Setup::example("reference_server").env("BACKSTITCH_LEASE", "1");
            let mut server = place.start(setup);
            let client = Client::of(&server);
            refuse(&place, &server, "'error'");
            let thread = client.thread();
            let (create, runs) = if is_temporary {
                ("/runs/stream".to_owned(), "/runs".to_owned())
            } else {
                let runs = format!("/threads/{thread}/runs");
                (format!("{runs}/stream"), runs)
            };
            let body = failing().to_string();
            let open = client.open("POST", &create, &[], body.as_bytes());
            let path = format!("{runs}/{}/stream", open.run());
            let reader = Reader::of(open);
            let refusals = || server.output().matches("could not be stored").count();
            until("the end was refused a few times", || refusals() > 2);
            let elsewhere = Reader::of(client.open("GET", &path, &[("last-event-id", "-1")], b""));
            until("it reads too", || !elsewhere.events().is_empty());
            for events in [reader.events(), elsewhere.events()] {
                assert!(!has_failure(&events), "{events:?}");
            }
            accept(&place, &server);
            let events = reader.whole();
            assert_eq!(failure(&events)["error"], "ValueError");
            assert_eq!(elsewhere.whole(), events);
            if !is_temporary {
                let row = client.get(&format!("/threads/{thread}")).json();
                assert_eq!(&row["error"], failure(&events));
            }
            // The end is the same later, and shown once.
            for restarts in [false, true] {
                if restarts {
                    server.restart();
                }
                let client = Client::of(&server);
                let again = read_anew(&client, &path, "-1");
                assert_eq!(failure(&again), failure(&events));
                assert_eq!(again.len(), events.len());
                let last = events.last().unwrap().id.as_deref().unwrap();
                assert_eq!(read_anew(&client, &path, last), []);
            }
        }
    }
}

#[test]
fn a_failure_that_was_not_stored_is_shown_by_the_next_attempt_alone() {
    for place in [Place::sqlite(), Place::postgres()] {
        let setup = Setup::example("reference_server").env("BACKSTITCH_LEASE", "1");
        let mut server = place.start(setup);
        let client = Client::of(&server);
        let thread = client.thread();
        refuse(&place, &server, "'error'");
        let open = client.open_stream(&thread, &failing());
        let run = open.run();
        let reader = Reader::of(open);
        let refusals = |server: &test_support::server::Server| {
            server.output().matches("could not be stored").count()
        };
        until("the end was refused a few times", || refusals(&server) > 2);
        server.kill();
        let early = reader.whole();
        assert!(!early.is_empty() && !has_failure(&early), "{early:?}");
        accept(&place, &server);
        server.restart();
        let client = Client::of(&server);
        let path = format!("/threads/{thread}/runs/{run}/stream");
        let last = early.last().unwrap().id.as_deref().unwrap();
        let late = read_anew(&client, &path, last);
        assert_eq!(failure(&late)["error"], "ValueError");
        assert_eq!(late[0].data["attempt"], 2, "{late:?}");
        assert_eq!(client.end_of(&thread, &run), "error");
        assert_eq!(failure(&read_anew(&client, &path, "-1")), failure(&late));
    }
}

/// The reader of a process that looked dead sees what the one shows that took the run over.
#[test]
fn a_run_that_another_process_ended_has_one_end_at_the_first_one_too() {
    let place = Place::postgres();
    let setup = Setup::example("reference_server").env("BACKSTITCH_LEASE", "1");
    let one = place.start(setup);
    let client = Client::of(&one);
    let thread = client.thread();
    refuse(&place, &one, "'error'");
    let open = client.open_stream(&thread, &failing());
    let run = open.run();
    let reader = Reader::of(open);
    let refusals = || one.output().matches("could not be stored").count();
    until("the end was refused a few times", || refusals() > 2);
    one.signal("STOP");
    accept(&place, &one);
    let two = one.replica();
    let elsewhere = Client::of(&two);
    assert_eq!(elsewhere.end_of(&thread, &run), "error");
    one.signal("CONT");
    let events = reader.whole();
    assert_eq!(failure(&events)["error"], "ValueError");
    let again = events.iter().position(|event| event.data["attempt"] == 2);
    assert!(again.is_some_and(|at| at > 0), "{events:?}");
    let path = format!("/threads/{thread}/runs/{run}/stream");
    let stored = read_anew(&elsewhere, &path, "-1");
    assert_eq!(failure(&stored), failure(&events));
}
