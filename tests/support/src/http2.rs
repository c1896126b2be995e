//! A client of HTTP/2 that sends what it likes, frame by frame.

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Ping, PingPong};
use http::Request;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::server::Server;

/// One connection.
pub struct Connection {
    /// Sends requests.
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
        // Else a frame waits until the server has acknowledged the one before.
        socket.set_nodelay(true).unwrap();
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

/// Responses that a client does not read: until this is dropped, the server has them and the memory that they take.
pub struct Unread {
    _responses: Vec<http::Response<h2::RecvStream>>,
    _connection: Connection,
    _runtime: Runtime,
}

impl Unread {
    /// Reads no more than the heads of responses, until one says that there is no memory for another.
    pub fn fill(server: &Server, key: &str, path: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (connection, responses) = runtime.block_on(async {
            let mut connection = Connection::open_as(server, 0, key).await;
            let mut responses = vec![];
            loop {
                let response = connection.request("GET", path, "").await.unwrap();
                let response = response.await.unwrap();
                if response.status() == 503 {
                    return (connection, responses);
                }
                assert_eq!(response.status(), 200, "{path}");
                responses.push(response);
                assert!(responses.len() < 1000, "{path} takes no memory");
            }
        });
        Self {
            _responses: responses,
            _connection: connection,
            _runtime: runtime,
        }
    }
}
