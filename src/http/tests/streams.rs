//! Event streams over real connections.

use tokio::{sync::mpsc, time::sleep};

use super::*;
use crate::{runs::Status, value};

const BODY: &str = r#"{"assistant_id":"agent","input":{"count":1},"stream_mode":"custom",
    "on_disconnect":"cancel"}"#;

/// A stream that stays open, its client's socket, and what feeds it.
async fn open(running: &Running) -> (TcpStream, mpsc::UnboundedSender<Value>) {
    let feed = running.feed();
    let mut socket = running.connect().await;
    let path = format!("/threads/{THREAD}/runs/stream");
    let text = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    socket.write_all(text.as_bytes()).await.unwrap();
    feed.send(value!(1)).unwrap();
    let head = read_until(&mut socket, "data: 1").await;
    for header in [
        "cache-control: no-store",
        "connection: keep-alive",
        "x-accel-buffering: no",
        "content-type: text/event-stream; charset=utf-8",
        "transfer-encoding: chunked",
        "vary: Origin",
    ] {
        assert!(head.contains(&format!("\r\n{header}\r\n")), "{head}");
    }
    (socket, feed)
}

#[tokio::test]
async fn a_stream_stays_open_through_a_drain_and_breaks_off_at_its_end() {
    let running = Running::start(Options::default()).await;
    let (mut socket, feed) = open(&running).await;
    running.drain.cancel();
    feed.send(value!(2)).unwrap();
    read_until(&mut socket, "data: 2").await;
    running.cut.cancel();
    let end = rest(&mut socket).await;
    assert!(end.ends_with("\r\nretry: 1000\r\n\r\n"), "{end}");
    assert!(!end.contains("\r\n0\r\n"), "{end}");
    assert!(!feed.is_closed(), "the client did not leave");
    assert_eq!(running.statuses().await, [Status::Running]);
    timeout(Duration::from_secs(2), running.server)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_stream_whose_run_ends_during_a_drain_is_complete() {
    let running = Running::start(Options::default()).await;
    let (mut socket, feed) = open(&running).await;
    running.drain.cancel();
    feed.send(value!(2)).unwrap();
    drop(feed);
    let end = rest(&mut socket).await;
    assert!(end.contains("data: 2"), "{end}");
    assert!(end.ends_with("\r\n0\r\n\r\n"), "{end}");
    running.cut.cancel();
    timeout(Duration::from_secs(2), running.server)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_client_that_closes_its_connection_is_noticed_at_once() {
    // Nothing but the closing tells of it.
    let options = Options {
        heartbeat: Duration::from_secs(600),
        ..Options::default()
    };
    let running = Running::start(options).await;
    let (socket, feed) = open(&running).await;
    drop(socket);
    timeout(Duration::from_secs(20), feed.closed())
        .await
        .unwrap();
    assert_eq!(running.ended().await, [Status::Interrupted]);
}

#[tokio::test]
async fn a_stream_that_ends_by_itself_has_not_lost_its_client() {
    let running = Running::start(Options::default()).await;
    let (mut socket, feed) = open(&running).await;
    feed.send(value!(2)).unwrap();
    drop(feed);
    let end = read_until(&mut socket, "\r\n0\r\n\r\n").await;
    assert!(end.contains("data: 2"));
    drop(socket);
    sleep(Duration::from_millis(50)).await;
    assert_eq!(running.ended().await, [Status::Success]);
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected() {
    let options = Options {
        stall_timeout: Duration::from_millis(200),
        ..Options::default()
    };
    let running = Running::start(options).await;
    let (socket, feed) = open(&running).await;
    // More than sockets buffer, and less than a stream keeps for a slow reader.
    let piece = Value::str("x".repeat(1 << 20));
    for _ in 0..12 {
        // Refused once the run is cancelled.
        if feed.send(piece.clone()).is_err() {
            break;
        }
    }
    timeout(Duration::from_secs(5), feed.closed())
        .await
        .unwrap();
    assert_eq!(running.ended().await, [Status::Interrupted]);
    drop(socket);
}

#[tokio::test]
async fn streams_beyond_the_cap_are_refused_until_one_ends() {
    let options = Options {
        max_streams: 1,
        ..Options::default()
    };
    let running = Running::start(options).await;
    let (_socket, feed) = open(&running).await;
    let body = r#"{"assistant_id":"counter","input":{"count":1}}"#;
    let wait = || running.send("POST", "/runs/wait", &[], Some(body));
    let refused = wait().await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("retry-after: 1\r\n"));
    drop(feed);
    running.ended().await;
    // Its slot is free a moment after its run has ended.
    let accepted = async {
        while !wait().await.starts_with("HTTP/1.1 200") {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(5), accepted).await.unwrap();
}

#[tokio::test]
async fn joining_reads_the_modes_and_the_last_event() {
    let running = Running::start(Options::default()).await;
    let (run, feed) = running.begin().await;
    feed.send(value!({"n": 1})).unwrap();
    let path = format!(
        "/threads/{THREAD}/runs/{}/stream?stream_mode=%5B%22values%22%5D&cancel_on_disconnect=1",
        run.run
    );
    let mut socket = running.connect().await;
    let text = request("GET", &path, &["last-event-id: -1"], None);
    socket.write_all(text.as_bytes()).await.unwrap();
    let head = read_until(&mut socket, "event: values\r\n").await;
    assert!(head.contains("content-type: text/event-stream; charset=utf-8\r\n"));
    assert!(!head.contains("event: custom"), "{head}");
    drop(socket);
    timeout(Duration::from_secs(5), feed.closed())
        .await
        .unwrap();
    assert_eq!(running.ended().await, [Status::Interrupted]);
}
