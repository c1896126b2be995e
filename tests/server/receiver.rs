//! A receiver of POST requests, such as webhooks and traces, that responds as a test wants.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use serde_json::Value;

/// What a receiver does with a delivery that it has read.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    Status(u16),
    /// 200 with this JSON.
    Json(fn(&Received) -> Value),
    Close,
    /// Nothing until the receiver is told otherwise.
    Hang,
}

/// One delivery as it was received.
#[derive(Clone, Debug)]
pub struct Received {
    pub path: String,
    pub headers: HashMap<String, String>,
    pub bytes: Vec<u8>,
}

impl Received {
    pub fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    pub fn body(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap()
    }
}

#[derive(Default)]
struct State {
    received: Vec<Received>,
    /// Of the next deliveries; later ones get the last.
    replies: Vec<Reply>,
    open: usize,
    most_open: usize,
}

/// Listens on a free port until the test ends.
pub struct Receiver {
    port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Receiver {
    /// Replies to the next deliveries so, and to all further ones with the last of these.
    pub fn replying(replies: &[Reply]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state: Arc<(Mutex<State>, Condvar)> = Arc::default();
        state.0.lock().replies = replies.to_vec();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream.unwrap(), &state));
            }
        });
        Self { port, state }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Changes the replies; whoever hangs gets the last of them.
    pub fn reply(&self, replies: &[Reply]) {
        self.state.0.lock().replies = replies.to_vec();
        self.state.1.notify_all();
    }

    pub fn received(&self) -> Vec<Received> {
        self.state.0.lock().received.clone()
    }

    /// The most deliveries that were open at one time.
    pub fn most_open(&self) -> usize {
        self.state.0.lock().most_open
    }
}

fn serve(stream: &TcpStream, (state, changed): &(Mutex<State>, Condvar)) {
    let Some(received) = read(stream) else { return };
    let mut state = state.lock();
    state.received.push(received.clone());
    state.open += 1;
    state.most_open = state.most_open.max(state.open);
    let mut reply = state.replies[0];
    if state.replies.len() > 1 {
        state.replies.remove(0);
    }
    while matches!(reply, Reply::Hang) {
        changed.wait(&mut state);
        reply = *state.replies.last().unwrap();
    }
    state.open -= 1;
    drop(state);
    let (status, body) = match reply {
        Reply::Status(status) => (status, String::new()),
        Reply::Json(make) => (200, make(&received).to_string()),
        Reply::Close | Reply::Hang => return,
    };
    let text = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    (&*stream).write_all(text.as_bytes()).ok();
}

fn read(stream: &TcpStream) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = HashMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Received {
        path,
        headers,
        bytes: body,
    })
}
