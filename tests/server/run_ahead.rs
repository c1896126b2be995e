//! Runs whose supersteps end faster than the database stores them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use test_support::{
    client::{Client, Event, Open},
    memory::{MIB, Memory},
    on_both_storages,
    place::{Place, block_on},
    server::{Server, Setup},
    tables::{connect, rows},
    talk::{until, with},
};

mod borders;
mod interrupted;
mod named;
mod repeats;
mod stops;

on_both_storages!(
    a_run_of_large_supersteps_is_one_transaction_ahead,
    a_stream_that_can_be_resumed_shows_no_event_that_a_crash_takes_back,
    a_breakpoint_is_shown_in_sync_when_its_checkpoint_is_stored,
);

/// Supersteps that may be in a transaction or wait for one.
const QUEUE: usize = 16;
/// One more has been executed when a run waits for room among these.
const AHEAD: usize = QUEUE + 1;

/// Memory, in MiB, of a run whose supersteps have 10 MiB: what such a superstep takes several times, and no more of it the
/// more supersteps there are.
const LARGE: u64 = 220;

/// A run of so many supersteps.
pub fn supersteps(count: usize, more: Value) -> Value {
    let mut input = json!({"how": "endless"});
    let fields = more.as_object().unwrap().clone();
    input.as_object_mut().unwrap().extend(fields);
    json!({
        "assistant_id": "fault",
        "input": input,
        "stream_mode": ["updates"],
        "durability": "async",
        "config": {"recursion_limit": count},
    })
}

fn setup() -> Setup {
    Setup::example("faulty_server").env("BACKSTITCH_LEASE", "2")
}

fn start(place: &Place) -> Server {
    place.start(setup())
}

/// Every change of a branch's head takes this long on Postgres, as on a disk that is busy.
fn slow_down(place: &Place, seconds: f64) {
    let sql = format!(
        "CREATE OR REPLACE FUNCTION take_long() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         PERFORM pg_sleep({seconds}); RETURN NULL; END $$; \
         CREATE OR REPLACE TRIGGER take_long BEFORE UPDATE OF head_checkpoint_id ON branches \
         FOR EACH STATEMENT EXECUTE FUNCTION take_long()"
    );
    let url = place.url().unwrap();
    block_on(async { connect(url).await.batch_execute(&sql).await }).unwrap();
}

/// Supersteps of the only thread that are stored, the one of the input left out.
fn stored(place: &Place, server: &Server) -> usize {
    let sql = "SELECT CAST(count(*) AS text) FROM checkpoints";
    let count = rows(place, server, sql)[0][0].clone().unwrap();
    count.parse::<usize>().unwrap().saturating_sub(1)
}

/// Counts the supersteps that a stream shows, until it ends.
fn count(mut open: Open) -> (Arc<AtomicUsize>, std::thread::JoinHandle<()>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = seen.clone();
    let reader = std::thread::spawn(move || {
        while let Some(event) = open.event() {
            if event.name == "updates" {
                counter.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    (seen, reader)
}

/// Each superstep of the only thread is stored once, and leads to the next one.
pub fn is_complete(place: &Place, server: &Server, last: usize) {
    let depths = "SELECT CAST(c.depth AS text) FROM checkpoints c ORDER BY c.depth";
    let depths: Vec<_> = rows(place, server, depths).concat();
    let first: usize = depths[0].as_ref().unwrap().parse().unwrap();
    // The input is a checkpoint too.
    let expected = (first..=first + last + 1).map(|depth| Some(depth.to_string()));
    assert_eq!(depths, expected.collect::<Vec<_>>());
    let orphans = "SELECT CAST(count(*) AS text) FROM checkpoints c WHERE c.parent_checkpoint_id IS NOT NULL \
                   AND NOT EXISTS (SELECT 1 FROM checkpoints p WHERE p.checkpoint_id = c.parent_checkpoint_id \
                   AND p.depth = c.depth - 1)";
    assert_eq!(rows(place, server, orphans), [[Some("0".to_owned())]]);
}

/// The checkpoint at which a run stops waits at a gate: the third one, behind those with the input and of the start.
fn a_breakpoint_is_shown_in_sync_when_its_checkpoint_is_stored(place: &Place) {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    std::fs::write(&gate, "").unwrap();
    let point = format!("engine::before_commit=while({})@3", gate.display());
    let server = place.start(Setup::example("faulty_server").env("FAILPOINTS", point));
    let client = Client::of(&server);
    let thread = client.thread();
    let run = with(supersteps(10, json!({})), "durability", "sync");
    let run = with(run, "interrupt_before", json!(["bad"]));
    let mut open = client.open_stream(&thread, &run);
    let node = open.event_named("updates").data;
    assert!(node.get("good").is_some(), "{node}");
    let is_open = Arc::new(AtomicBool::new(false));
    let reader = {
        let is_open = is_open.clone();
        std::thread::spawn(move || {
            let mut shown = vec![];
            while let Some(event) = open.event() {
                if event.name == "updates" {
                    shown.push((is_open.load(Ordering::SeqCst), event.data));
                }
            }
            shown
        })
    };
    until("the checkpoint waits at the gate", || {
        server.output().contains("a fail point was reached")
    });
    // What is shown too early comes meanwhile.
    std::thread::sleep(Duration::from_secs(1));
    is_open.store(true, Ordering::SeqCst);
    std::fs::remove_file(&gate).unwrap();
    let shown = reader.join().unwrap();
    assert_eq!(shown, [(true, json!({"__interrupt__": []}))]);
    assert_eq!(client.state(&thread)["next"], json!(["bad"]));
}

/// How far a run was ahead of what is stored.
struct Ahead {
    /// The most supersteps that were seen and not stored.
    supersteps: usize,
    /// The most memory, in bytes, that the server had more than before.
    memory: u64,
}

/// Executes a run of `count_of` supersteps in a server that is started so, while each commit takes so many seconds: of
/// SQLite that of each superstep.
fn furthest_ahead(
    place: &Place,
    setup: Setup,
    seconds: f64,
    count_of: usize,
    more: Value,
) -> Ahead {
    let setup = if place.is_postgres() {
        setup
    } else {
        let slow = format!("engine::before_commit=sleep({})", 1000.0 * seconds);
        setup.env("FAILPOINTS", slow)
    };
    let server = place.start(setup);
    let client = Client::of(&server);
    // What a server loads for its first run is no part of it.
    let first = supersteps(1, json!({}));
    let thread = client.thread();
    let (seen, reader) = count(client.open_stream(&thread, &first));
    reader.join().unwrap();
    assert!(seen.load(Ordering::SeqCst) > 0);
    assert_eq!(client.delete(&format!("/threads/{thread}")).status, 204);
    let checkpoints = "SELECT CAST(count(*) AS text) FROM checkpoints";
    until("its checkpoints are gone", || {
        rows(place, &server, checkpoints) == [[Some("0".to_owned())]]
    });
    if place.is_postgres() {
        slow_down(place, seconds);
    }
    let memory = Memory::of(&server);
    let thread = client.thread();
    let open = client.open_stream(&thread, &supersteps(count_of, more));
    let run = open.run();
    let (seen, reader) = count(open);
    let mut furthest = 0;
    while !reader.is_finished() {
        // What is seen first can only be fewer.
        let seen = seen.load(Ordering::SeqCst);
        furthest = furthest.max(seen.saturating_sub(stored(place, &server)));
        std::thread::sleep(Duration::from_millis(20));
    }
    reader.join().unwrap();
    // It ends with its limit of supersteps.
    let patience = Duration::from_secs(60);
    assert_eq!(client.end_within(&thread, &run, patience), "error");
    is_complete(place, &server, count_of);
    Ahead {
        supersteps: furthest,
        memory: memory.peak(),
    }
}

#[test]
fn a_run_waits_for_a_database_that_takes_two_seconds() {
    let begin = Instant::now();
    let ahead = furthest_ahead(&Place::postgres(), setup(), 2.0, 60, json!({}));
    let (furthest, memory) = (ahead.supersteps, ahead.memory / MIB);
    println!("{furthest} ahead, {memory} MiB, {:?}", begin.elapsed());
    assert!(furthest > 1, "it ran ahead");
    assert!(furthest <= AHEAD, "{furthest} supersteps ahead");
    assert!(memory <= 16, "{memory} MiB");
}

fn a_run_of_large_supersteps_is_one_transaction_ahead(place: &Place) {
    let large = json!({"size": 10 << 20});
    // It waits for no other reason than its bytes.
    let setup = setup().env("BACKSTITCH_RUN_AHEAD_AGE", "60000");
    let ahead = furthest_ahead(place, setup, 0.5, 8, large);
    // One is in its transaction, and one is done and finds no room.
    let (furthest, memory) = (ahead.supersteps, ahead.memory / MIB);
    println!("{furthest} ahead, {memory} MiB");
    assert!(furthest <= 2, "{furthest} supersteps of 10 MiB ahead");
    assert!(memory <= LARGE, "{memory} MiB");
}

/// A process is frozen while supersteps wait in its queue, another one takes its run over, and it wakes.
#[test]
fn a_branch_that_is_taken_over_in_the_middle_of_a_queue_has_each_superstep_once() {
    // So many that they are not over before anybody sees that they have begun.
    const MANY: usize = 300;
    let place = Place::postgres();
    let one = start(&place);
    slow_down(&place, 0.3);
    let client = Client::of(&one);
    let thread = client.thread();
    let open = client.open_stream(&thread, &supersteps(MANY, json!({})));
    let run = open.run();
    let (seen, reader) = count(open);
    until("supersteps are stored, and others wait", || {
        let stored = stored(&place, &one);
        stored > QUEUE && seen.load(Ordering::SeqCst) > stored + 1
    });
    one.signal("STOP");
    let at = stored(&place, &one);
    // Nobody takes the run over once more, also if this process has to wait for a processor.
    let two = place.start(setup().env("BACKSTITCH_LEASE", "15"));
    until("the other process goes on", || {
        stored(&place, &two) > at + AHEAD
    });
    one.signal("CONT");
    let patience = Duration::from_secs(60);
    let there = Client::of(&two);
    assert_eq!(there.end_within(&thread, &run, patience), "error");
    reader.join().unwrap();
    let attempts = rows(&place, &two, "SELECT attempt::text FROM runs");
    assert_eq!(attempts, [[Some("2".to_owned())]]);
    let last = stored(&place, &two) - 1;
    assert!(last >= MANY, "{last}");
    is_complete(&place, &two, last);
    // Either process can write the thread.
    for client in [&client, &there] {
        let ran = client.open_stream(&thread, &supersteps(1, json!({})));
        assert_eq!(client.end_within(&thread, &ran.run(), patience), "error");
    }
}

/// Whoever reads such a stream on after a crash has missed nothing: what it was shown is stored.
fn a_stream_that_can_be_resumed_shows_no_event_that_a_crash_takes_back(place: &Place) {
    let mut server = start(place);
    if place.is_postgres() {
        slow_down(place, 0.1);
    }
    let client = Client::of(&server);
    let thread = client.thread();
    let body = with(supersteps(400, json!({})), "stream_resumable", true);
    let mut open = client.open_stream(&thread, &body);
    let run = open.run();
    let mut shown = vec![];
    while shown.len() < 40 {
        shown.push(open.event().unwrap());
    }
    server.kill();
    let number = |id: &Option<String>| id.as_deref().unwrap().parse::<u64>().unwrap();
    shown.extend(std::iter::from_fn(|| open.event_or_break().ok().flatten()));
    let updates = |events: &[Event]| events.iter().filter(|one| one.name == "updates").count();
    // No superstep of which it was shown something is executed again.
    let (seen, stored) = (updates(&shown), stored(place, &server));
    assert!(seen <= stored, "{seen} supersteps shown, {stored} stored");
    let last = number(&shown.last().unwrap().id);
    let sql = "SELECT CAST(max(last_seq) AS text) FROM run_events";
    let kept = rows(place, &server, sql)[0][0].clone().unwrap();
    assert!(kept.parse::<u64>().unwrap() >= last, "{last} of {kept}");
    server.restart();
    let client = Client::of(&server);
    let path = format!("/threads/{thread}/runs/{run}/stream");
    let after = last.to_string();
    let mut open = client.open("GET", &path, &[("last-event-id", &after)], b"");
    let rest: Vec<_> = std::iter::from_fn(|| open.event()).collect();
    assert!(rest.iter().all(|event| number(&event.id) > last));
    assert_eq!(client.end_of(&thread, &run), "error");
}
