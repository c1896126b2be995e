//! What names a checkpoint is told when that is stored.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use test_support::{
    client::{Client, Event, Open},
    on_both_storages,
    place::Place,
    server::{Server, Setup},
    tables::rows,
    talk::{until, with},
};

use super::supersteps;

on_both_storages!(
    checkpoints_are_named_when_they_are_stored,
    streams_that_are_ahead_name_no_checkpoint_that_is_not_stored,
    streams_that_can_be_resumed_show_no_superstep_that_is_not_stored,
    streams_of_a_thread_show_no_superstep_that_is_not_stored_of_a_run_that_can_be_resumed,
    a_failure_that_names_its_checkpoint_is_shown_when_that_is_stored,
    an_interrupt_is_shown_when_its_checkpoint_is_stored,
);

/// The checkpoints that are stored.
fn known(place: &Place, server: &Server) -> BTreeSet<String> {
    let sql = if place.is_postgres() {
        "SELECT checkpoint_id::text FROM checkpoints"
    } else {
        "SELECT checkpoint_id FROM checkpoints"
    };
    rows(place, server, sql)
        .into_iter()
        .flatten()
        .flatten()
        .collect()
}

/// What a stream has shown while commits waited, what was stored then and what in the end.
struct Shown {
    events: Vec<Event>,
    stored: BTreeSet<String>,
    all: BTreeSet<String>,
    /// The events of the whole stream.
    whole: Vec<Event>,
}

impl Shown {
    /// Fails if an event names a checkpoint that was not stored when it was shown.
    fn names_what_is_stored(&self) {
        let later: Vec<_> = self.all.difference(&self.stored).collect();
        assert!(later.len() > 2, "{later:?}");
        for event in &self.events {
            let text = format!("{:?} {}", event.id, event.data);
            let named: Vec<_> = later
                .iter()
                .filter(|id| text.contains(id.as_str()))
                .collect();
            assert!(named.is_empty(), "{named:?} in {} {text}", event.name);
        }
    }

    fn count(events: &[Event], name: &str) -> usize {
        events.iter().filter(|event| event.name == name).count()
    }
}

/// A server whose commits wait as long as a file exists, all of them or those from one on.
struct Gated {
    place: Place,
    server: Server,
    gate: PathBuf,
    _folder: tempfile::TempDir,
}

impl Gated {
    fn start(place: &Place, from: &str) -> Self {
        let place = place.another();
        let folder = tempfile::tempdir().unwrap();
        let gate = folder.path().join("gate");
        fs::write(&gate, "").unwrap();
        let point = format!("engine::before_commit=while({}){from}", gate.display());
        // Time alone does not stop a run that has two supersteps before it fails.
        let setup = Setup::example("faulty_server")
            .env("FAILPOINTS", point)
            .env("BACKSTITCH_RUN_AHEAD_AGE", "60000");
        Self {
            server: place.start(setup),
            place,
            gate,
            _folder: folder,
        }
    }

    fn stored(&self) -> BTreeSet<String> {
        known(&self.place, &self.server)
    }

    fn is_reached(&self) {
        until("a commit waits at the gate", || {
            self.server.output().contains("a fail point was reached")
        });
    }

    /// Waits until nothing more comes of a stream because commits wait, then opens the gate and reads the rest of it.
    fn shown(&self, stream: Reader) -> Shown {
        let [shown] = self.shown_to([stream]);
        shown
    }

    /// The same for several streams.
    fn shown_to<const N: usize>(&self, streams: [Reader; N]) -> [Shown; N] {
        self.is_reached();
        until("the streams wait for a commit", || {
            let quiet = |stream: &Reader| stream.seen.lock().1.elapsed() > Duration::from_secs(3);
            streams.iter().all(quiet)
        });
        let events = streams.each_ref().map(Reader::events);
        let stored = self.stored();
        fs::remove_file(&self.gate).unwrap();
        let whole = streams.map(|stream| {
            stream.thread.join().unwrap();
            stream.seen.lock().0.clone()
        });
        let all = self.stored();
        let mut whole = whole.into_iter();
        events.map(|events| {
            let whole = whole.next().unwrap();
            assert!(whole.len() > events.len());
            Shown {
                events,
                stored: stored.clone(),
                all: all.clone(),
                whole,
            }
        })
    }
}

/// Reads a stream in a thread of its own.
struct Reader {
    /// What has come, and when the last of it did.
    seen: Arc<Mutex<(Vec<Event>, Instant)>>,
    thread: JoinHandle<()>,
}

impl Reader {
    fn of(open: Open) -> Self {
        Self::up_to(open, |_| false)
    }

    /// The stream of a thread, up to the end of a run.
    fn of_thread(client: &Client, thread: &str, headers: &[(&str, &str)]) -> Self {
        let path =
            format!("/threads/{thread}/stream?stream_modes=run_modes&stream_modes=lifecycle");
        let open = client.open("GET", &path, headers, b"");
        assert_eq!(open.status, 200);
        Self::up_to(open, |event| event.data["status"] == "run_done")
    }

    fn up_to(mut open: Open, is_last: fn(&Event) -> bool) -> Self {
        let seen = Arc::new(Mutex::new((vec![], Instant::now())));
        let seen_there = seen.clone();
        let thread = thread::spawn(move || {
            while let Some(event) = open.event() {
                let is_over = is_last(&event);
                let mut seen = seen_there.lock();
                seen.0.push(event);
                seen.1 = Instant::now();
                if is_over {
                    break;
                }
            }
        });
        Self { seen, thread }
    }

    fn events(&self) -> Vec<Event> {
        self.seen.lock().0.clone()
    }
}

/// Reads the stream of a run whose commits wait at a gate from its middle on, until nothing more comes; then the gate opens.
fn shown_before_its_commit(place: &Place, modes: &Value, more: &[(&str, Value)]) -> Shown {
    // No run is so quick that it has ended before.
    let gated = Gated::start(place, "@10");
    let client = Client::of(&gated.server);
    let thread = client.thread();
    let mut body = with(
        supersteps(80, json!({"pause": 25})),
        "stream_mode",
        modes.clone(),
    );
    for (key, value) in more {
        body = with(body, key, value.clone());
    }
    let stream = Reader::of(client.open_stream(&thread, &body));
    gated.shown(stream)
}

fn checkpoints_are_named_when_they_are_stored(place: &Place) {
    let resumable = [("stream_resumable", json!(true))];
    let inside = [("stream_subgraphs", json!(true))];
    for (modes, more) in [
        (json!(["checkpoints", "updates"]), &[][..]),
        (json!(["debug", "updates", "values"]), &inside[..]),
        (json!(["checkpoints", "debug", "updates"]), &resumable[..]),
    ] {
        let shown = shown_before_its_commit(place, &modes, more);
        shown.names_what_is_stored();
        // The run has gone on with the superstep that follows, and no further.
        let ahead = Shown::count(&shown.events, "updates");
        let named = shown.stored.iter().filter(|id| {
            let text = |event: &&Event| event.data.to_string().contains(id.as_str());
            shown.events.iter().any(|event| text(&event))
        });
        let named = named.count();
        println!(
            "{modes}: {ahead} supersteps, {named} of {} stored checkpoints named",
            shown.stored.len()
        );
        // All that are stored: the input is one, and has no superstep.
        assert_eq!(named, shown.stored.len(), "{modes}");
        if more.iter().all(|(name, _)| *name != "stream_resumable") {
            assert_eq!(ahead + 2, named + 1, "{modes}");
        }
        for id in &shown.all {
            let names = |event: &Event| event.data.to_string().contains(id);
            assert!(shown.whole.iter().any(names), "{modes}: {id}");
        }
    }
}

fn streams_that_are_ahead_name_no_checkpoint_that_is_not_stored(place: &Place) {
    let modes = json!([
        "values",
        "updates",
        "messages-tuple",
        "tasks",
        "events",
        "custom"
    ]);
    let shown = shown_before_its_commit(place, &modes, &[("stream_subgraphs", json!(true))]);
    shown.names_what_is_stored();
    let ahead = Shown::count(&shown.events, "updates") + 2;
    let stored = shown.stored.len();
    println!("{ahead} checkpoints were made, {stored} stored");
    assert!(ahead > stored + 1, "{ahead} and {stored}: it was ahead");
}

fn streams_that_can_be_resumed_show_no_superstep_that_is_not_stored(place: &Place) {
    let modes = json!(["values", "updates", "tasks", "events", "custom"]);
    let resumable = [
        ("stream_resumable", json!(true)),
        ("stream_subgraphs", json!(true)),
    ];
    let shown = shown_before_its_commit(place, &modes, &resumable);
    shown.names_what_is_stored();
    // Two of them are the input and the start. All others are shown.
    let stored = shown.stored.len() - 2;
    assert_eq!(Shown::count(&shown.events, "updates"), stored);
    let ended = |event: &&Event| {
        let data = &event.data;
        let is_of_node = data["metadata"]["langgraph_node"].is_string() && data["name"] != "stray";
        data["event"] == "on_chain_end" && is_of_node
    };
    assert_eq!(shown.events.iter().filter(ended).count(), stored);
    let all = shown.all.len() - 2;
    assert_eq!(Shown::count(&shown.whole, "updates"), all);
}

/// Whether they are there when the run begins, or come in its middle and read what is in the log.
fn streams_of_a_thread_show_no_superstep_that_is_not_stored_of_a_run_that_can_be_resumed(
    place: &Place,
) {
    let gated = Gated::start(place, "@10");
    let client = Client::of(&gated.server);
    let thread = client.thread();
    let first = Reader::of_thread(&client, &thread, &[]);
    let body = with(
        supersteps(80, json!({"pause": 25})),
        "stream_resumable",
        true,
    );
    let answer = client.post(&format!("/threads/{thread}/runs"), &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    gated.is_reached();
    let later = Reader::of_thread(&client, &thread, &[("last-event-id", "-1")]);
    for shown in gated.shown_to([first, later]) {
        let stored = shown.stored.len() - 2;
        assert_eq!(Shown::count(&shown.events, "updates"), stored);
        let all = shown.all.len() - 2;
        assert_eq!(Shown::count(&shown.whole, "updates"), all);
        // Nothing comes twice, or out of its order.
        let positions = shown.whole.iter().filter_map(|event| event.id.as_ref());
        let positions: Vec<u64> = positions.map(|id| id.parse().unwrap()).collect();
        assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    }
}

/// What a node's route did wrong is told with the checkpoint at which that happened.
fn a_failure_that_names_its_checkpoint_is_shown_when_that_is_stored(place: &Place) {
    // No checkpoint of the run is stored before the gate opens.
    let gated = Gated::start(place, "");
    let client = Client::of(&gated.server);
    let thread = client.thread();
    let run = json!({
        "assistant_id": "fault",
        "input": {"how": "astray", "pause": 300},
        "stream_mode": ["tasks"],
        "durability": "async",
    });
    let stream = Reader::of(client.open_stream(&thread, &run));
    let begun = |event: &Event| event.data["name"] == "bad" && event.data["input"].is_object();
    until("its last node has begun", || {
        stream.seen.lock().0.iter().any(begun)
    });
    let shown = gated.shown(stream);
    assert!(shown.stored.is_empty(), "{:?}", shown.stored);
    let failed = |event: &&Event| event.name == "tasks" && !event.data["error"].is_null();
    assert!(!shown.events.iter().any(|event| failed(&event)));
    let failure = shown.whole.iter().find(failed).unwrap();
    let text = failure.data.to_string();
    let named = shown.all.iter().filter(|id| text.contains(id.as_str()));
    assert_eq!(named.count(), 1, "{text} of {:?}", shown.all);
}

/// The id of an interrupt, by which a client answers it, is made of that of its checkpoint.
fn an_interrupt_is_shown_when_its_checkpoint_is_stored(place: &Place) {
    for mode in ["updates", "values", "tasks"] {
        // No checkpoint of the run is stored before the gate opens.
        let gated = Gated::start(place, "");
        let client = Client::of(&gated.server);
        let thread = client.thread();
        let run = json!({
            "assistant_id": "fault",
            "input": {"how": "ask"},
            "stream_mode": [mode, "custom"],
            "durability": "async",
        });
        let stream = Reader::of(client.open_stream(&thread, &run));
        let shown = gated.shown(stream);
        assert!(shown.stored.is_empty(), "{mode}: {:?}", shown.stored);
        let asks = |event: &&Event| event.data.to_string().contains("shall I go on?");
        assert!(!shown.events.iter().any(|event| asks(&event)), "{mode}");
        let asked = shown.whole.iter().find(asks).unwrap().data.to_string();
        let state = client.get(&format!("/threads/{thread}/state")).json();
        let id = state["interrupts"][0]["id"].as_str().unwrap();
        assert!(asked.contains(id), "{mode}: {id} in {asked}");
    }
}
