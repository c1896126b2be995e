//! Sockets whose clients are silent, read nothing, or are many.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    process::Command,
};

use serde_json::json;
use test_support::on_both_storages;
use test_support::place::{Place, serve};
use test_support::server::{Server, Setup};
use test_support::talk::until;
use test_support::websocket::{HANDSHAKE, knock, response_head};

use super::*;

on_both_storages!(
    a_client_that_reads_nothing_is_cut_off,
    idle_sockets_are_many_and_hold_up_nobody,
    half_a_handshake_is_no_stream,
);

/// A socket whose handshake is done.
fn connect(server: &Server, thread: &str) -> TcpStream {
    let stream = knock(server, thread, &format!("{HANDSHAKE}\r\n"));
    let head = response_head(&stream);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    stream
}

/// Sends a command as one frame, masked with zeros.
fn send(stream: &mut TcpStream, command: &Value) {
    let text = command.to_string();
    let length = u8::try_from(text.len()).unwrap();
    assert!(length < 126, "it fits a short frame");
    let mut frame = vec![0x81, 0x80 | length, 0, 0, 0, 0];
    frame.extend_from_slice(text.as_bytes());
    stream.write_all(&frame).unwrap();
}

fn subscribe(stream: &mut TcpStream, channel: &str) {
    let params = json!({"channels": [channel]});
    send(
        stream,
        &json!({"id": 1, "method": "subscription.subscribe", "params": params}),
    );
    let mut reply = String::new();
    while reply.is_empty() {
        reply = read(stream);
    }
    assert!(reply.contains("\"success\""), "{reply}");
}

/// How many streams the server says are open.
fn streams(client: &Client) -> u64 {
    let metrics = client.get("/metrics");
    let mut lines = metrics.text().lines();
    let line = lines.find_map(|line| line.strip_prefix("backstitch_streams_open "));
    line.unwrap().parse::<f64>().unwrap() as u64
}

fn a_client_that_reads_nothing_is_cut_off(place: &Place) {
    let server = place.start(Setup::example("reference_server").env("BACKSTITCH_STALL", "2"));
    let client = Client::of(&server);
    let thread = new_thread();
    let mut socket = connect(&server, &thread);
    subscribe(&mut socket, "values");
    assert_eq!(streams(&client), 1);
    // More than the buffers of both sides take.
    for _ in 0..4 {
        let text = "x".repeat(3_000_000);
        let messages = json!([{"role": "user", "content": text}]);
        start(&client, &thread, "agent", json!({"messages": messages}));
    }
    until("the socket is closed", || streams(&client) == 0);
    // The runs go on without it.
    until("all runs have ended", || {
        let runs = client.get(&format!("/threads/{thread}/runs?select=status"));
        let runs = runs.json();
        let runs = runs.as_array().unwrap();
        runs.len() == 4 && runs.iter().all(|run| run["status"] == "success")
    });
    socket.shutdown(Shutdown::Both).ok();
}

fn idle_sockets_are_many_and_hold_up_nobody(place: &Place) {
    let many = std::env::var("BACKSTITCH_TEST_SOCKETS").ok();
    let many = many.map_or(200, |many| many.parse().unwrap());
    let server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = new_thread();
    let mut sockets: Vec<_> = (0..many).map(|_| connect(&server, &thread)).collect();
    for socket in &mut sockets {
        subscribe(socket, "lifecycle");
    }
    assert_eq!(streams(&client), many);
    start(&client, &thread, "counter", json!({"count": 1, "log": []}));
    for socket in &mut sockets {
        while !read(socket).contains("\"completed\"") {}
    }
    drop(sockets);
    until("all sockets are closed", || streams(&client) == 0);
}

/// The text of the next frame, however long it is.
fn read(stream: &mut TcpStream) -> String {
    let mut head = [0; 2];
    stream.read_exact(&mut head).unwrap();
    let length = match head[1] {
        126 => {
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            usize::from(u16::from_be_bytes(length))
        }
        length => usize::from(length),
    };
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    // A ping has no text.
    String::from_utf8_lossy(&body).into_owned()
}

fn half_a_handshake_is_no_stream(place: &Place) {
    let (server, client) = serve(place);
    let thread = new_thread();
    // The head never ends.
    let _waiting = knock(&server, &thread, HANDSHAKE);
    // Its client leaves in the middle.
    drop(knock(&server, &thread, "connection: Upg"));
    // It leaves after the head, before the reply.
    drop(knock(&server, &thread, &format!("{HANDSHAKE}\r\n")));
    let mut socket = connect(&server, &thread);
    subscribe(&mut socket, "lifecycle");
    until("only whole ones are streams", || streams(&client) == 1);
}

#[test]
fn the_limit_of_open_files_is_raised_at_start() {
    // The server inherits the limit of this process.
    let own = format!("--pid={}", std::process::id());
    let status = Command::new("prlimit")
        .args([&own, "--nofile=4096:"])
        .status();
    assert!(status.unwrap().success());
    let place = Place::sqlite();
    let server = place.start(Setup::example("reference_server"));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<_> = line.unwrap().split_whitespace().collect();
    assert_eq!(words[3], words[4], "{limits}");
}
