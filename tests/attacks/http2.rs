//! A client of HTTP/2 that sends what it likes, frame by frame.

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Ping, PingPong};
use http::Request;
use test_support::server::Server;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// One connection.
pub struct Connection {
    pub send: SendRequest<Bytes>,
    address: String,
    /// Sent as `x-api-key`.
    key: Option<String>,
    ping: PingPong,
    /// Ends with the connection.
    pub driver: JoinHandle<Result<(), h2::Error>>,
}

impl Connection {
    /// Connects; each of its streams may receive so many bytes before it is read.
    pub async fn open(server: &Server, window: u32) -> Self {
        let address = server.base_url().trim_start_matches("http://").to_owned();
        let socket = TcpStream::connect(&address).await.unwrap();
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window);
        let (send, mut connection) = builder.handshake(socket).await.unwrap();
        let ping = connection.ping_pong().unwrap();
        let driver = tokio::spawn(connection);
        Self {
            send,
            address,
            key: None,
            ping,
            driver,
        }
    }

    /// The same with a key.
    pub async fn open_as(server: &Server, window: u32, key: &str) -> Self {
        let mut connection = Self::open(server, window).await;
        connection.key = Some(key.to_owned());
        connection
    }

    /// Waits until the server has read everything that was sent before.
    pub async fn is_read(&mut self) {
        self.ping.ping(Ping::opaque()).await.ok();
    }

    /// Sends a whole request; resets it when the future is dropped.
    pub async fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Option<ResponseFuture> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address));
        if let Some(key) = &self.key {
            request = request.header("x-api-key", key);
        }
        let request = request.body(()).unwrap();
        let mut ready = self.send.clone().ready().await.ok()?;
        let (response, mut stream) = ready.send_request(request, body.is_empty()).ok()?;
        if !body.is_empty() {
            let body = Bytes::copy_from_slice(body.as_bytes());
            stream.send_data(body, true).ok()?;
        }
        Some(response)
    }
}
