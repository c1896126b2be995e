//! Runs whose supersteps end faster than the database stores them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use test_support::{
    client::{Client, Open},
    place::{Place, block_on},
    server::{Server, Setup},
    tables::{connect, rows},
};

/// Supersteps that may wait for a transaction.
const QUEUE: usize = 16;
/// As many may be in the transaction before it, and one may be under way.
const AHEAD: usize = 2 * QUEUE + 1;

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

fn start(place: &Place) -> Server {
    place.start(Setup::example("faulty_server").env("BACKSTITCH_LEASE", "2"))
}

/// Every change of a branch's head takes this long, as on a disk that is busy.
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

/// The most supersteps that a run of `count` was seen ahead of what is stored.
fn furthest_ahead(place: &Place, seconds: f64, count_of: usize, more: Value) -> usize {
    let server = start(place);
    slow_down(place, seconds);
    let client = Client::of(&server);
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
    furthest
}

#[test]
fn a_run_waits_for_a_database_that_takes_two_seconds() {
    let begin = Instant::now();
    let furthest = furthest_ahead(&Place::postgres(), 2.0, 60, json!({}));
    println!("{furthest} ahead, {:?}", begin.elapsed());
    assert!(furthest > 1, "it ran ahead");
    assert!(furthest <= AHEAD, "{furthest} supersteps ahead");
}

#[test]
fn a_run_of_large_supersteps_is_one_transaction_ahead() {
    let large = json!({"size": 10 << 20});
    let furthest = furthest_ahead(&Place::postgres(), 1.0, 5, large);
    // One is in its transaction, one waits for the next, and one is done and finds no room.
    println!("{furthest} ahead");
    assert!(furthest <= 3, "{furthest} supersteps of 10 MiB ahead");
}
