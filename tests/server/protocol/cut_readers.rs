//! Readers of the protocol that are cut off at many points and come back at another process, or after
//! a restart: each gets every event once, and what is replayed is the same each time.

use std::{
    collections::HashMap,
    net::TcpStream,
    sync::RwLock,
    time::{Duration, Instant},
};

use serde_json::json;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::talk;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client::IntoClientRequest};

use super::*;

on_both_storages!(readers_that_are_cut_off_and_move_get_every_event_once);

const TICKS: u64 = 500;
/// How often each reader is cut off.
const CUTS: u64 = 20;
const CHANNELS: [&str; 4] = ["lifecycle", "checkpoints", "values", "custom"];
/// How long a connection may be silent. Heartbeats come each five seconds.
const SILENCE: Duration = Duration::from_secs(60);

/// A server that can be reached now.
#[derive(Clone)]
struct Reachable {
    client: Client,
    address: String,
}

impl Reachable {
    fn of(server: &Server) -> Self {
        let address = server.base_url().trim_start_matches("http://").to_owned();
        let client = Client::of(server);
        Self { client, address }
    }
}

/// The events of a thread as they come to one client.
enum Reader {
    Sse(Open),
    Socket(Box<WebSocket<TcpStream>>),
}

impl Reader {
    fn open(at: &Reachable, thread: &str, is_socket: bool, since: Option<u64>) -> Self {
        let mut subscription = json!({"channels": CHANNELS});
        if let Some(since) = since {
            subscription["since"] = since.into();
        }
        if !is_socket {
            return Self::Sse(super::open(&at.client, thread, subscription));
        }
        let url = format!("ws://{}/threads/{thread}/stream/events", at.address);
        let stream = TcpStream::connect(&at.address).unwrap();
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        let request = url.into_client_request().unwrap();
        let (mut socket, _) = tokio_tungstenite::tungstenite::client(request, stream).unwrap();
        let command = json!({"id": 1, "method": "subscription.subscribe", "params": subscription});
        socket.send(Message::text(command.to_string())).unwrap();
        Self::Socket(Box::new(socket))
    }

    /// The next event; `None` when the connection breaks.
    fn next(&mut self) -> Option<Value> {
        match self {
            Self::Sse(open) => {
                let event = open.event_or_break().ok()?;
                assert!(event.is_some(), "the stream stays open");
                let event = event?;
                check(&event);
                Some(event.data)
            }
            Self::Socket(socket) => loop {
                let Message::Text(text) = socket.read().ok()? else {
                    continue;
                };
                let message: Value = serde_json::from_str(text.as_str()).unwrap();
                if message["type"] == "event" {
                    return Some(message);
                }
                assert_eq!(message["type"], "success", "{message}");
            },
        }
    }
}

fn is_end(event: &Value) -> bool {
    let how = event["params"]["data"]["event"]
        .as_str()
        .unwrap_or_default();
    event["method"] == "lifecycle" && ["completed", "failed", "interrupted"].contains(&how)
}

fn id(event: &Value) -> &str {
    event["event_id"].as_str().unwrap()
}

/// Whether it is the same event. When all of the first attempt is gone, the run begins with the second
/// one for who comes later.
fn is_same(one: &Value, other: &Value) -> bool {
    let is_begin = id(one).ends_with(":lc||running");
    let data = |event: &Value| event["params"]["data"].clone();
    one == other || is_begin && id(one) == id(other) && data(one) == data(other)
}

fn tick(event: &Value) -> Option<u64> {
    event["params"]["data"]["payload"]["tick"].as_u64()
}

/// A number that looks random, from one that changes.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Reads a run to its end, cut off at many points. Half of the readers say what they have; the others
/// get everything once more, and know by its id what they have.
fn read_in_pieces(servers: &RwLock<Vec<Reachable>>, thread: &str, number: u64) -> Vec<Value> {
    let mut state = number.wrapping_mul(0x9E37_79B9) | 1;
    let (is_socket, names_last) = (number % 2 == 1, number / 2 % 2 == 1);
    let mut events = Vec::<Value>::new();
    let mut known = HashMap::<String, Value>::new();
    let mut cuts = 0;
    loop {
        let last = events.last().and_then(|last| last["seq"].as_u64());
        let mut reader = {
            let servers = servers.read().unwrap();
            let at = random(&mut state) as usize % servers.len();
            Reader::open(&servers[at], thread, is_socket, last.filter(|_| names_last))
        };
        let most = if cuts < CUTS {
            random(&mut state) % 60
        } else {
            u64::MAX
        };
        cuts += 1;
        let mut count = 0;
        while count < most {
            let Some(event) = reader.next() else { break };
            if let Some(before) = known.get(id(&event)) {
                assert!(!names_last, "it has {event} already");
                assert!(is_same(before, &event), "{before} and {event}");
                continue;
            }
            known.insert(id(&event).to_owned(), event.clone());
            let has_ended = is_end(&event);
            events.push(event);
            if has_ended {
                return events;
            }
            count += 1;
        }
    }
}

/// All of a thread of one run, as the bytes that are sent.
fn replay(at: &Reachable, thread: &str) -> String {
    let mut open = super::open(&at.client, thread, json!({"channels": CHANNELS}));
    let mut text = String::new();
    while !(text.contains("\"event\":\"completed\"") && text.ends_with("\r\n\r\n")) {
        text.push_str(std::str::from_utf8(&open.chunk().unwrap()).unwrap());
    }
    text.replace(": heartbeat\r\n\r\n", "")
}

/// The same over a WebSocket, as the texts of its messages.
fn replay_of_socket(at: &Reachable, thread: &str) -> Vec<String> {
    let Reader::Socket(mut socket) = Reader::open(at, thread, true, None) else {
        unreachable!("it was asked for");
    };
    let mut texts = vec![];
    loop {
        let Message::Text(text) = socket.read().unwrap() else {
            continue;
        };
        let message: Value = serde_json::from_str(text.as_str()).unwrap();
        if message["type"] == "event" {
            texts.push(text.as_str().to_owned());
        }
        if is_end(&message) {
            return texts;
        }
    }
}

/// What a reader has, less what was superseded, is what the log holds.
fn check_reader(read: &[Value], log: &[Value]) {
    let numbers = read.iter().map(|event| event["seq"].as_u64().unwrap());
    assert!(numbers.is_sorted_by(|a, b| a < b), "each once and in order");
    let ids: HashMap<&str, &Value> = log.iter().map(|event| (id(event), event)).collect();
    let (left, superseded): (Vec<_>, Vec<_>) =
        read.iter().partition(|event| ids.contains_key(id(event)));
    assert_eq!(left.len(), log.len());
    for (one, of_log) in left.into_iter().zip(log) {
        assert!(is_same(one, of_log), "{one} and {of_log}");
    }
    let ticks: Vec<_> = log.iter().filter_map(tick).collect();
    assert!(ticks.into_iter().eq(0..TICKS));
    let lost = superseded.iter().filter_map(|event| tick(event));
    assert!(lost.zip(0..).all(|(tick, expected)| tick == expected));
}

/// The long form: `BACKSTITCH_STREAM_RUNS=200`.
fn readers_that_are_cut_off_and_move_get_every_event_once(place: &Place) {
    let runs = std::env::var("BACKSTITCH_STREAM_RUNS").ok();
    let runs: u64 = runs.map_or(8, |runs| runs.parse().unwrap());
    // Nobody takes over runs of a process that only waits for a processor.
    let mut first = place.start(Setup::example("reference_server").env("BACKSTITCH_LEASE", "6"));
    let second = place.is_postgres().then(|| first.replica());
    let servers: Vec<_> = [Some(&first), second.as_ref()]
        .into_iter()
        .flatten()
        .map(Reachable::of)
        .collect();
    let threads: Vec<_> = (0..runs).map(|_| new_thread()).collect();
    for (number, thread) in threads.iter().enumerate() {
        let client = &servers[number % servers.len()].client;
        // One goes on for long enough to be cut off, however late that is.
        let ms = if number == 0 { 12 } else { 4 };
        start(client, thread, "slow", json!({"ms": ms, "ticks": TICKS}));
    }
    let servers = RwLock::new(servers);
    let begun = Instant::now();
    let read: Vec<_> = std::thread::scope(|scope| {
        let readers: Vec<_> = threads
            .iter()
            .zip(0..)
            .map(|(thread, number)| {
                let servers = &servers;
                scope.spawn(move || read_in_pieces(servers, thread, number))
            })
            .collect();
        // In the middle of the first runs.
        talk::until("the first run has got somewhere", || {
            let at = servers.read().unwrap()[0].clone();
            let mut reader = Reader::open(&at, &threads[0], false, None);
            std::iter::from_fn(|| reader.next()).any(|event| tick(&event) == Some(TICKS / 12))
        });
        {
            let mut servers = servers.write().unwrap();
            first.kill();
            if let Some(second) = &second {
                *servers = vec![Reachable::of(second)];
            } else {
                first.restart();
                *servers = vec![Reachable::of(&first)];
            }
        }
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .collect()
    });
    eprintln!("{runs} runs were read within {:?}", begun.elapsed());
    let at = servers.read().unwrap()[0].clone();
    let mut superseded = 0;
    for (thread, read) in threads.iter().zip(&read) {
        let whole = replay(&at, thread);
        assert_eq!(whole, replay(&at, thread), "byte by byte");
        let data: Vec<_> = whole
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .collect();
        assert_eq!(data, replay_of_socket(&at, thread));
        let log: Vec<Value> = data
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect();
        check_reader(read, &log);
        superseded += read.len() - log.len();
    }
    assert!(
        superseded > 0,
        "some were cut off in an attempt that was lost"
    );
}
