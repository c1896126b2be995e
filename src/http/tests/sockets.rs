//! WebSockets whose clients answer no ping.

use tokio::time::{Instant, timeout};

use super::*;

const HANDSHAKE: &str = "host: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
     sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const PING: u8 = 0x89;
/// A pong without a text, masked with zeros.
const PONG: [u8; 6] = [0x8a, 0x80, 0, 0, 0, 0];
/// Longer than anything takes, even on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn open(running: &Running) -> TcpStream {
    let mut socket = running.connect().await;
    let thread = uuid::Uuid::now_v7();
    let head = format!("GET /threads/{thread}/stream/events HTTP/1.1\r\n{HANDSHAKE}");
    socket.write_all(head.as_bytes()).await.unwrap();
    let head = read_until(&mut socket, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    socket
}

#[tokio::test]
async fn a_websocket_whose_client_answers_no_ping_is_cut_off_and_others_stay() {
    let running = Running::start(Options {
        heartbeat: Duration::from_millis(100),
        idle_timeout: Duration::from_secs(4),
        ..Options::default()
    })
    .await;
    let begin = Instant::now();
    let (mut silent, mut polite) = (open(&running).await, open(&running).await);
    let answers = async {
        // The server goes on asking whoever answers, long after the silent one is gone.
        let (mut pings, mut frame) = (0, [0; 2]);
        while begin.elapsed() < Duration::from_secs(6) {
            polite.read_exact(&mut frame).await.unwrap();
            assert_eq!(frame, [PING, 0]);
            polite.write_all(&PONG).await.unwrap();
            pings += 1;
        }
        pings
    };
    let cut = async {
        let mut pings = vec![];
        silent.read_to_end(&mut pings).await.unwrap();
        (pings, begin.elapsed())
    };
    let both = timeout(PATIENCE, async { tokio::join!(answers, cut) });
    let (answered, (pings, lasted)) = both.await.unwrap();
    assert!(answered > 2, "{answered}");
    assert!(lasted >= Duration::from_secs(4), "{lasted:?}");
    // It is not told why: it does not listen.
    assert!(pings.chunks(2).all(|frame| frame == [PING, 0]), "{pings:?}");
}
