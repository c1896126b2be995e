//! Streams in numbers: clients that never read, idle streams, and what the log of a stream costs. The
//! figures are printed; longer forms by `BACKSTITCH_ATTACKS`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::client::{Client, Open};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::tables::{execute, rows};
use test_support::talk::{background, until, until_within, with};

use crate::pools::supersteps;
use crate::siege::{MIB, Watch, rounds, until_idle};

on_both_storages!(
    what_a_log_costs_is_known,
    idle_streams_take_little_memory;
    postgres_in_long_form:
    clients_that_never_read_take_little_memory_and_hold_up_nobody,
    streams_that_nobody_reads_are_closed,
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
    let watch = Watch::of(&server);
    let count = 20_000 * rounds();
    let (mut plain, mut resumable) = (Duration::ZERO, Duration::ZERO);
    // One after the other, so that both meet the same machine; for figures that say something, more than once.
    let times = if rounds() < 10 { 1 } else { 5 };
    for _ in 0..times {
        plain += read(&client, &tokens(count, false)).1;
        resumable += read(&client, &tokens(count, true)).1;
    }
    let rate = |time: Duration| (times * count) as f64 / time.as_secs_f64();
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
    assert_eq!(events as usize, times * (count + 2));
    watch.held("logs of streams", 96 * MIB);
}

/// Clients that never read.
const UNREAD: usize = 500;

/// More than their connections hold.
fn loud() -> Value {
    with(tokens(12_000, false), "assistant_id", "tokens_large")
}

/// Opens as many streams of a run that has not begun, which nobody reads. What their connections hold by themselves is
/// little, since it takes time and shows nothing.
fn opened(client: &Client, thread: &str, run: &str, count: usize) -> Vec<Open> {
    let path = format!("/threads/{thread}/runs/{run}/stream");
    let streams: Vec<Open> = (0..count)
        .map(|_| client.with_window(16 << 10).open("GET", &path, &[], b""))
        .collect();
    assert!(streams.iter().all(|stream| stream.status == 200));
    streams
}

/// Lets the runs begin that were to begin later.
const DUE: &str = "UPDATE runs SET run_at = created_at";

/// How much longer a run may take beside clients that never read.
const SLOWDOWN: f64 = 1.05;

/// How much more processor time its server may take for it: by chance the two differ by an eighth, either way.
const MORE_WORK: f64 = 1.25;

/// Tries on each server at most: few are enough almost always, and these take a quarter of a minute.
const TRIES: usize = 60;

/// How much longer than on the other server a run takes on the first one, and how much more processor time for all of its
/// tries. The two take turns, and turns to be the first, so that what else the machine does slows down both. By chance
/// single tries differ by a half, and nothing makes one faster than it can be: so the least times of both are compared,
/// after more tries where those that there are do not say enough. What every run has to pay for the clients is also
/// looked for in the processor time of all tries.
fn slowdown(servers: [&Server; 2]) -> (f64, f64) {
    let body = supersteps(if rounds() < 10 { 400 } else { 3000 });
    let timed = |server: &Server| {
        let client = Client::of(server);
        let thread = client.thread();
        let begin = Instant::now();
        client.run(&thread, &body);
        begin.elapsed().as_secs_f64()
    };
    let before = servers.map(Server::ticks);
    let mut least = [f64::INFINITY; 2];
    let mut tries = 0;
    while tries < 3 || tries < TRIES && least[0] > SLOWDOWN * least[1] {
        for turn in [tries, tries + 1] {
            let at = turn % 2;
            least[at] = least[at].min(timed(servers[at]));
        }
        tries += 1;
    }
    let after = servers.map(Server::ticks);
    let [first, other] = [0, 1].map(|at| (after[at] - before[at]) as f64);
    println!("{least:.3?} s at least of {tries} tries, {first} and {other} ticks");
    (least[0] / least[1], first / other)
}

fn open_streams(client: &Client) -> f64 {
    let metrics = client.get("/metrics");
    let name = "backstitch_streams_open ";
    let open = metrics
        .text()
        .lines()
        .find_map(|line| line.strip_prefix(name));
    open.unwrap().parse().unwrap()
}

fn clients_that_never_read_take_little_memory_and_hold_up_nobody(place: &Place) {
    let setup = || Setup::example("bench_server");
    let server = place.start(setup());
    // Another one without such clients.
    let elsewhere = match place.url() {
        Some(_) => Place::postgres(),
        None => Place::sqlite(),
    };
    let quiet = elsewhere.start(setup());
    let client = Client::of(&server);
    let thread = client.thread();
    let run = background(&client, &thread, &with(loud(), "after_seconds", 3600));
    let [watch, usual] = [&server, &quiet].map(Watch::of);
    let unread = opened(&client, &thread, &run, UNREAD);
    execute(place, &server, DUE).unwrap();
    Client::of(&quiet).run(&Client::of(&quiet).thread(), &loud());
    // It waits for nobody.
    assert_eq!(client.end_of(&thread, &run), "success");
    // The connections have taken what they hold.
    until_idle(&server);
    let more = watch.memory.peak().saturating_sub(usual.memory.peak());
    println!("the clients take {} MiB", more / MIB);
    assert!(more < 50 * MIB, "{} MiB", more / MIB);
    let (slowdown, work) = slowdown([&server, &quiet]);
    println!(
        "a run beside {UNREAD} clients that never read takes {slowdown:.3} of its time without, and {work:.3} of the \
         processor time"
    );
    assert!(slowdown < SLOWDOWN, "{slowdown:.3}");
    assert!(work < MORE_WORK, "{work:.3}");
    assert_eq!(open_streams(&client), UNREAD as f64);
    drop(unread);
    watch.held("streams that nobody reads", 128 * MIB);
    usual.held("the same without them", 128 * MIB);
}

fn streams_that_nobody_reads_are_closed(place: &Place) {
    // The short form hangs up earlier.
    let (count, stall) = if rounds() < 10 { (40, 2) } else { (UNREAD, 30) };
    let stall = Duration::from_secs(stall);
    let setup = Setup::example("bench_server");
    let server = place.start(setup.env("BACKSTITCH_STALL", stall.as_secs().to_string()));
    let client = Client::of(&server);
    let thread = client.thread();
    let run = background(&client, &thread, &with(loud(), "after_seconds", 3600));
    let watch = Watch::of(&server);
    let unread = opened(&client, &thread, &run, count);
    assert_eq!(open_streams(&client), count as f64);
    execute(place, &server, DUE).unwrap();
    assert_eq!(client.end_of(&thread, &run), "success");
    let begin = Instant::now();
    let patience = stall + Duration::from_secs(5);
    until_within(patience, "the streams that nobody reads are closed", || {
        open_streams(&client) == 0.0
    });
    println!("closed after {:?}", begin.elapsed());
    assert!(begin.elapsed() < patience, "{:?}", begin.elapsed());
    drop(unread);
    watch.held("streams that are closed", 128 * MIB);
}

fn idle_streams_take_little_memory(place: &Place) {
    let server = place.start(Setup::example("bench_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let path = format!("/threads/{thread}/stream");
    let open = |_| client.open("GET", &path, &[], b"");
    drop((0..50).map(open).collect::<Vec<_>>());
    let watch = Watch::of(&server);
    let count = 200 * rounds();
    let streams: Vec<Open> = (0..count).map(open).collect();
    assert!(streams.iter().all(|stream| stream.status == 200));
    let each = watch.memory.now() / count as u64;
    println!("{count} idle streams: {each} bytes each");
    assert!(each < 100 << 10, "{each} bytes an idle stream");
    drop(streams);
    until("all streams are closed", || open_streams(&client) == 0.0);
    watch.held("idle streams", 100 * MIB);
}
