//! Streams in numbers: clients that never read, idle streams, and what the log of a stream costs. The
//! figures are printed; longer forms by `BACKSTITCH_ATTACKS`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::client::{Client, Open};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::tables::rows;
use test_support::talk::{until, with};

use crate::siege::{MIB, Memory, rounds};

on_both_storages!(
    what_a_log_costs_is_known,
    clients_that_never_read_take_little_memory_and_hold_up_nobody,
    idle_streams_take_little_memory,
);

/// A run that emits so many tokens.
fn tokens(count: usize, is_resumable: bool) -> Value {
    json!({
        "assistant_id": "tokens_custom",
        "input": {"n": count},
        "stream_mode": "custom",
        "stream_resumable": is_resumable,
    })
}

/// What a stream has when nothing else came for a while; how often that is depends on the machine.
const HEARTBEAT: &[u8] = b": heartbeat\r\n\r\n";

/// Streams a run and reads it to its end: how many bytes of events came, and in what time.
fn read(client: &Client, body: &Value) -> (usize, Duration) {
    let thread = client.thread();
    let begin = Instant::now();
    let mut open = client.open_stream(&thread, body);
    let mut bytes = 0;
    while let Some(chunk) = open.chunk() {
        if chunk != HEARTBEAT {
            bytes += chunk.len();
        }
    }
    (bytes, begin.elapsed())
}

fn what_a_log_costs_is_known(place: &Place) {
    let server = place.start(Setup::example("bench_server"));
    let client = Client::of(&server);
    let count = 20_000 * rounds();
    let (mut plain, mut resumable) = (Duration::ZERO, Duration::ZERO);
    // One after the other, so that both meet the same machine.
    for _ in 0..5 {
        plain += read(&client, &tokens(count, false)).1;
        resumable += read(&client, &tokens(count, true)).1;
    }
    let rate = |time: Duration| (5 * count) as f64 / time.as_secs_f64();
    let sums = "SELECT CAST(count(*) AS text), CAST(count(DISTINCT created_at) AS text), \
         CAST(sum(last_seq - first_seq + 1) AS text), CAST(sum(octet_length(frames)) AS text) FROM run_events";
    let sums = match place.url() {
        Some(_) => sums.to_owned(),
        None => sums.replace("octet_length", "length"),
    };
    let row = rows(place, &server, &sums).remove(0);
    let number = |at: usize| row[at].as_ref().unwrap().parse::<f64>().unwrap();
    let (chunks, commits, events, bytes) = (number(0), number(1), number(2), number(3));
    println!(
        "tokens/s plain {:.0}, resumable {:.0}, ratio {:.2}; {:.0} events a commit, {:.0} a chunk, {:.0} bytes an event",
        rate(plain),
        rate(resumable),
        rate(resumable) / rate(plain),
        events / commits,
        events / chunks,
        bytes / events,
    );
    // Each token, metadata and the end of each run.
    assert_eq!(events as usize, 5 * (count + 2));
}

/// The fastest of some reads: what else the machine does at one moment slows down a single one.
fn fastest(client: &Client, body: &Value) -> (usize, Duration) {
    let reads = (0..3).map(|_| read(client, body));
    reads.min_by_key(|(_, time)| *time).unwrap()
}

fn clients_that_never_read_take_little_memory_and_hold_up_nobody(place: &Place) {
    let setup = Setup::example("bench_server").env("BACKSTITCH_STALL", "20");
    let server = place.start(setup);
    let client = Client::of(&server);
    // About five hundred bytes each on the wire.
    let count = 20_000;
    let body = with(tokens(count, false), "assistant_id", "tokens_large");
    let alone = fastest(&client, &body);
    println!("{} MiB of tokens each", alone.0 as u64 / MIB);
    let unread = |_| {
        let thread = client.thread();
        let open = client.open_stream(&thread, &body);
        (thread, open)
    };
    let memory = Memory::of(&server);
    let begin = Instant::now();
    let all: Vec<(String, Open)> = (0..10 * rounds()).map(unread).collect();
    let patience = Duration::from_secs(60) * u32::try_from(rounds()).unwrap();
    for (thread, open) in &all {
        // Nobody waits for readers.
        let end = client.end_within(thread, &open.run(), patience);
        assert_eq!(end, "success");
    }
    let rate = (all.len() * count) as f64 / begin.elapsed().as_secs_f64();
    println!("{rate:.0} tokens/s of all runs");
    let beside = fastest(&client, &body);
    let open = client.get("/metrics");
    let is_over = open.text().contains("backstitch_streams_open 0");
    assert!(!is_over, "the clients that never read were not beside");
    // A client that takes nothing for the time of BACKSTITCH_STALL is hung up on.
    until("the streams that nobody reads are closed", || {
        let metrics = client.get("/metrics");
        metrics.text().contains("backstitch_streams_open 0")
    });
    let peak = memory.peak();
    let slowdown = beside.1.as_secs_f64() / alone.1.as_secs_f64();
    println!(
        "{} clients that never read: peak {} MiB; a run beside them takes {slowdown:.2} of its time alone",
        all.len(),
        peak / MIB,
    );
    assert!(
        slowdown < 3.0,
        "a run beside them takes {slowdown:.2} times as long"
    );
    assert_eq!(beside.0, alone.0);
    // However many there are: what is unread of all of them has a share of the memory.
    memory.held("streams that nobody reads", 512 * MIB);
}

fn idle_streams_take_little_memory(place: &Place) {
    let server = place.start(Setup::example("bench_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let path = format!("/threads/{thread}/stream");
    let open = |_| client.open("GET", &path, &[], b"");
    drop((0..50).map(open).collect::<Vec<_>>());
    let memory = Memory::of(&server);
    let count = 200 * rounds();
    let streams: Vec<Open> = (0..count).map(open).collect();
    assert!(streams.iter().all(|stream| stream.status == 200));
    let each = memory.now() / count as u64;
    println!("{count} idle streams: {each} bytes each");
    assert!(each < 100 << 10, "{each} bytes an idle stream");
    drop(streams);
    until("all streams are closed", || {
        let metrics = client.get("/metrics");
        metrics.text().contains("backstitch_streams_open 0")
    });
}
