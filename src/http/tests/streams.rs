//! Event streams over real connections.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use super::*;

const BODY: &str = r#"{"assistant_id":"counter","input":null}"#;

/// A stream that stays open, its client's socket, and what feeds it.
async fn open(running: &Running) -> (TcpStream, mpsc::UnboundedSender<Bytes>) {
    let (send, receive) = mpsc::unbounded_channel();
    running.fake.open.lock().push_back(receive);
    let mut socket = running.connect().await;
    let path = format!("/threads/{THREAD}/runs/stream");
    let text = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    socket.write_all(text.as_bytes()).await.unwrap();
    send.send(Bytes::from("event: a\r\ndata: 1\r\n\r\n"))
        .unwrap();
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
    (socket, send)
}

#[tokio::test]
async fn draining_ends_an_open_stream_within_milliseconds_and_cleanly() {
    let running = Running::start(Options::default()).await;
    let (mut socket, _send) = open(&running).await;
    let begin = Instant::now();
    running.drain.cancel();
    let end = rest(&mut socket).await;
    assert!(end.ends_with("0\r\n\r\n"), "{end}");
    assert!(
        begin.elapsed() < Duration::from_millis(200),
        "{:?}",
        begin.elapsed()
    );
    timeout(Duration::from_secs(2), running.server)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        running.fake.left.load(Ordering::SeqCst),
        0,
        "the client did not leave"
    );
}

#[tokio::test]
async fn a_client_that_closes_its_connection_is_noticed_at_once() {
    let running = Running::start(Options::default()).await;
    let (socket, send) = open(&running).await;
    drop(socket);
    timeout(Duration::from_secs(1), send.closed())
        .await
        .unwrap();
    assert_eq!(running.fake.left.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_stream_that_ends_by_itself_has_not_lost_its_client() {
    let running = Running::start(Options::default()).await;
    let (mut socket, send) = open(&running).await;
    send.send(Bytes::from("event: b\r\ndata: 2\r\n\r\n"))
        .unwrap();
    drop(send);
    let end = read_until(&mut socket, "\r\n0\r\n\r\n").await;
    assert!(end.contains("data: 2"));
    drop(socket);
    sleep(Duration::from_millis(50)).await;
    assert_eq!(running.fake.left.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected() {
    let options = Options {
        stall_timeout: Duration::from_millis(200),
        ..Options::default()
    };
    let running = Running::start(options).await;
    let (socket, send) = open(&running).await;
    let chunk = Bytes::from(vec![b'x'; 1 << 20]);
    for _ in 0..64 {
        // Refused once the stream is gone.
        if send.send(chunk.clone()).is_err() {
            break;
        }
    }
    timeout(Duration::from_secs(5), send.closed())
        .await
        .unwrap();
    assert_eq!(running.fake.left.load(Ordering::SeqCst), 1);
    drop(socket);
}

#[tokio::test]
async fn streams_beyond_the_cap_are_refused_until_one_ends() {
    let options = Options {
        max_streams: 1,
        ..Options::default()
    };
    let running = Running::start(options).await;
    let (_socket, send) = open(&running).await;
    let ask = || running.ask("POST", "/runs/wait", &[], Some(BODY));
    let refused = ask().await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("retry-after: 1\r\n"));
    drop(send);
    while running.ask("GET", "/ok", &[], None).await.is_empty() {}
    sleep(Duration::from_millis(50)).await;
    assert!(ask().await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn joining_reads_the_modes_and_the_last_event() {
    let running = Running::start(Options::default()).await;
    let path = format!(
        "/threads/{THREAD}/runs/{RUN}/stream?stream_mode=%5B%22values%22%5D&cancel_on_disconnect=1"
    );
    let answer = running
        .ask("GET", &path, &["last-event-id: -1"], None)
        .await;
    assert!(answer.contains("content-type: text/event-stream; charset=utf-8\r\n"));
    let asked = running.fake.asked.lock().clone();
    assert!(
        asked.contains("modes: [Values], last_event_id: Some(\"-1\"), cancel_on_disconnect: true"),
        "{asked}"
    );
}
