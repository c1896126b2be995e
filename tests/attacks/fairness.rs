//! One principal who creates runs without end, and when the runs of another begin.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
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

/// A run that does next to nothing, and how long its client waits from its creation to its end.
fn short(client: &Client) -> (String, Duration) {
    let thread = client.thread();
    let begin = Instant::now();
    let answer = client.post(&format!("/threads/{thread}/runs/wait"), &slow(0, 0));
    let wait = begin.elapsed();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let location = answer.header("content-location").unwrap();
    (location.rsplit('/').next().unwrap().to_owned(), wait)
}

/// How long after their creation runs were picked up, as their rows say.
fn pick_ups(place: &Place, server: &Server, runs: &[String]) -> Waits {
    let took = if place.is_postgres() {
        "(extract(epoch FROM started_at - created_at) * 1000000)::bigint"
    } else {
        "started_at - created_at"
    };
    let id = if place.is_postgres() {
        "run_id::text"
    } else {
        "lower(format('%s-%s-%s-%s-%s', substr(hex(run_id), 1, 8), substr(hex(run_id), 9, 4),
           substr(hex(run_id), 13, 4), substr(hex(run_id), 17, 4), substr(hex(run_id), 21)))"
    };
    let ids: Vec<String> = runs.iter().map(|run| format!("'{run}'")).collect();
    let sql = format!(
        "SELECT CAST({took} AS text) FROM runs WHERE {id} IN ({})",
        ids.join(",")
    );
    let rows = tables::rows(place, server, &sql);
    let micros = rows
        .iter()
        .map(|row| row[0].as_ref().unwrap().parse().unwrap());
    let waits: Waits = micros.map(Duration::from_micros).collect();
    assert_eq!(waits.count(), runs.len());
    waits
}

/// Cancels all that wait and all that are executed, as many at once as one request may.
fn cancel_all(client: &Client) {
    let all = json!({"status": "all"});
    loop {
        let answer = client.post("/runs/cancel", &all);
        match answer.status {
            204 | 503 => {}
            404 => return,
            _ => panic!("{}: {}", answer.status, answer.text()),
        }
    }
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
            meanwhile.push(short(&bob));
        }
        flood.join().unwrap()
    });
    let flooded = begin.elapsed();
    let afterwards = (0..if rounds() < 10 { 40 } else { 100 })
        .map(|_| short(&bob))
        .collect();
    let queued = "SELECT CAST(count(*) AS text) FROM runs WHERE status = 'pending'";
    let queued = tables::rows(place, &server, queued)[0][0].clone().unwrap();
    println!("{flood:?} in {flooded:?}, {queued} wait");
    assert_ne!(queued, "0", "the flood was over");
    assert!(flood.accepted >= (BATCH + THREADS * 100) * rounds() && flood.refused > 0);
    // The short form runs beside other tests.
    let most = if rounds() < 10 { 5 } else { 1 };
    for (when, runs) in [("meanwhile", meanwhile), ("afterwards", afterwards)] {
        let (runs, waits): (Vec<String>, Vec<Duration>) = runs.into_iter().unzip();
        let (picked, waits) = (pick_ups(place, &server, &runs), Waits::from_iter(waits));
        println!(
            "{when} 99 of 100 of {} runs of another are picked up after {:?}, and over for their client after {:?}",
            runs.len(),
            picked.p99(),
            waits.p99(),
        );
        assert!(picked.p99() < Duration::from_secs(most));
        assert!(waits.p99() < Duration::from_secs(5), "{:?}", waits.p99());
    }
    // The short form ends with the flood: what is watched of each run that waits stays in memory.
    if rounds() >= 10 {
        cancel_all(&ann);
    }
    memory.held("a flood of runs", BASE + EACH * flood.accepted as u64);
}
