//! A server that is asked to stop: its open streams, the clients that come back, and impatience.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;
use test_support::client::Client;
use test_support::on_both_storages;
use test_support::place::Place;
use test_support::server::Setup;
use test_support::talk::{slow, until, with};

use crate::access::streams::every_kind;

on_both_storages!(
    a_stream_goes_on_while_the_server_drains_until_its_run_has_ended,
    a_stream_of_a_run_that_is_handed_over_breaks_off_without_a_further_event,
    every_kind_of_stream_ends_with_the_drain_as_one_that_goes_on_elsewhere,
    who_would_not_see_that_a_response_breaks_off_gets_an_error,
    the_python_client_comes_back_to_the_server_that_takes_over,
    while_it_drains_the_server_shows_what_it_has_and_takes_no_runs,
    runs_go_on_for_as_long_as_a_server_drains_and_longer_ones_are_handed_over,
);

fn a_stream_goes_on_while_the_server_drains_until_its_run_has_ended(place: &Place) {
    let mut server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let mut stream = client.open_stream(&client.thread(), &slow(50, 10));
    stream.event_named("custom");
    server.signal("TERM");
    let rest: Vec<_> = std::iter::from_fn(|| stream.event()).collect();
    let customs = rest.iter().filter(|event| event.name == "custom");
    assert_eq!(customs.count(), 9, "{rest:?}");
    let last = rest.last().unwrap();
    assert_eq!(last.name, "values", "{last:?}");
    assert!(server.wait().success());
}

fn a_stream_of_a_run_that_is_handed_over_breaks_off_without_a_further_event(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_DRAIN", "0");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    let body = with(slow(60_000, 3), "on_disconnect", "cancel");
    let thread = client.thread();
    let mut stream = client.open_stream(&thread, &body);
    let run = stream.run();
    let mut shown = String::new();
    while !shown.contains("event: custom\r\n") || !shown.ends_with("\r\n\r\n") {
        shown.push_str(&String::from_utf8(stream.chunk().unwrap()).unwrap());
    }
    let names = shown
        .lines()
        .filter_map(|line| line.strip_prefix("event: "));
    let names: Vec<_> = names.collect();
    assert_eq!(names, ["metadata", "values", "custom"], "{shown}");
    server.signal("TERM");
    let mut after = String::new();
    while let Some(piece) = stream.chunk_or_break() {
        after.push_str(&String::from_utf8(piece).unwrap());
    }
    // How often a heartbeat comes depends on the machine.
    let after = after.replace(": heartbeat\r\n\r\n", "");
    assert_eq!(after, "retry: 1000\r\n");
    assert!(server.wait().success());
    // The client has not left, so that its run goes on.
    server.restart();
    let client = Client::of(&server);
    let path = format!("/threads/{thread}/runs/{run}");
    let row = client.get(&path).json();
    assert_ne!(row["status"], json!("interrupted"), "{row}");
}

fn every_kind_of_stream_ends_with_the_drain_as_one_that_goes_on_elsewhere(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_DRAIN", "0");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    let thread = client.thread();
    let mut own = client.open_stream(&thread, &slow(60_000, 3));
    own.event_named("custom");
    let streams = every_kind(&client, &thread, &own.run());
    server.signal("TERM");
    for mut stream in streams {
        let kind = stream.header("content-type").unwrap_or_default();
        let is_of_events = kind.starts_with("text/event-stream");
        let location = stream.header("location").map(str::to_owned);
        let mut shown = String::new();
        while let Some(piece) = stream.chunk_or_break() {
            shown.push_str(&String::from_utf8(piece).unwrap());
        }
        assert!(stream.breaks(), "it ended as if that were all: {shown}");
        // What has events says how long its client is to wait, what has a value where there will be one.
        if is_of_events {
            assert!(shown.ends_with("retry: 1000\r\n"), "{shown}");
            assert!(!shown.contains("event: error"), "{shown}");
        } else {
            assert_eq!(shown.trim(), "");
            assert!(location.is_some_and(|path| path.ends_with("/join")));
        }
    }
    assert!(server.wait().success());
}

/// To clients of HTTP/1.0 a body that breaks off looks like one that ends.
fn who_would_not_see_that_a_response_breaks_off_gets_an_error(place: &Place) {
    let setup = Setup::example("reference_server").env("BACKSTITCH_DRAIN", "0");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    let thread = client.thread();
    let mut own = client.open_stream(&thread, &slow(60_000, 3));
    own.event_named("custom");
    let address = server.base_url().strip_prefix("http://").unwrap();
    let mut old = TcpStream::connect(address).unwrap();
    let path = format!("/threads/{thread}/runs/{}/join", own.run());
    write!(old, "GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n").unwrap();
    let mut status = [0; 12];
    old.read_exact(&mut status).unwrap();
    server.signal("TERM");
    let mut rest = String::new();
    old.read_to_string(&mut rest).unwrap();
    assert!(rest.contains(r#"{"error":"ServerShutdown","#), "{rest}");
    assert!(server.wait().success());
}

fn the_python_client_comes_back_to_the_server_that_takes_over(place: &Place) {
    let Some(python) = test_support::python::python() else {
        return;
    };
    let setup = Setup::example("reference_server").env("BACKSTITCH_LEASE", "2");
    let mut server = place.start(setup.env("BACKSTITCH_DRAIN", "0"));
    let url = server.base_url().to_owned();
    let mut script = python.script("comes_back.py");
    let mut script = script
        .args([&*url, "60"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(script.stdout.take().unwrap()).lines();
    let first = lines.next();
    let ready = first.is_some_and(|line| line.unwrap() == "streaming");
    if ready {
        assert!(server.terminate().success());
        // On the port that the client knows.
        server.restart_with("PORT", url.rsplit(':').next().unwrap());
    }
    let last = lines.last().map(Result::unwrap);
    let ended = script.wait().unwrap();
    let mut errors = String::new();
    let mut stderr = script.stderr.take().unwrap();
    stderr.read_to_string(&mut errors).unwrap();
    assert!(ended.success() && ready, "{errors}");
    assert_eq!(last.as_deref(), Some("2 attempts"), "{errors}");
}

fn runs_go_on_for_as_long_as_a_server_drains_and_longer_ones_are_handed_over(place: &Place) {
    let drain = Duration::from_secs(4);
    let setup = Setup::example("faulty_server").env("BACKSTITCH_DRAIN", "4");
    let mut server = place.start(setup);
    let client = Client::of(&server);
    // Each goes on until somebody makes its gate.
    let [gate, never, trace] = ["gate", "never", "trace"].map(|name| server.folder().join(name));
    let until_there = |gate: &Path| {
        let input = json!({"gate": gate, "trace": trace});
        json!({"assistant_id": "pair", "input": input, "stream_mode": ["values"]})
    };
    let mut short = client.open_stream(&client.thread(), &until_there(&gate));
    short.event().unwrap();
    let thread = client.thread();
    let mut long = client.open_stream(&thread, &until_there(&never));
    long.event().unwrap();
    let run = long.run();
    let begin = Instant::now();
    server.signal("TERM");
    until("it drains", || server.output().contains("draining"));
    std::fs::write(&gate, "").unwrap();
    let shown: Vec<_> = std::iter::from_fn(|| short.event()).collect();
    assert_eq!(shown.last().unwrap().name, "values", "{shown:?}");
    assert!(long.breaks());
    assert!(server.wait().success());
    let took = begin.elapsed();
    println!("ended after {took:?}");
    assert!(
        took >= drain && took < drain + Duration::from_secs(8),
        "{took:?}"
    );
    server.restart();
    let row = Client::of(&server).get(&format!("/threads/{thread}/runs/{run}"));
    let status = row.json()["status"].clone();
    assert!(status == "running" || status == "pending", "{status}");
}

#[test]
fn a_second_request_to_stop_ends_the_server_at_once() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut server = Setup::example("reference_server").start();
        let client = Client::of(&server);
        let mut stream = client.open_stream(&client.thread(), &slow(60_000, 1));
        stream.event();
        server.signal("TERM");
        until("it drains", || server.output().contains("draining"));
        assert!(server.is_alive(), "the run goes on");
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(code));
    }
}

fn while_it_drains_the_server_shows_what_it_has_and_takes_no_runs(place: &Place) {
    let mut server = place.start(Setup::example("reference_server"));
    let client = Client::of(&server);
    let thread = client.thread();
    let mut stream = client.open_stream(&thread, &slow(60_000, 1));
    stream.event();
    server.signal("TERM");
    until("it drains", || server.output().contains("draining"));
    // Connections of before end with what they carry.
    let client = Client::of(&server);
    assert_eq!(client.get("/ready").status, 503);
    assert_eq!(client.get("/ok").status, 200);
    let path = format!("/threads/{thread}/runs");
    let refused = client.post(&path, &slow(1, 1));
    assert_eq!(
        refused.refused(503),
        "The server is shutting down. Try again."
    );
    assert_eq!(client.get(&path).json().as_array().unwrap().len(), 1);
    drop(stream);
    let run = client.get(&path).json()[0]["run_id"].clone();
    let cancel = format!("{path}/{}/cancel", run.as_str().unwrap());
    assert_eq!(client.send("POST", &cancel, &[], b"").status, 202);
    assert!(server.wait().success());
}
