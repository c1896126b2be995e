//! A server that replays what providers have sent, for tests of their clients.
#![allow(clippy::expect_used, reason = "a panic is the failure of the test")]

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::{Request, body::Frame, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value as Json;
use tokio::net::TcpListener;

/// What the server sends back to a request, in parts; `Err` cuts the connection.
#[derive(Clone)]
pub(super) struct Recording {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub parts: Vec<Result<String, ()>>,
    /// After the parts nothing comes, not even the end.
    pub stalls: bool,
}

/// A request that came.
#[derive(Clone, Debug)]
pub(super) struct Received {
    pub path: String,
    pub headers: http::HeaderMap,
    pub body: Json,
}

pub(super) struct Server {
    pub base: String,
    pub received: Arc<Mutex<Vec<Received>>>,
}

impl Recording {
    pub fn of(status: u16, parts: Vec<Result<String, ()>>) -> Self {
        Self {
            status,
            headers: vec![],
            parts,
            stalls: false,
        }
    }

    /// A stream, in parts that end where networks cut them: in the middle of an event.
    pub fn stream(text: &str) -> Self {
        let bytes: Vec<char> = text.chars().collect();
        let parts = bytes.chunks(61).map(|part| Ok(part.iter().collect()));
        Self::of(200, parts.collect())
    }

    /// A stream whose connection is cut after this text.
    pub fn cut(text: &str) -> Self {
        let mut cut = Self::stream(text);
        cut.parts.push(Err(()));
        cut
    }

    /// A stream that says nothing more after this text.
    pub fn stalling(text: &str) -> Self {
        Self {
            stalls: true,
            ..Self::stream(text)
        }
    }

    pub fn json(status: u16, body: &Json) -> Self {
        Self::of(status, vec![Ok(body.to_string())]).header("content-type", "application/json")
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// Replays these, one a request; the last one ever after.
pub(super) async fn serve(recordings: Vec<Recording>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("bound"));
    let received = Arc::new(Mutex::new(Vec::new()));
    let log = received.clone();
    let service = move |request: Request<Incoming>| {
        let (log, recordings) = (log.clone(), recordings.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.expect("a whole request").to_bytes();
            let number = {
                let mut log = log.lock();
                log.push(Received {
                    path: parts.uri.to_string(),
                    headers: parts.headers,
                    body: serde_json::from_slice(&body).expect("JSON"),
                });
                log.len() - 1
            };
            let recording = recordings[number.min(recordings.len() - 1)].clone();
            // Between two parts hyper gets to send what it has.
            let stall = stream::iter(recording.stalls.then_some(()));
            let stall = stall.then(|()| std::future::pending());
            let frames = stream::iter(recording.parts)
                .chain(stall)
                .then(async |part| {
                    tokio::task::yield_now().await;
                    match part {
                        Ok(text) => Ok(Frame::data(Bytes::from(text))),
                        Err(()) => Err(std::io::Error::other("cut")),
                    }
                });
            let mut response = http::Response::builder().status(recording.status);
            for (name, value) in recording.headers {
                response = response.header(name, value);
            }
            Ok::<_, Infallible>(response.body(StreamBody::new(frames)).expect("a response"))
        }
    };
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service_fn(service.clone()));
            tokio::spawn(connection);
        }
    });
    Server { base, received }
}
