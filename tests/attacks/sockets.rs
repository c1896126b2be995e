//! Messages over WebSockets that are large and never end, and subscriptions to large threads that nobody reads.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::{Server, Setup};
use test_support::websocket::{HANDSHAKE, knock, response_head};
use uuid::Uuid;

use crate::siege::{MIB, Memory, Waits, Watch, rounds};

on_both_storages!(; postgres_in_long_form:
    unfinished_messages_of_one_client_leave_memory_for_another,
    a_message_that_does_not_end_closes_its_socket_whatever_comes_in_between,
    later_subscriptions_of_clients_that_read_nothing_take_little_memory,
);

/// A socket of ann's on a thread that may come to be; none where the server has no memory for the request.
fn connect(server: &Server) -> Option<TcpStream> {
    connect_to(server, &Uuid::now_v7().to_string())
}

fn connect_to(server: &Server, thread: &str) -> Option<TcpStream> {
    let headers = format!("x-api-key: key-a\r\n{HANDSHAKE}\r\n");
    let socket = knock(server, thread, &headers);
    let timeout = Some(Duration::from_secs(20));
    socket.set_write_timeout(timeout).unwrap();
    let head = response_head(&socket);
    if head.starts_with("HTTP/1.1 503 ") {
        return None;
    }
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    Some(socket)
}

/// A command as a frame, masked with zeros.
fn command(method: &str, params: &Value) -> Vec<u8> {
    let text = json!({"id": 1, "method": method, "params": params}).to_string();
    let length = u8::try_from(text.len()).unwrap();
    assert!(length < 126, "it needs a longer head");
    let mut frame = vec![0x81, 0x80 | length, 0, 0, 0, 0];
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// The first part of a text that others are to follow, masked with zeros.
fn part(bytes: usize) -> Vec<u8> {
    let mut frame = vec![0x01, 0x80 | 127];
    frame.extend_from_slice(&(bytes as u64).to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.resize(frame.len() + bytes, b' ');
    frame
}

/// The code with which the server has closed a socket, if it has.
fn close_code(mut socket: &TcpStream, patience: Duration) -> Option<u16> {
    socket.set_read_timeout(Some(patience)).unwrap();
    let mut head = [0; 2];
    loop {
        socket.read_exact(&mut head).ok()?;
        let mut sent = vec![0; usize::from(head[1] & 0x7f)];
        socket.read_exact(&mut sent).ok()?;
        // Pings come in between.
        if head[0] == 0x88 {
            return Some(u16::from_be_bytes([sent[0], sent[1]]));
        }
    }
}

fn keyed() -> Setup {
    Setup::example("reference_server").env("BACKSTITCH_API_KEYS", "ann=key-a,bob=key-b")
}

fn unfinished_messages_of_one_client_leave_memory_for_another(place: &Place) {
    let server = place.start(keyed());
    let bob = Client::of(&server).with_key("key-b");
    bob.thread();
    let memory = Memory::of(&server);
    let part = part(3 << 20);
    let many = 150 * rounds();
    let sockets: Vec<_> = (0..many)
        .filter_map(|_| {
            let mut socket = connect(&server)?;
            // Refused ones are closed before all of it was sent.
            socket.write_all(&part).ok();
            Some(socket)
        })
        .collect();
    let soon = Duration::from_millis(10);
    let is_open = |socket: &&TcpStream| close_code(socket, soon) != Some(1013);
    let open = sockets.iter().filter(is_open).count();
    println!("{open} of {many} stay open");
    assert!((1..many / 2).contains(&open));
    // A large body of somebody else is read meanwhile.
    let large = format!("{{{}}}", " ".repeat(1 << 20));
    assert_eq!(bob.post_text("/threads", large).status, 200);
    Waits::of(&bob, 50).held("unfinished messages", Duration::from_secs(1));
    drop(sockets);
    memory.held("unfinished messages", 256 * MIB);
}

fn a_message_that_does_not_end_closes_its_socket_whatever_comes_in_between(place: &Place) {
    let setup = keyed().env("BACKSTITCH_BODY_GRACE", "4");
    let server = place.start(setup.env("BACKSTITCH_BODY_PACE", "2000"));
    let watch = Watch::beside(&server, &Client::of(&server).with_key("key-b"));
    let mut idle = connect(&server).unwrap();
    let mut socket = connect(&server).unwrap();
    let begin = Instant::now();
    socket.write_all(&part(4000)).unwrap();
    let ping = [0x89, 0x80, 0, 0, 0, 0];
    let code = loop {
        if let Some(code) = close_code(&socket, Duration::from_millis(500)) {
            break code;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "it stays open");
        socket.write_all(&ping).ok();
        idle.write_all(&ping).unwrap();
    };
    assert_eq!(code, 1008);
    assert!(begin.elapsed() >= Duration::from_millis(5_500));
    // Between messages a client may take its time.
    idle.write_all(&ping).unwrap();
    assert_eq!(close_code(&idle, Duration::from_millis(500)), None);
    idle.write_all(&ping).unwrap();
    watch.held("a message that does not end", 64 * MIB);
}

fn later_subscriptions_of_clients_that_read_nothing_take_little_memory(place: &Place) {
    let server = place.start(keyed());
    let [ann, bob] = ["key-a", "key-b"].map(|key| Client::of(&server).with_key(key));
    // Its events are 50 MB.
    let thread = ann.thread();
    for bytes in [1 << 20].into_iter().chain([0; 23]) {
        let input = json!({"count": 1, "log": ["x".repeat(bytes)]});
        let body = json!({"assistant_id": "counter", "input": input, "stream_resumable": true});
        ann.run(&thread, &body);
    }
    let watch = Watch::beside(&server, &bob);
    let sockets: Vec<_> = (0..6 * rounds())
        .map(|_| {
            let mut socket = connect_to(&server, &thread).unwrap();
            for channel in ["lifecycle", "values"] {
                let params = json!({"channels": [channel], "namespaces": [[]], "since": 0});
                let command = command("subscription.subscribe", &params);
                socket.write_all(&command).unwrap();
            }
            socket
        })
        .collect();
    for mut socket in &sockets {
        // What was missed comes; of the rest nothing is read.
        let mut first = vec![0; 3 << 20];
        socket.read_exact(&mut first).unwrap();
    }
    Waits::of(&bob, 50).held("later subscriptions", Duration::from_secs(1));
    drop(sockets);
    watch.held("later subscriptions", 128 * MIB);
}
