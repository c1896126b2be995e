//! Everything that takes memory at once, of several clients, with the settings of a machine of one gibibyte.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::access::grant;
use test_support::client::{Client, Open};
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::talk::{agent_thread, background, copies, ok, slow, turn, with};

use crate::siege::{MIB, Memory, Waits, Watch, patiently, pause, rounds};

on_both_storages!(
    what_several_clients_take_at_once_fits_a_gibibyte;
    postgres_in_long_form:
    many_slow_readers_of_histories_hold_up_nobody,
    unread_searches_of_long_term_memory_take_one_share,
);

const KEYS: &str = "ann=key-a,bob=key-b,cid=key-c,dan=key-d,eve=key-e";

fn setup() -> Setup {
    Setup::example("reference_server").env("BACKSTITCH_API_KEYS", KEYS)
}

/// A thread with as many large states.
fn large_thread(client: &Client, states: usize) -> String {
    let thread = client.thread();
    let begin = json!({"assistant_id": "approve", "input": {"request": "r"}});
    client.run(&thread, &begin);
    for at in 0..states {
        let text = format!("{at:08}").repeat(1 << 20);
        let edit = json!({"values": {"request": text}});
        ok(client.post(&format!("/threads/{thread}/state"), &edit), 200);
    }
    thread
}

/// A thread with as many large states for each of four clients. The first one sends the states, and each of the others
/// copies its thread, which costs a part of that.
fn large_threads([ann, others @ ..]: &[Client; 4], states: usize) -> Vec<String> {
    let thread = large_thread(ann, states);
    let mut threads = vec![thread.clone()];
    for (client, name) in others.iter().zip(["bob", "cid", "dan"]) {
        grant(ann, &thread, name, "reader");
        threads.extend(copies(client, thread.clone(), 2).pop());
    }
    threads
}

/// A body of which the end never comes.
fn unfinished(server: &Server, key: &str) -> TcpStream {
    let address = server.base_url().trim_start_matches("http://");
    let mut socket = TcpStream::connect(address).unwrap();
    let timeout = Some(Duration::from_secs(60));
    socket.set_write_timeout(timeout).unwrap();
    let head = format!(
        "POST /threads HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\ncontent-length: 4000000\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    // Refused ones are closed before all of it was sent.
    socket.write_all(&vec![b' '; 3 << 20]).ok();
    socket
}

/// What a client opens and never reads.
struct Unread {
    _bodies: Vec<TcpStream>,
    responses: Vec<Open>,
    streams: Vec<Open>,
    runs: Vec<(String, String)>,
}

fn open(server: &Server, client: &Client, key: &str, thread: &str) -> Unread {
    let history = json!({"limit": 100}).to_string();
    let state = format!("/threads/{thread}/state");
    let path = format!("/threads/{thread}/history");
    let mut responses = vec![];
    let mut streams = vec![];
    let mut bodies = vec![];
    let modes = json!(["values", "updates", "tasks", "checkpoints", "debug"]);
    let loud = with(turn(&"x".repeat(800_000)), "stream_mode", modes);
    for _ in 0..12 {
        bodies.push(unfinished(server, key));
        responses.push(client.open("GET", &state, &[], b""));
        responses.push(client.open("POST", &path, &[], history.as_bytes()));
        let path = format!("/threads/{}/runs/stream", agent_thread(client));
        streams.push(client.open("POST", &path, &[], loud.to_string().as_bytes()));
    }
    // Their states are decoded and retained.
    let resume =
        json!({"assistant_id": "approve", "command": {"resume": "yes"}, "stream_mode": []});
    let run = background(client, thread, &resume);
    Unread {
        _bodies: bodies,
        responses,
        streams,
        runs: vec![(thread.to_owned(), run)],
    }
}

fn what_several_clients_take_at_once_fits_a_gibibyte(place: &Place) {
    let mut server = place.start(setup());
    let keys = ["key-a", "key-b", "key-c", "key-d"];
    let clients = |server: &Server| keys.map(|key| Client::of(server).with_key(key));
    let threads = large_threads(&clients(&server), 2);
    // Nothing of it is in memory.
    server.restart();
    let memory = Memory::of(&server);
    let all = clients(&server);
    let other = Client::of(&server).with_key("key-e");
    for _ in 0..rounds() {
        let unread: Vec<Unread> = std::thread::scope(|scope| {
            let one = |at: usize| {
                let (server, client, thread) = (&server, &all[at], &threads[at]);
                scope.spawn(move || open(server, client, keys[at], thread))
            };
            let opened: Vec<_> = (0..keys.len()).map(one).collect();
            opened.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let waits = Waits::of(&other, 20);
        waits.held("several clients at once", Duration::from_secs(30));
        for one in &unread {
            for response in one.responses.iter().chain(&one.streams) {
                assert!(
                    [200, 429, 503].contains(&response.status),
                    "{}",
                    response.status
                );
            }
        }
        let answered = |status: u16| {
            let responses = unread.iter().flat_map(|one| &one.responses);
            responses.filter(|one| one.status == status).count()
        };
        println!("{} responses, {} refusals", answered(200), answered(503));
        assert!(answered(200) > 0 && answered(503) > 0);
        println!("peak {} MiB more than at the start", memory.peak() / MIB);
        let runs: Vec<Vec<(String, String)>> = unread.into_iter().map(|one| one.runs).collect();
        // Runs waited for their memory, and did not fail.
        for (client, runs) in all.iter().zip(runs) {
            for (thread, run) in runs {
                assert_eq!(client.end_of(&thread, &run), "success");
            }
        }
    }
    // What a server has at its start comes to less than 64 MiB.
    memory.held("bodies, responses, streams and states at once", 960 * MIB);
}

/// Reads a piece of a response now and then; how many bytes came.
fn read_slowly(mut open: Open, until: Instant) -> usize {
    let mut bytes = 0;
    while let Some(piece) = open.chunk_or_break() {
        bytes += piece.len();
        if Instant::now() >= until {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    bytes
}

/// Between two edits of a state: without it they would take a processor for themselves.
const PAUSE: Duration = Duration::from_millis(50);

/// How long each edit of a state took, which is a commit of its own, as long as they are wanted: the longest of 99 in
/// 100, and how many there were.
fn commits(
    client: &Client,
    thread: &str,
    mut is_wanted: impl FnMut(usize) -> bool,
) -> (Duration, usize) {
    let edit = json!({"values": {"request": "short"}});
    let mut all = vec![];
    while is_wanted(all.len()) {
        let begin = Instant::now();
        ok(client.post(&format!("/threads/{thread}/state"), &edit), 200);
        all.push(begin.elapsed());
        std::thread::sleep(pause(PAUSE));
    }
    all.sort_unstable();
    (all[(all.len() * 99).div_ceil(100) - 1], all.len())
}

fn many_slow_readers_of_histories_hold_up_nobody(place: &Place) {
    // The short form lasts for more than two leases too.
    let (lease, time) = if rounds() < 10 { (2, 5) } else { (4, 10) };
    let server = place.start(setup().env("BACKSTITCH_LEASE", lease.to_string()));
    let ann = Client::of(&server).with_key("key-a");
    let thread = ann.thread();
    let begin = json!({"assistant_id": "approve", "input": {"request": "r"}});
    ann.run(&thread, &begin);
    for at in 0..50 {
        let edit = json!({"values": {"request": format!("{at:06}").repeat(5_000)}});
        ok(ann.post(&format!("/threads/{thread}/state"), &edit), 200);
    }
    let (dan, eve) = (
        Client::of(&server).with_key("key-d"),
        Client::of(&server).with_key("key-e"),
    );
    let (watched, edited) = (dan.thread(), eve.thread());
    eve.run(&edited, &begin);
    // They are a figure to look at.
    let usual = if rounds() < 10 { 10 } else { 50 };
    let (quiet, _) = commits(&eve, &edited, |made| made < usual);
    let watch = Watch::beside(&server, &Client::of(&server).with_key("key-b"));
    // Nearly twice as many as there are connections to the database.
    let readers = if rounds() < 10 { 35 } else { 50 * rounds() };
    let body = json!({"limit": 1000}).to_string();
    let path = format!("/threads/{thread}/history");
    let until = Instant::now() + Duration::from_secs(time);
    let refused = AtomicUsize::new(0);
    let served: Vec<usize> = std::thread::scope(|scope| {
        let one = |_| {
            let (ann, path, body, refused) = (&ann, &path, &body, &refused);
            scope.spawn(move || {
                while Instant::now() < until {
                    let open = ann.open("POST", path, &[], body.as_bytes());
                    match open.status {
                        200 => return Some(read_slowly(open, until)),
                        503 => assert!(open.header("retry-after").is_some()),
                        other => panic!("{other}"),
                    }
                    refused.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_secs(1));
                }
                None
            })
        };
        let all: Vec<_> = (0..readers).map(one).collect();
        let run = background(&dan, &watched, &slow(50, 60));
        let (attacked, made) = commits(&eve, &edited, |made| made == 0 || Instant::now() < until);
        println!(
            "{readers} slow readers: 99 of 100 of {made} commits take {attacked:?}, before {quiet:?}"
        );
        // The short form runs beside other tests.
        let most = if rounds() < 10 { 5_000 } else { 250 };
        assert!(attacked < Duration::from_millis(most), "{attacked:?}");
        assert_eq!(dan.end_of(&watched, &run), "success");
        let all = all.into_iter().filter_map(|one| one.join().unwrap());
        all.collect()
    });
    println!("{} were served, {refused:?} refusals", served.len());
    assert!(served.iter().all(|bytes| *bytes > 0) && !served.is_empty());
    let whole: Value = ok(ann.post(&path, &json!({"limit": 1000})), 200);
    assert!(whole.as_array().unwrap().len() > 50);
    for lost in [
        "the lease could not be renewed",
        "the storage was lost",
        "took over runs",
    ] {
        assert!(!server.output().contains(lost), "{lost}");
    }
    watch.held("slow readers of histories", 400 * MIB);
}

fn unread_searches_of_long_term_memory_take_one_share(place: &Place) {
    let server = place.start(setup());
    let ann = Client::of(&server).with_key("key-a");
    for at in 0..15 {
        let value = json!({"text": format!("{at:08}").repeat(100_000)});
        let item = json!({"namespace": ["large"], "key": at.to_string(), "value": value});
        let put = ann.send("PUT", "/store/items", &[], item.to_string().as_bytes());
        assert_eq!(put.status, 204, "{}", put.text());
    }
    let bob = Client::of(&server).with_key("key-b");
    let watch = Watch::beside(&server, &bob);
    let body = json!({"namespace_prefix": ["large"], "limit": 15});
    let search = || {
        ann.open(
            "POST",
            "/store/items/search",
            &[],
            body.to_string().as_bytes(),
        )
    };
    let unread: Vec<Open> = std::thread::scope(|scope| {
        // What fifty find has nearly twice as many bytes as the server may take, before any of it is decoded.
        let count = if rounds() < 10 { 50 } else { 100 * rounds() };
        let all: Vec<_> = (0..count).map(|_| scope.spawn(search)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let count = |status: u16| unread.iter().filter(|one| one.status == status).count();
    println!("{} responses, {} refusals", count(200), count(503));
    assert_eq!(count(200) + count(503), unread.len());
    assert!(count(200) > 0 && count(503) > 0);
    println!(
        "peak {} MiB more than at the start",
        watch.memory.peak() / MIB
    );
    drop(unread);
    let found = patiently(|| ann.post("/store/items/search", &body)).json();
    assert_eq!(found["items"].as_array().unwrap().len(), 15);
    watch.held("unread searches of 12 MB", 300 * MIB);
}
