//! One principal who creates runs without end, and when the runs of another begin.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::tables;
use test_support::talk::slow;

use crate::siege::{MIB, Memory, Waits, patiently, rounds};

on_both_storages!(a_flood_of_runs_delays_no_run_of_another);

/// Runs of one batch.
const BATCH: usize = 500;

/// Threads with a full queue that come with each batch, and how often each is tried.
const THREADS: usize = 5;
const TRIES: usize = 110;

/// What the runs that are executed may take, and each one that waits.
const BASE: u64 = 64 * MIB;
const EACH: u64 = 3 << 10;

/// What became of the runs of a flood.
#[derive(Debug, Default)]
struct Flood {
    accepted: usize,
    /// The queue of their branch was full.
    refused: usize,
    /// How often the server was busy, and was asked again.
    busy: usize,
}

impl Flood {
    fn and(self, other: Self) -> Self {
        Self {
            accepted: self.accepted + other.accepted,
            refused: self.refused + other.refused,
            busy: self.busy + other.busy,
        }
    }
}

/// They take every slot that one principal may have, for longer than the others wait.
fn long() -> Value {
    slow(20_000, 1)
}

/// Creates runs that have threads of their own, many at once.
fn batches(client: &Client) -> Flood {
    let batch = json!(vec![long(); BATCH]);
    let mut flood = Flood::default();
    for _ in 0..rounds() {
        let mut tries = 0;
        patiently(|| {
            tries += 1;
            client.post("/runs/batch", &batch)
        });
        flood.accepted += BATCH;
        flood.busy += tries - 1;
    }
    flood
}

/// Creates runs one after another on one thread, more than its queue takes.
fn fill(client: &Client) -> Flood {
    let created = patiently(|| client.post("/threads", &json!({}))).json();
    let path = format!("/threads/{}/runs", created["thread_id"].as_str().unwrap());
    let mut flood = Flood::default();
    while flood.accepted + flood.refused < TRIES {
        let answer = client.post(&path, &long());
        match answer.status {
            200 => flood.accepted += 1,
            503 => flood.busy += 1,
            _ => {
                answer.refused(429);
                assert_eq!(answer.json()["code"], "queue_full");
                flood.refused += 1;
            }
        }
    }
    // The first of them waits for a slot, or has one and waits no more.
    assert!(matches!(flood.accepted, 100 | 101), "{flood:?}");
    flood
}

fn flood(client: &Client) -> Flood {
    let threads = THREADS * rounds();
    std::thread::scope(|scope| {
        let mut all = vec![scope.spawn(|| batches(client))];
        for worker in 0..8 {
            let fill = move || (worker..threads).step_by(8).map(|_| fill(client));
            all.push(scope.spawn(move || fill().fold(Flood::default(), Flood::and)));
        }
        let all = all.into_iter().map(|one| one.join().unwrap());
        all.fold(Flood::default(), Flood::and)
    })
}

/// How long a client waits for a run that does next to nothing, from its creation to its end.
fn wait(client: &Client) -> Duration {
    let thread = client.thread();
    let begin = Instant::now();
    client.run(&thread, &slow(0, 0));
    begin.elapsed()
}

fn a_flood_of_runs_delays_no_run_of_another(place: &Place) {
    let setup =
        Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b");
    let server = place.start(setup);
    let client = Client::of(&server);
    let (ann, bob) = (client.with_key("key-a"), client.with_key("key-b"));
    let memory = Memory::of(&server);
    let begin = Instant::now();
    let mut meanwhile = vec![];
    let flood = std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood(&ann));
        while !flood.is_finished() {
            meanwhile.push(wait(&bob));
        }
        flood.join().unwrap()
    });
    let flooded = begin.elapsed();
    let afterwards = (0..100).map(|_| wait(&bob)).collect();
    let queued = "SELECT CAST(count(*) AS text) FROM runs WHERE status = 'pending'";
    let queued = tables::rows(place, &server, queued)[0][0].clone().unwrap();
    println!("{flood:?} in {flooded:?}, {queued} wait");
    assert_ne!(queued, "0", "the flood was over");
    assert!(flood.accepted >= (BATCH + THREADS * 100) * rounds() && flood.refused > 0);
    // The short form runs beside other tests.
    let most = if rounds() < 10 { 5 } else { 1 };
    for (when, waits) in [("meanwhile", meanwhile), ("afterwards", afterwards)] {
        let waits: Waits = waits.into_iter().collect();
        let (count, p99, longest) = (waits.count(), waits.p99(), waits.longest());
        println!(
            "{when} 99 of 100 of {count} runs of another are over after {p99:?}, all after {longest:?}"
        );
        assert!(p99 < Duration::from_secs(most), "{p99:?}");
    }
    // The queue is not worked off: what is watched of each run that waits stays in memory.
    let (peak, most) = (memory.peak(), BASE + EACH * flood.accepted as u64);
    println!("a flood of runs: peak {} MiB", peak / MIB);
    assert!(peak <= most, "{} of {} MiB", peak / MIB, most / MIB);
}
