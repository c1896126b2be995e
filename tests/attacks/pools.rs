//! Slow reads that take every connection there is for reads: runs commit all the same, and no process looks dead.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::gate::{Gate, reached};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::tables::{self, execute};
use test_support::talk::{background, ok, slow, until, until_within, with};

use crate::siege::{MIB, Memory, Waits, pause, rounds};

on_both_storages!(slow_reads_that_take_every_connection_delay_no_commit_of_a_run);

/// For so long a read of states holds its connection.
const HOLD: Duration = Duration::from_millis(400);

/// Between two requests of another client.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a request may wait for its slot, and its reads for the share of their principal, in seconds.
const LIMIT: u64 = 2;

/// So long a reader waits for an answer, before which the server serves it or not.
const PATIENCE: Duration = Duration::from_secs(30);

/// Supersteps of one run whose commits are timed, and how long after it the next one begins: as fast as they can they
/// would take a processor for themselves.
const STEPS: usize = 25;
const REST: Duration = Duration::from_millis(400);

/// A run of as many supersteps, each of which is stored before the next begins.
pub fn supersteps(count: usize) -> Value {
    json!({
        "assistant_id": "loop",
        "input": {"target": count},
        "config": {"recursion_limit": count + 1},
        "durability": "sync",
        "stream_mode": "updates",
        "on_disconnect": "cancel",
    })
}

/// A thread with a history of a few states.
pub fn thread_of_states(client: &Client) -> String {
    let thread = client.thread();
    client.run(&thread, &supersteps(1));
    for at in 0..20 {
        let edit = json!({"values": {"note": format!("{at:06}").repeat(1_000)}});
        ok(client.post(&format!("/threads/{thread}/state"), &edit), 200);
    }
    thread
}

/// How long each superstep took of runs that a client follows, one after another with a pause between them, until
/// `work` is done; and what came of that.
fn commits<T>(client: &Client, work: impl FnOnce() -> T) -> (Waits, T) {
    let done = AtomicBool::new(false);
    let open = || client.open_stream(&client.thread(), &supersteps(STEPS));
    let mut stream = open();
    stream.event_named("updates");
    std::thread::scope(|scope| {
        let followed = scope.spawn(|| {
            let (mut waits, mut last) = (vec![], Instant::now());
            while !done.load(Ordering::Relaxed) {
                match stream.event() {
                    Some(event) if event.name == "updates" => waits.push(last.elapsed()),
                    Some(_) => {}
                    None => {
                        std::thread::sleep(pause(REST));
                        stream = open();
                    }
                }
                last = Instant::now();
            }
            waits.into_iter().collect()
        });
        let came = work();
        done.store(true, Ordering::Relaxed);
        (followed.join().unwrap(), came)
    })
}

/// What readers were answered.
#[derive(Debug, Default)]
struct Answers {
    /// How many had which status.
    statuses: BTreeMap<u16, usize>,
    /// How often a reader left before its answer came.
    left: usize,
}

impl Answers {
    fn and(mut self, other: Self) -> Self {
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.left += other.left;
        self
    }
}

/// Reads a history again and again until it is `done`.
fn read(client: &Client, thread: &str, done: &AtomicBool) -> Answers {
    let mut answers = Answers::default();
    while !done.load(Ordering::Relaxed) {
        let path = format!("/threads/{thread}/history");
        let Some(answer) = client.post_within(PATIENCE, &path, &json!({"limit": 1000})) else {
            answers.left += 1;
            continue;
        };
        *answers.statuses.entry(answer.status).or_default() += 1;
        if answer.status != 200 {
            assert!(matches!(answer.status, 429 | 503), "{}", answer.text());
            // A client does what it is told.
            assert_eq!(answer.header("retry-after"), Some("1"));
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    answers
}

/// Lets so many readers, shared out among these clients, read while `work` goes on.
fn beside<T>(
    readers: usize,
    clients: &[(Client, String)],
    work: impl FnOnce() -> T,
) -> (Answers, T) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = |(client, thread): &'_ (Client, String)| {
            let (client, thread, done) = (client.clone(), thread.clone(), &done);
            scope.spawn(move || read(&client, &thread, done))
        };
        let all: Vec<_> = clients.iter().cycle().take(readers).map(reader).collect();
        let came = work();
        done.store(true, Ordering::Relaxed);
        let all = all.into_iter().map(|one| one.join().unwrap());
        (all.fold(Answers::default(), Answers::and), came)
    })
}

fn slow_reads_that_take_every_connection_delay_no_commit_of_a_run(place: &Place) {
    let setup = Setup::example("bench_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b,eve=key-e")
        .env("BACKSTITCH_LEASE", "3")
        .env("BACKSTITCH_REQUEST_WAIT", LIMIT.to_string());
    let mut server = place.start(setup);
    let keys = ["key-a", "key-b"];
    let threads = keys.map(|key| thread_of_states(&Client::of(&server).with_key(key)));
    let hold = format!("checkpoints::page=sleep({})", HOLD.as_millis());
    server.restart_with("FAILPOINTS", &hold);
    // Somebody who would take over the runs of a process that looks dead.
    let watching = place.is_postgres().then(|| server.replica());
    let client = |key: &str| Client::of(&server).with_key(key);
    let slow: Vec<(Client, String)> = keys.map(client).into_iter().zip(threads).collect();
    let eve = client("key-e");
    // It lasts longer than a lease, and for as long as anything here.
    let lasts = json!({"assistant_id": "sleeper", "input": {"seconds": 300}});
    let watched = eve.thread();
    let lasting = background(&eve, &watched, &lasts);
    // The connections for reads, of the twenty of the usual settings, and the threads that read SQLite.
    let connections = if place.is_postgres() { 8 } else { 4 };
    let readers = 50 * rounds();
    // The short form runs beside other tests.
    let (time, most) = if rounds() < 10 {
        (Duration::from_secs(3), Duration::from_secs(5))
    } else {
        (Duration::from_secs(15), Duration::from_millis(250))
    };
    let (quiet, ()) = commits(&eve, || std::thread::sleep(time / 3));
    println!("alone 99 of 100 commits take {:?}", quiet.p99());
    let memory = Memory::of(&server);
    for principals in 1..=slow.len() {
        // One has its share, and two have all there is.
        let share = f64::from(connections) * if principals == 1 { 0.5 } else { 1.0 };
        let (answers, (commits, (requests, busy))) = beside(readers, &slow[..principals], || {
            commits(&eve, || {
                let (begin, before) = (Instant::now(), reached(&server));
                let busy = || {
                    let held = HOLD * u32::try_from(reached(&server) - before).unwrap();
                    held.as_secs_f64() / begin.elapsed().as_secs_f64()
                };
                let mut requests = vec![];
                // On a busy machine it takes longer until all readers read.
                while begin.elapsed() < time || begin.elapsed() < 5 * time && busy() <= share / 2.0
                {
                    requests.push(Waits::of(&eve, 1).longest());
                    std::thread::sleep(PAUSE);
                }
                (requests.into_iter().collect::<Waits>(), busy())
            })
        });
        println!(
            "{readers} readers of {principals} principals hold {busy:.1} of {connections} connections: {answers:?}; \
             99 of 100 of {} commits take {:?}, all {:?}; 99 of 100 of {} requests of another {:?}",
            commits.count(),
            commits.p99(),
            commits.longest(),
            requests.count(),
            requests.p99(),
        );
        assert_eq!(answers.left, 0, "a reader had no answer");
        assert!(commits.p99() < most, "{:?}", commits.p99());
        assert!(
            requests.p99() < Duration::from_secs(5),
            "{:?}",
            requests.p99()
        );
        assert!(busy > share / 2.0, "the reads held {busy:.1} connections");
    }
    let lasting = ok(eve.get(&format!("/threads/{watched}/runs/{lasting}")), 200);
    assert_eq!(lasting["status"], "running");
    nobody_took_over(place, &server, watching.as_ref());
    memory.held("slow reads", 256 * MIB);
}

/// Fails if a run was begun twice, or if one of the processes lost its lease.
fn nobody_took_over(place: &Place, server: &Server, watching: Option<&Server>) {
    let attempts = "SELECT CAST(max(attempt) AS text) FROM runs";
    assert_eq!(number(place, server, attempts), 1);
    for process in watching.into_iter().chain([server]) {
        for lost in [
            "the lease could not be renewed",
            "the storage was lost",
            "took over runs",
        ] {
            assert!(!process.output().contains(lost), "{lost}");
        }
    }
}

/// The number that a statement gives as text.
fn number(place: &Place, server: &Server, sql: &str) -> usize {
    let rows = tables::rows(place, server, sql);
    rows[0][0].as_deref().unwrap().parse().unwrap()
}

/// Runs that end one after another while no read ends.
const RUNS: usize = 20;

/// Slow reads let go of their connections now and then, and whoever wants one waits a second for it. These have them for
/// twice as long as a lease: nothing that runs need may be on the connections for reads.
#[test]
fn reads_that_do_not_end_for_two_leases_stop_no_commit_and_cost_no_lease() {
    let place = Place::postgres();
    let lease = Duration::from_secs(2);
    let gate = Gate::new();
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b,eve=key-e")
        // Four of them are for reads, and two of those are for one principal.
        .env("BACKSTITCH_CONNECTIONS", "10")
        .env("BACKSTITCH_LEASE", lease.as_secs().to_string())
        .env("FAILPOINTS", gate.at("checkpoints::page"));
    let server = place.start(setup);
    let client = |key: &str| Client::of(&server).with_key(key);
    let readers = ["key-a", "key-b"].map(client);
    let threads = readers.clone().map(|reader| {
        let thread = reader.thread();
        reader.run(&thread, &slow(1, 1));
        thread
    });
    let eve = client("key-e");
    // Each commits what its first node has done, 4 to 8 seconds after all have begun at once, and then its end.
    for ticks in 20..20 + RUNS as u64 {
        let run = with(slow(200, ticks), "durability", "sync");
        let later = with(run, "after_seconds", 3600);
        background(&eve, &eve.thread(), &later);
    }
    execute(&place, &server, "UPDATE runs SET run_at = created_at").unwrap();
    let count = |status: &str| {
        let sql = format!("SELECT count(*)::text FROM runs WHERE status = '{status}'");
        number(&place, &server, &sql)
    };
    until("all have begun", || count("running") == RUNS);
    let memory = Memory::of(&server);
    // Somebody who would take over the runs of a process that looks dead.
    let watching = server.replica();
    // Those of the readers are among them.
    let ended = || count("success") - 2;
    let closed = gate.close();
    let begun = Instant::now();
    let history = |(reader, thread): (&Client, &String)| {
        let path = format!("/threads/{thread}/history");
        [(); 3].map(|()| reader.begin("POST", &path, &[], b"{\"limit\": 10}"))
    };
    let unread: Vec<_> = readers.iter().zip(&threads).map(history).collect();
    until("the reads have every connection", || reached(&server) == 4);
    let before = ended();
    assert!(before < 15, "{before} runs have ended");
    // Nobody reads anything.
    eve.get(&format!("/threads/{}", threads[0])).refused(503);
    let patience = Duration::from_secs(60);
    until_within(patience, "all runs have ended", || ended() == RUNS);
    println!("{} runs end after {:?}", RUNS - before, begun.elapsed());
    std::thread::sleep((2 * lease).saturating_sub(begun.elapsed()));
    nobody_took_over(&place, &server, Some(&watching));
    assert_eq!(reached(&server), 4);
    drop(closed);
    drop(unread);
    for (reader, thread) in readers.iter().zip(&threads) {
        ok(reader.get(&format!("/threads/{thread}/state")), 200);
    }
    memory.held("reads that do not end", 64 * MIB);
}

/// Threads of one principal, each with a run that begins to read its state.
const BEGUN: usize = 6;

/// What a run reads counts for the principal who created it, and waits for its share for longer than a request may.
#[test]
fn reads_of_runs_leave_connections_to_another_and_none_of_them_fails() {
    let place = Place::postgres();
    let gate = Gate::new();
    let setup = Setup::example("reference_server")
        .env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
        // Six of them are for reads, and three of those are for one principal, whose runs leave one to its requests.
        .env("BACKSTITCH_CONNECTIONS", "15")
        .env("BACKSTITCH_REQUEST_WAIT", LIMIT.to_string());
    let mut server = place.start(setup);
    let ann = Client::of(&server).with_key("key-a");
    let threads = [(); BEGUN].map(|()| {
        let thread = ann.thread();
        ann.run(&thread, &slow(1, 1));
        thread
    });
    // The process that goes on has none of these states in memory.
    server.restart_with("FAILPOINTS", &gate.at("checkpoints::page"));
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    // Reads of threads without a state pass the gate.
    let (hers, his) = (ann.thread(), bob.thread());
    let memory = Memory::of(&server);
    let closed = gate.close();
    let (first, others) = threads.split_at(2);
    let begin = |thread: &String| background(&ann, thread, &slow(1, 1));
    let _: Vec<String> = first.iter().map(begin).collect();
    until("the first ones have their share", || reached(&server) == 2);
    let others: Vec<(&String, String)> = others.iter().map(|it| (it, begin(it))).collect();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2 * LIMIT) {
        ok(bob.get(&format!("/threads/{his}")), 200);
        ok(ann.get(&format!("/threads/{hers}")), 200);
        std::thread::sleep(PAUSE);
    }
    assert_eq!(reached(&server), 2, "the others wait outside");
    // One that is cancelled reads at once what it ends with.
    let (thread, run) = others.last().unwrap();
    let last = format!("/threads/{thread}/runs/{run}");
    let cancel = ann.send("POST", &format!("{last}/cancel"), &[], b"");
    assert_eq!(cancel.status, 202, "{}", cancel.text());
    until("it reads", || reached(&server) == 3);
    drop(closed);
    let ended = || {
        let sql = "SELECT count(*)::text FROM runs WHERE status = 'success'";
        number(&place, &server, sql)
    };
    until("all others have succeeded", || ended() == 2 * BEGUN - 1);
    until("it has ended", || {
        ok(ann.get(&last), 200)["status"] == "interrupted"
    });
    memory.held("runs whose reads wait", 64 * MIB);
}
