//! A client that keeps one connection and reads answers as they come.

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// One connection, kept alive.
pub struct Client {
    stream: BufReader<TcpStream>,
    body: Body,
}

/// What is left of the present answer's body.
#[derive(Clone, Copy)]
enum Body {
    Length(usize),
    Chunked,
    Done,
}

impl Client {
    /// Connects to `host:port`.
    pub async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream: BufReader::with_capacity(64 << 10, stream),
            body: Body::Done,
        }
    }

    /// Sends a request and reads the head of its answer.
    pub async fn open(&mut self, method: &str, path: &str, body: &str) -> u16 {
        assert!(
            matches!(self.body, Body::Done),
            "the answer before was read"
        );
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await.unwrap();
        let mut status = 0;
        self.body = Body::Length(0);
        for at in 0.. {
            let line = self.line().await;
            if line.is_empty() {
                break;
            }
            let line = line.to_ascii_lowercase();
            if at == 0 {
                status = line.split(' ').nth(1).unwrap().parse().unwrap();
            } else if let Some(length) = line.strip_prefix("content-length:") {
                self.body = Body::Length(length.trim().parse().unwrap());
            } else if line.starts_with("transfer-encoding:") && line.contains("chunked") {
                self.body = Body::Chunked;
            }
        }
        status
    }

    /// The next piece of the body; `None` at its end.
    pub async fn piece(&mut self) -> Option<Vec<u8>> {
        let length = match self.body {
            Body::Done => return None,
            Body::Length(length) => {
                self.body = Body::Done;
                length
            }
            Body::Chunked => {
                let line = self.line().await;
                usize::from_str_radix(line.trim(), 16).unwrap()
            }
        };
        let mut piece = vec![0; length];
        self.stream.read_exact(&mut piece).await.unwrap();
        if matches!(self.body, Body::Chunked) {
            self.line().await;
            if length == 0 {
                self.body = Body::Done;
                return None;
            }
        }
        Some(piece)
    }

    /// A whole answer as JSON.
    pub async fn json(&mut self, method: &str, path: &str, body: &str) -> Value {
        let status = self.open(method, path, body).await;
        let mut text = Vec::new();
        while let Some(piece) = self.piece().await {
            text.extend(piece);
        }
        let text = String::from_utf8(text).unwrap();
        assert!(status < 300, "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// The number of `event:` lines of a stream whose name is `name`, or begins with it and a bar.
    pub async fn count_events(&mut self, path: &str, body: &str, name: &str) -> usize {
        assert_eq!(self.open("POST", path, body).await, 200, "{path}");
        let line = format!("event: {name}");
        let mut text = Vec::new();
        let mut count = 0;
        while let Some(piece) = self.piece().await {
            text.extend(piece);
            let end = text
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            let whole = std::str::from_utf8(&text[..end]).unwrap();
            count += whole
                .lines()
                .filter(|other| other.trim_end().starts_with(&line))
                .count();
            text.drain(..end);
        }
        count
    }

    /// A new thread.
    pub async fn thread(&mut self) -> String {
        let thread = self.json("POST", "/threads", "{}").await;
        thread["thread_id"].as_str().unwrap().to_owned()
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let length = self.stream.read_line(&mut line).await.unwrap();
        assert!(length > 0, "the server closed the connection");
        line.truncate(line.trim_end().len());
        line
    }
}
