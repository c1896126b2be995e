//! Connections that are slow, idle, too many, or cut.

use tokio::time::{Instant, sleep};

use super::*;

fn impatient() -> Options {
    Options {
        header_timeout: Duration::from_millis(200),
        body_grace: Duration::from_millis(200),
        idle_timeout: Duration::from_millis(600),
        stall_timeout: Duration::from_millis(300),
        ..Options::default()
    }
}

#[tokio::test]
async fn a_client_that_sends_nothing_is_disconnected() {
    let running = Running::start(impatient()).await;
    let mut socket = running.connect().await;
    let begin = Instant::now();
    assert_eq!(rest(&mut socket).await, "");
    assert!(begin.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn a_head_that_drips_is_cut_off_in_http_1_and_2() {
    let running = Running::start(impatient()).await;
    for text in [
        "GET /ok HTTP/1.1\r\nx-a: aaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "PRI * HTTP/2.0\r\n\r\nSM",
    ] {
        let mut socket = running.connect().await;
        let begin = Instant::now();
        let mut cut = false;
        for byte in text.bytes() {
            if socket.write_all(&[byte]).await.is_err() {
                cut = true;
                break;
            }
            sleep(Duration::from_millis(40)).await;
        }
        assert!(cut || rest(&mut socket).await.is_empty());
        assert!(begin.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn a_second_head_that_drips_is_cut_off_while_an_idle_connection_stays() {
    let running = Running::start(Options {
        header_timeout: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(5),
        ..impatient()
    })
    .await;
    let asked = async || {
        let mut socket = running.connect().await;
        socket
            .write_all(b"GET /ok HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();
        read_until(&mut socket, "{}}").await;
        socket
    };
    let (mut dripping, mut idle) = (asked().await, asked().await);
    dripping.write_all(b"GET /ok HT").await.unwrap();
    let begin = Instant::now();
    rest(&mut dripping).await;
    assert!(
        begin.elapsed() < Duration::from_secs(4),
        "{:?}",
        begin.elapsed()
    );
    idle.write_all(b"GET /ok HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert!(
        read_until(&mut idle, "{}}")
            .await
            .starts_with("HTTP/1.1 200")
    );
    let begin = Instant::now();
    rest(&mut idle).await;
    let idle = begin.elapsed();
    assert!(idle >= Duration::from_secs(4), "{idle:?}");
}

#[tokio::test]
async fn a_body_that_drips_is_a_408() {
    let running = Running::start(impatient()).await;
    let mut socket = running.connect().await;
    let head = "POST /threads HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{";
    socket.write_all(head.as_bytes()).await.unwrap();
    let response = rest(&mut socket).await;
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_a_413_before_it_is_read() {
    let options = Options {
        body_limit: 100,
        edit_limit: 1000,
        ..Options::default()
    };
    let running = Running::start(options).await;
    let path = "/threads/search";
    // Announced: nothing of the body is sent at all.
    let mut socket = running.connect().await;
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 101\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    assert!(
        read_until(&mut socket, "}")
            .await
            .starts_with("HTTP/1.1 413")
    );
    // Not announced.
    let mut socket = running.connect().await;
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("3c\r\n{}\r\n", " ".repeat(60));
    socket.write_all(chunk.repeat(2).as_bytes()).await.unwrap();
    assert!(
        read_until(&mut socket, "}")
            .await
            .starts_with("HTTP/1.1 413")
    );
    // Just within, in two chunks.
    let mut socket = running.connect().await;
    socket.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!(
        "3c\r\n{}\r\n28\r\n{{\"limit\":1}}{}\r\n0\r\n\r\n",
        " ".repeat(60),
        " ".repeat(29)
    );
    socket.write_all(chunk.as_bytes()).await.unwrap();
    assert!(
        read_until(&mut socket, "]")
            .await
            .starts_with("HTTP/1.1 200")
    );
    // A state edit may be larger.
    let body = format!(r#"{{"values":{{"count":"{}"}}}}"#, "x".repeat(500));
    let path = format!("/threads/{THREAD}/state");
    let response = running.send("POST", &path, &[], Some(&body)).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[tokio::test]
async fn a_connection_goes_on_after_a_short_body_that_nobody_read() {
    let running = Running::start(Options::default()).await;
    let mut socket = running.connect().await;
    for line in ["POST /nowhere", "PUT /ok", "GET /runs/nonsense/join"] {
        let head = format!("{line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        // The response is there before the body comes.
        read_until(&mut socket, "\"}").await;
        socket.write_all(b"{}").await.unwrap();
    }
    socket
        .write_all(b"GET /ok HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    read_until(&mut socket, "{}}").await;
}

#[tokio::test]
async fn a_head_beyond_its_limits_is_a_431() {
    let running = Running::start(Options::default()).await;
    let large = format!("x-a: {}", "a".repeat(40_000));
    let response = running.send("GET", "/ok", &[&large], None).await;
    assert!(response.starts_with("HTTP/1.1 431"), "{response}");
    let many: Vec<_> = (0..120).map(|n| format!("x-{n}: a")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let response = running.send("GET", "/ok", &many, None).await;
    assert!(response.starts_with("HTTP/1.1 431"), "{response}");
}

#[tokio::test]
async fn http_2_is_spoken_without_being_asked() {
    let running = Running::start(Options::default()).await;
    let mut socket = running.connect().await;
    let empty_settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    socket
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    socket.write_all(&empty_settings).await.unwrap();
    let mut head = [0; 9];
    socket.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "the first frame of a server is SETTINGS");
}

#[tokio::test]
async fn what_begins_like_http_2_is_waited_for_and_hung_up_on_in_time() {
    let options = Options {
        header_timeout: Duration::from_secs(3),
        ..Options::default()
    };
    let running = Running::start(options).await;
    let mut socket = running.connect().await;
    for part in [&b"P"[..], b"RI * HTTP/2.0\r\n\r\nS", b"M\r\n\r\n"] {
        socket.write_all(part).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    socket
        .write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])
        .await
        .unwrap();
    let mut head = [0; 9];
    socket.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "the first frame of a server is SETTINGS");
    let mut half = running.connect().await;
    half.write_all(b"PRI * ").await.unwrap();
    assert_eq!(rest(&mut half).await, "", "hung up without a response");
    let mut post = running.connect().await;
    post.write_all(b"P").await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    post.write_all(b"OST /nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    assert!(rest(&mut post).await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn connections_beyond_the_cap_wait_for_a_place() {
    let options = Options {
        max_connections: 1,
        ..Options::default()
    };
    let running = Running::start(options).await;
    let mut first = running.connect().await;
    first
        .write_all(b"GET /ok HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    read_until(&mut first, "{}}").await;
    let second = running.send("GET", "/ok", &[], None);
    let mut second = std::pin::pin!(second);
    let early = timeout(Duration::from_millis(100), second.as_mut()).await;
    assert!(early.is_err(), "there was no place yet");
    drop(first);
    assert!(second.await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_request_goes_on_to_its_end_when_the_client_hangs_up() {
    let running = Running::start(Options::default()).await;
    let count = async || {
        let threads = running.services.threads();
        threads.count(&Default::default()).await.unwrap()
    };
    let closed = running.gate.close().await;
    let mut socket = running.connect().await;
    let text = request("POST", "/threads", &["idempotency-key: k"], Some("{}"));
    socket.write_all(text.as_bytes()).await.unwrap();
    running.gate.reached().await;
    drop(socket);
    // So that a server which gave the request up would have done so.
    sleep(Duration::from_millis(100)).await;
    assert_eq!(count().await, 1, "the request waits at the gate");
    drop(closed);
    let created = async {
        while count().await < 2 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(5), created).await.unwrap();
}

#[tokio::test]
async fn a_drain_lets_requests_finish_and_its_end_accepts_no_more() {
    let running = Running::start(Options::default()).await;
    let closed = running.gate.close().await;
    let mut idle = running.connect().await;
    idle.write_all(b"GET /ok HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    read_until(&mut idle, "{}}").await;
    let mut busy = running.connect().await;
    let text = request("POST", "/threads", &["idempotency-key: k"], Some("{}"));
    busy.write_all(text.as_bytes()).await.unwrap();
    running.gate.reached().await;
    running.drain.cancel();
    assert_eq!(rest(&mut idle).await, "");
    // Whoever comes until the end of the drain is answered.
    let mut late = running.connect().await;
    let text = request("GET", "/ready", &[], None);
    late.write_all(text.as_bytes()).await.unwrap();
    read_until(&mut late, "HTTP/1.1 503").await;
    drop(closed);
    assert!(rest(&mut busy).await.starts_with("HTTP/1.1 200"));
    running.cut.cancel();
    rest(&mut late).await;
    timeout(Duration::from_secs(2), running.server)
        .await
        .unwrap()
        .unwrap();
    assert!(TcpStream::connect(running.address).await.is_err());
}

#[tokio::test]
async fn what_does_not_end_soon_after_a_drain_is_hung_up_on() {
    let options = Options {
        last_responses: Duration::from_millis(100),
        ..Options::default()
    };
    let running = Running::start(options).await;
    let _closed = running.gate.close().await;
    let mut busy = running.connect().await;
    let text = request("POST", "/threads", &["idempotency-key: k"], Some("{}"));
    busy.write_all(text.as_bytes()).await.unwrap();
    running.gate.reached().await;
    running.drain.cancel();
    running.cut.cancel();
    timeout(Duration::from_secs(2), running.server)
        .await
        .unwrap()
        .unwrap();
}
