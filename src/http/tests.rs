//! The server over real sockets, in front of a program made of paper.

mod answers;
mod connections;
mod fake;
mod streams;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{Options, Server};
use fake::Fake;

/// A thread that exists.
const THREAD: &str = "01a1faf4-ed9b-77dc-8ed1-cc6eef11d822";
/// A run of it.
const RUN: &str = "01a1faf4-eda9-7071-b5ab-76599db1f329";
/// A thread that does not exist.
const NOWHERE: &str = "5a65802f-74fe-4e41-9a19-5fa219b2c04e";

struct Running {
    address: SocketAddr,
    fake: Arc<Fake>,
    drain: CancellationToken,
    server: JoinHandle<()>,
}

impl Running {
    async fn start(options: Options) -> Self {
        let fake = Arc::new(Fake::default());
        let drain = CancellationToken::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::new(fake.clone(), options, drain.clone());
        Self {
            address,
            fake,
            drain,
            server: tokio::spawn(server.serve(listener)),
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends one request and reads until the server closes.
    async fn ask(&self, method: &str, path: &str, headers: &[&str], body: Option<&str>) -> String {
        let mut socket = self.connect().await;
        let text = request(method, path, headers, body);
        socket.write_all(text.as_bytes()).await.unwrap();
        rest(&mut socket).await
    }
}

fn request(method: &str, path: &str, headers: &[&str], body: Option<&str>) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    for header in headers {
        text += &format!("{header}\r\n");
    }
    if let Some(body) = body {
        text += &format!("content-length: {}\r\n\r\n{body}", body.len());
    } else {
        text += "\r\n";
    }
    text
}

/// What comes until the connection ends.
async fn rest(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = socket.read_to_end(&mut bytes);
    // A reset is an end, too.
    let _ = timeout(Duration::from_secs(10), read)
        .await
        .expect("the connection ends");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What comes until it contains `end`.
async fn read_until(socket: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&bytes).contains(end) {
            if socket.read_buf(&mut bytes).await.unwrap() == 0 {
                break;
            }
        }
    };
    timeout(Duration::from_secs(10), read)
        .await
        .expect("the text comes");
    String::from_utf8_lossy(&bytes).into_owned()
}
