//! A small blocking HTTP/1.1 client that shows every byte of an answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{server::Server, socket, talk::poll_pause};

mod held;
pub use held::Held;

/// How long an answer may be silent.
const PATIENCE: Duration = Duration::from_secs(60);

type Headers<'a> = [(&'a str, &'a str)];

/// Sends requests to one server, each on a connection of its own.
#[derive(Clone, Debug)]
pub struct Client {
    address: String,
    /// Sent as `x-api-key`.
    key: Option<String>,
    /// The address that it connects from, if not any.
    source: Option<IpAddr>,
    /// How many bytes its connections take before they are read, if not as many as the system likes.
    window: Option<u32>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    /// The status of the first line.
    pub status: u16,
    /// Lower-case names with their values, in order.
    pub headers: Vec<(String, String)>,
    /// The body without its chunk marks.
    pub body: Vec<u8>,
}

/// An answer whose body is still coming; dropping it closes the connection.
#[derive(Debug)]
pub struct Open {
    /// The status of the first line.
    pub status: u16,
    /// Lower-case names with their values, in order.
    pub headers: Vec<(String, String)>,
    body: Chunks,
}

/// One server-sent event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The name.
    pub name: String,
    /// The data.
    pub data: Value,
    /// The id, of resumable streams.
    pub id: Option<String>,
}

impl Client {
    /// A client of `server` as it listens now.
    pub fn of(server: &Server) -> Self {
        let address = server.base_url().trim_start_matches("http://").to_owned();
        Self {
            address,
            key: None,
            source: None,
            window: None,
        }
    }

    /// The same client with a key.
    pub fn with_key(&self, key: &str) -> Self {
        let mut client = self.clone();
        client.key = Some(key.to_owned());
        client
    }

    /// The same client at another address of this machine.
    pub fn at(&self, source: IpAddr) -> Self {
        let mut client = self.clone();
        client.source = Some(source);
        client
    }

    /// The same client, whose connections take few bytes before they are read.
    pub fn with_window(&self, bytes: u32) -> Self {
        let mut client = self.clone();
        client.window = Some(bytes);
        client
    }

    fn connect(&self) -> TcpStream {
        let stream = socket::connect(&self.address, self.source, self.window);
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The head of a request with a body of so many bytes, if it has one.
    fn head(&self, method: &str, path: &str, headers: &Headers, body: Option<usize>) -> String {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.address);
        let key = self.key.as_deref().map(|key| ("x-api-key", key));
        for (name, value) in headers.iter().copied().chain(key) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(length) = body {
            head.push_str(&format!("content-length: {length}\r\n"));
        }
        head + "\r\n"
    }

    /// A GET.
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    /// A POST of JSON.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, body.to_string())
    }

    /// A POST of a text that need not be JSON.
    pub fn post_text(&self, path: &str, body: impl AsRef<[u8]>) -> Answer {
        self.send("POST", path, &[], body.as_ref())
    }

    /// A DELETE.
    pub fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, &[], b"")
    }

    /// Any request, and its whole answer.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.open(method, path, headers, body).whole()
    }

    /// Any request; gives the head of its answer as soon as that is there.
    pub fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Open {
        let stream = self.begin(method, path, headers, body);
        Open::of(BufReader::new(stream), method)
    }

    /// A POST of JSON, and its whole answer; none if that does not begin to come in time, when the client leaves.
    pub fn post_within(&self, patience: Duration, path: &str, body: &Value) -> Option<Answer> {
        let stream = self.begin("POST", path, &[], body.to_string().as_bytes());
        stream.set_read_timeout(Some(patience)).unwrap();
        stream.peek(&mut [0]).ok()?;
        Some(Open::of(BufReader::new(stream), "POST").whole())
    }

    /// Sends a request and does not wait for its answer.
    pub fn begin(&self, verb: &str, path: &str, more: &[(&str, &str)], body: &[u8]) -> TcpStream {
        let stream = self.connect();
        let length = (!body.is_empty() || verb == "POST").then_some(body.len());
        let head = self.head(verb, path, more, length);
        // A server that refuses a body early may close before all of it was sent.
        (&stream).write_all(&[head.as_bytes(), body].concat()).ok();
        stream
    }

    /// Any request with a body, all of which is sent but the last byte. The server asks for the body
    /// when it begins to read it, so its head has been looked at when this returns.
    pub fn hold(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Held {
        let stream = self.connect();
        let headers = [headers, &[("expect", "100-continue")]].concat();
        let head = self.head(method, path, &headers, Some(body.len()));
        (&stream).write_all(head.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let first = line(&mut reader);
        assert!(first.contains(" 100 "), "{method} {path}: {first}");
        assert_eq!(line(&mut reader), "");
        let (last, rest) = body.split_last().expect("a body to hold back");
        reader.get_mut().write_all(rest).unwrap();
        Held {
            reader,
            method: method.to_owned(),
            last: *last,
        }
    }

    /// A POST of a body in chunks that are written as given and never ended.
    pub fn open_chunked(&self, path: &str, chunks: &[u8]) -> Open {
        let stream = self.connect();
        let head = self.head("POST", path, &[("transfer-encoding", "chunked")], None);
        (&stream).write_all(head.as_bytes()).unwrap();
        (&stream).write_all(chunks).ok();
        Open::of(BufReader::new(stream), "POST")
    }

    /// A new thread's id.
    pub fn thread(&self) -> String {
        let answer = self.post("/threads", &json!({}));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["thread_id"].as_str().unwrap().to_owned()
    }

    /// Runs to the end and gives the body of `/wait`.
    pub fn run(&self, thread: &str, body: &Value) -> Value {
        let answer = self.post(&format!("/threads/{thread}/runs/wait"), body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// Streams a run to its end.
    pub fn stream(&self, thread: &str, body: &Value) -> Vec<Event> {
        let mut open = self.open_stream(thread, body);
        std::iter::from_fn(|| open.event()).collect()
    }

    /// Begins to stream a run.
    pub fn open_stream(&self, thread: &str, body: &Value) -> Open {
        let path = format!("/threads/{thread}/runs/stream");
        let mut open = self.open("POST", &path, &[], body.to_string().as_bytes());
        if open.status != 200 {
            let text = String::from_utf8(open.rest()).unwrap();
            panic!("{} {text}", open.status);
        }
        open
    }

    /// The state of a thread.
    pub fn state(&self, thread: &str) -> Value {
        let answer = self.get(&format!("/threads/{thread}/state"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// The newest 100 states of a thread, newest first.
    pub fn history(&self, thread: &str) -> Vec<Value> {
        let answer = self.get(&format!("/threads/{thread}/history?limit=100"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json().as_array().unwrap().clone()
    }

    /// Polls a run until it has ended, and gives its status.
    pub fn end_of(&self, thread: &str, run: &str) -> String {
        self.end_within(thread, run, PATIENCE)
    }

    /// The same for a run that may take so long.
    pub fn end_within(&self, thread: &str, run: &str, patience: Duration) -> String {
        let begin = Instant::now();
        while begin.elapsed() < patience {
            let answer = self.get(&format!("/threads/{thread}/runs/{run}"));
            assert_eq!(answer.status, 200, "{}", answer.text());
            let status = answer.json()["status"].as_str().unwrap().to_owned();
            if !matches!(&*status, "pending" | "running") {
                return status;
            }
            // A request that waits for the end would break with the process that tests freeze or end.
            std::thread::sleep(poll_pause(begin));
        }
        panic!("run {run} does not end");
    }
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{} {error}: {}", self.status, self.text()))
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// The text of an error answer of this status.
    pub fn refused(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        let body = self.json();
        let detail = body["detail"].as_str();
        detail
            .unwrap_or_else(|| panic!("no detail in {body}"))
            .to_owned()
    }
}

impl Open {
    fn of(mut reader: BufReader<TcpStream>, method: &str) -> Self {
        let first = line(&mut reader);
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status line: {first:?}"));
        let mut headers = Vec::new();
        loop {
            let line = line(&mut reader);
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').unwrap();
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let chunked = find(&headers, "transfer-encoding") == Some("chunked");
        let length = find(&headers, "content-length").map_or(0, |text| text.parse().unwrap());
        let left = match (method, chunked) {
            ("HEAD", _) => Left::Exactly(0),
            (_, true) => Left::Chunks,
            (_, false) => Left::Exactly(length),
        };
        Self {
            status,
            headers,
            body: Chunks {
                reader,
                left,
                pending: Vec::new(),
            },
        }
    }

    fn whole(mut self) -> Answer {
        let body = self.rest();
        Answer {
            status: self.status,
            headers: self.headers,
            body,
        }
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// The next piece of the body as the server sent it, or none at its clean end.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        self.body.next().unwrap()
    }

    /// The rest of the body.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(piece) = self.chunk() {
            all.extend_from_slice(&piece);
        }
        all
    }

    /// The next event, or none at the clean end of the stream. Comments are passed over.
    pub fn event(&mut self) -> Option<Event> {
        self.body.event().unwrap()
    }

    /// The next event, or none at the clean end; an error when the connection breaks.
    pub fn event_or_break(&mut self) -> std::io::Result<Option<Event>> {
        self.body.event()
    }

    /// The next event of this name.
    pub fn event_named(&mut self, name: &str) -> Event {
        while let Some(event) = self.event() {
            if event.name == name {
                return event;
            }
        }
        panic!("the stream ended without an event `{name}`");
    }

    /// The run that the answer's `Content-Location` names.
    pub fn run(&self) -> String {
        let location = self.header("content-location").unwrap();
        location.rsplit('/').next().unwrap().to_owned()
    }

    /// The next piece of the body; none at its clean end, and none when the connection breaks.
    pub fn chunk_or_break(&mut self) -> Option<Vec<u8>> {
        self.body.next().ok().flatten()
    }

    /// Whether the connection breaks before the body's end.
    pub fn breaks(&mut self) -> bool {
        loop {
            match self.body.next() {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }
}

#[derive(Debug)]
struct Chunks {
    reader: BufReader<TcpStream>,
    left: Left,
    /// Bytes that were read and are no whole event yet.
    pending: Vec<u8>,
}

#[derive(Debug)]
enum Left {
    /// As many bytes.
    Exactly(usize),
    /// Chunks up to the empty one.
    Chunks,
}

impl Chunks {
    fn next(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let size = match self.left {
            Left::Exactly(0) => return Ok(None),
            Left::Exactly(size) => size,
            Left::Chunks => {
                let mut line = String::new();
                self.reader.read_line(&mut line)?;
                let size = usize::from_str_radix(line.trim(), 16);
                size.map_err(|_| std::io::Error::other(format!("no size of a chunk: {line:?}")))?
            }
        };
        let mut piece = vec![0; size];
        self.reader.read_exact(&mut piece)?;
        if matches!(self.left, Left::Chunks) {
            let mut end = [0; 2];
            self.reader.read_exact(&mut end)?;
            assert_eq!(&end, b"\r\n");
        }
        if size == 0 || matches!(self.left, Left::Exactly(_)) {
            self.left = Left::Exactly(0);
        }
        Ok((size > 0).then_some(piece))
    }

    fn event(&mut self) -> std::io::Result<Option<Event>> {
        // A large event comes in many pieces: what was searched is not searched with each of them.
        let mut searched = 0;
        loop {
            // Chunks may hold several events; what is left of one waits in `pending`.
            let Some(end) = find_blank(&self.pending, searched) else {
                searched = self.pending.len().saturating_sub(3);
                match self.next()? {
                    Some(piece) => self.pending.extend_from_slice(&piece),
                    None if self.pending.is_empty() => return Ok(None),
                    None => return Err(std::io::Error::other("half an event")),
                }
                continue;
            };
            let frame: Vec<u8> = self.pending.drain(..end + 4).collect();
            searched = 0;
            if let Some(event) = Event::parse(std::str::from_utf8(&frame).unwrap()) {
                return Ok(Some(event));
            }
        }
    }
}

impl Event {
    /// None for a comment.
    fn parse(frame: &str) -> Option<Self> {
        let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
        Some(Self {
            name: field("event: ")?.to_owned(),
            data: serde_json::from_str(field("data: ")?).unwrap(),
            id: field("id: ").map(str::to_owned),
        })
    }
}

fn find_blank(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let at = rest.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some(from + at)
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| &**value)
}

fn line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line.trim_end_matches(['\r', '\n']).to_owned()
}
