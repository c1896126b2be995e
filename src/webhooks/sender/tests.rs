//! Deliveries to real receivers, with hosts whose addresses a test chooses.

use std::{collections::VecDeque, net::Ipv4Addr};

use base64::{Engine, engine::general_purpose::STANDARD};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::{super::policy::Trusted, *};

/// What a receiver does with a delivery.
#[derive(Clone, Copy)]
enum Reply {
    /// Writes this.
    Text(&'static str),
    /// Says success and writes 10 MB.
    Large,
    /// Closes the connection.
    Close,
    /// Never responds.
    Hang,
}

const OK: Reply = Reply::Text("HTTP/1.1 204 No Content\r\n\r\n");

/// A receiver on a free port of 127.0.0.1, and the requests that reached it.
struct Receiver {
    port: u16,
    requests: mpsc::UnboundedReceiver<String>,
}

impl Receiver {
    async fn replying(reply: Reply) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, reply, seen.clone()));
            }
        });
        Self { port, requests }
    }

    fn url(&self, host: &str) -> String {
        format!("http://{host}:{}/hook?x=1", self.port)
    }
}

async fn serve(mut stream: TcpStream, reply: Reply, seen: mpsc::UnboundedSender<String>) {
    let mut request = vec![];
    let mut chunk = [0; 4096];
    // The bodies here end with a brace, and no head has one.
    while !request.ends_with(b"}") {
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(read) => request.extend_from_slice(&chunk[..read]),
        }
    }
    seen.send(String::from_utf8(request).unwrap()).ok();
    match reply {
        Reply::Text(text) => drop(stream.write_all(text.as_bytes()).await),
        Reply::Large => {
            let head = "HTTP/1.1 200 OK\r\ncontent-length: 10485760\r\n\r\n";
            let sent = stream.write_all(head.as_bytes()).await;
            if sent.is_ok() {
                stream.write_all(&vec![b'x'; 10 << 20]).await.ok();
            }
        }
        Reply::Close => {}
        Reply::Hang => std::future::pending().await,
    }
}

/// Resolves every host to the next of these addresses; the last one stays.
struct Scripted(Mutex<VecDeque<Vec<&'static str>>>);

#[async_trait]
impl Lookup for Scripted {
    async fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        let mut looks = self.0.lock();
        let found = if looks.len() > 1 {
            looks.pop_front()
        } else {
            looks.front().cloned()
        };
        let found = found.unwrap_or_default();
        Ok(found.iter().map(|text| text.parse().unwrap()).collect())
    }
}

fn scripted<const N: usize>(policy: Policy, looks: [Vec<&'static str>; N]) -> Sender {
    let lookup = Scripted(Mutex::new(looks.into()));
    Sender::with_lookup(Arc::new(policy), None, Arc::new(lookup))
}

fn loopback() -> Policy {
    Policy {
        allow_loopback: true,
        ..Policy::default()
    }
}

fn sender(policy: Policy) -> Sender {
    Sender::new(Arc::new(policy), None)
}

async fn send(sender: &Sender, url: &str) -> Result<(), Error> {
    sender
        .send(
            url,
            Message {
                id: "run-1",
                timestamp: 1_614_265_330,
                traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
                body: b"{\"a\":1}".to_vec(),
            },
        )
        .await
}

#[tokio::test]
async fn a_delivery_has_its_id_its_time_and_a_signature_of_both_and_the_body() {
    let mut receiver = Receiver::replying(OK).await;
    let key = SigningKey::new("secret").unwrap();
    let sender = Sender::new(Arc::new(loopback()), Some(key.clone()));
    send(&sender, &receiver.url("127.0.0.1")).await.unwrap();
    let request = receiver.requests.recv().await.unwrap();
    let expected = key.sign("run-1", "1614265330", b"{\"a\":1}");
    assert!(
        request.starts_with("POST /hook?x=1 HTTP/1.1\r\n"),
        "{request}"
    );
    for line in [
        "content-type: application/json",
        "webhook-id: run-1",
        "webhook-timestamp: 1614265330",
        &format!("webhook-signature: {expected}"),
        "content-length: 7",
    ] {
        assert!(
            request.contains(&format!("{line}\r\n")),
            "{line}: {request}"
        );
    }
    assert!(request.ends_with("\r\n\r\n{\"a\":1}"));
    assert_eq!(STANDARD.decode(&expected["v1,".len()..]).unwrap().len(), 32);
}

#[tokio::test]
async fn success_is_a_status_from_200_to_299_alone() {
    for (reply, expected) in [
        (OK, None),
        (
            Reply::Text("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"),
            None,
        ),
        (
            Reply::Text("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n"),
            Some("500"),
        ),
        (
            Reply::Text("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n"),
            Some("404"),
        ),
        (Reply::Text("HTTP/1.1 304 Same\r\n\r\n"), Some("304")),
        (Reply::Close, Some("error sending request")),
        (
            Reply::Text("SSH-2.0-OpenSSH_9.2\r\n"),
            Some("error sending request"),
        ),
        (Reply::Large, None),
        // The status decides, however the rest ends.
        (
            Reply::Text("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx"),
            None,
        ),
    ] {
        let receiver = Receiver::replying(reply).await;
        let sent = send(&sender(loopback()), &receiver.url("127.0.0.1")).await;
        match (sent, expected) {
            (Ok(()), None) => {}
            (Err(error), Some(expected)) => {
                let text = error.to_string();
                assert!(text.contains(expected), "{text}");
                assert!(!text.contains("/hook"), "the URL may have a secret: {text}");
            }
            (sent, expected) => panic!("{sent:?}, {expected:?}"),
        }
    }
}

#[tokio::test]
async fn a_receiver_that_hangs_is_given_up() {
    let mut receiver = Receiver::replying(Reply::Hang).await;
    let (sender, url) = (sender(loopback()), receiver.url("127.0.0.1"));
    let mut sending = std::pin::pin!(send(&sender, &url));
    tokio::select! {
        sent = &mut sending => panic!("{sent:?}"),
        request = receiver.requests.recv() => assert!(request.is_some()),
    }
    // A clock that is paused runs ahead of what a socket still has to do.
    tokio::time::pause();
    let error = sending.await.unwrap_err().to_string();
    assert!(error.contains("timed out"), "{error}");
}

#[tokio::test]
async fn redirects_are_not_followed_wherever_they_lead() {
    let mut inner = Receiver::replying(OK).await;
    for status in [
        "301 Moved",
        "302 Found",
        "303 Other",
        "307 Temporary",
        "308 Permanent",
    ] {
        let location = inner.url("127.0.0.1");
        let text =
            format!("HTTP/1.1 {status}\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        let outer = Receiver::replying(Reply::Text(text.leak())).await;
        let sent = send(&sender(loopback()), &outer.url("127.0.0.1")).await;
        assert!(matches!(sent, Err(Error::Status(300..400))), "{sent:?}");
    }
    assert!(inner.requests.try_recv().is_err());
}

#[tokio::test]
async fn addresses_in_urls_are_checked_at_every_try() {
    let mut receiver = Receiver::replying(OK).await;
    // Created while the setting allowed it.
    let sender = sender(Policy::default());
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0177.0.0.1",
        "0x7f.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "localhost",
        "10.0.0.1",
    ] {
        let sent = send(&sender, &receiver.url(host)).await;
        assert!(
            matches!(sent, Err(Error::Refused(Refused::Blocked(_)))),
            "{host}: {sent:?}"
        );
    }
    assert!(receiver.requests.try_recv().is_err());
}

#[tokio::test]
async fn a_name_is_resolved_and_checked_at_every_try_and_only_checked_addresses_are_connected_to() {
    let mut receiver = Receiver::replying(OK).await;
    let url = receiver.url("hooks.example");
    // The receiver's address stands for a public one; 127.0.0.2 is one of a private network.
    let policy = Policy {
        trusted: vec![Trusted::Range("127.0.0.1/32".parse().unwrap())],
        ..Policy::default()
    };
    let sender = scripted(policy.clone(), [vec!["127.0.0.1"], vec!["127.0.0.2"]]);
    send(&sender, &url).await.unwrap();
    assert!(
        receiver
            .requests
            .recv()
            .await
            .unwrap()
            .contains("host: hooks.example")
    );
    for _ in 0..2 {
        let sent = send(&sender, &url).await;
        assert!(
            matches!(sent, Err(Error::Refused(Refused::Blocked("loopback")))),
            "{sent:?}"
        );
    }
    for private in [
        "10.0.0.1",
        "169.254.169.254",
        "::1",
        "64:ff9b::a00:1",
        "fd00::1",
        "0.0.0.0",
    ] {
        // One that is not public among others makes the host suspect.
        let sender = scripted(policy.clone(), [vec!["127.0.0.1", private]]);
        let sent = send(&sender, &url).await;
        assert!(
            matches!(sent, Err(Error::Refused(Refused::Blocked(_)))),
            "{private}: {sent:?}"
        );
    }
    let sent = send(&scripted(policy, [vec![]]), &url).await;
    assert!(matches!(sent, Err(Error::Transport(_))), "{sent:?}");
    assert!(receiver.requests.try_recv().is_err());
}

#[tokio::test]
async fn a_trusted_name_may_have_a_private_address() {
    let mut receiver = Receiver::replying(OK).await;
    let policy = Policy {
        trusted: vec![Trusted::Name("hooks.internal".into())],
        ..Policy::default()
    };
    let sender = scripted(policy, [vec!["127.0.0.1"]]);
    send(&sender, &receiver.url("hooks.internal"))
        .await
        .unwrap();
    assert!(receiver.requests.recv().await.is_some());
    let sent = send(&sender, &receiver.url("other.internal")).await;
    assert!(matches!(sent, Err(Error::Refused(_))), "{sent:?}");
}
