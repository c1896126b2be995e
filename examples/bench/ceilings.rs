//! Measures durable supersteps per second through the server, as a share of what the database
//! does with the same rows and nothing around it. Everything runs in turn in one call, so that
//! the ratios are valid on a noisy machine.
//!
//! ```sh
//! make bench                                    # SQLite, and Postgres
//! cargo run --release --example bench -- 5      # seconds a measurement
//! cargo run --release --example bench -- 5 async
//! ```
//!
//! Each run is ten nodes in a row on a new thread: twelve checkpoints, durability `sync` unless another
//! one is named. What supersteps of `async` share is set by `BACKSTITCH_RUN_AHEAD`.
//! Postgres is measured when `TEST_DATABASE_URL` names a cluster; `make bench` starts one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a program for developers"
)]

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

/// Checkpoints of one run: the input, the start, ten nodes.
const SUPERSTEPS: f64 = 12.0;
const CLIENTS: [usize; 3] = [1, 8, 64];

#[tokio::main]
async fn main() {
    let seconds: f64 = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(3.0);
    let span = Duration::from_secs_f64(seconds);
    println!("durable supersteps/s, {seconds} s each, server and ceiling in turn");
    println!("| storage | runs at once | server | ceiling | share |");
    println!("|---|---|---|---|---|");
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--data", folder.path().to_str().unwrap()], &[]);
    for clients in CLIENTS {
        let ceiling = sqlite_ceiling(folder.path(), span);
        let ours = drive(&server.address, clients, span).await * SUPERSTEPS;
        row("SQLite", clients, ours, ceiling);
    }
    drop(server);
    let Ok(url) = std::env::var("TEST_DATABASE_URL") else {
        println!("Postgres was not measured: set TEST_DATABASE_URL");
        return;
    };
    let database = Scratch::create(&url);
    let server = Server::start(&[], &[("DATABASE_URL", &database.url)]);
    for clients in CLIENTS {
        let ceiling = pgbench(&database.url, clients, seconds);
        let ours = drive(&server.address, clients, span).await * SUPERSTEPS;
        row("Postgres", clients, ours, ceiling);
    }
}

fn row(storage: &str, clients: usize, ours: f64, ceiling: f64) {
    let share = 100.0 * ours / ceiling;
    println!("| {storage} | {clients} | {ours:.0} | {ceiling:.0} | {share:.0} % |");
}

/// Whole runs per second through the server.
async fn drive(address: &str, clients: usize, span: Duration) -> f64 {
    let start = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|_| tokio::spawn(client(address.to_owned(), start + span)))
        .collect();
    let mut runs = 0;
    for task in tasks {
        runs += task.await.unwrap();
    }
    f64::from(runs) / start.elapsed().as_secs_f64()
}

async fn client(address: String, until: Instant) -> u32 {
    let stream = TcpStream::connect(&address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut stream = tokio::io::BufReader::new(stream);
    let durability = std::env::args().nth(2).unwrap_or_else(|| "sync".to_owned());
    let body = format!(
        r#"{{"assistant_id":"seq10","durability":"{durability}","input":{{"count":0,"log":[]}}}}"#
    );
    let mut runs = 0;
    while Instant::now() < until {
        let thread = post(&mut stream, "/threads", "{}").await;
        let thread: serde_json::Value = serde_json::from_str(&thread).unwrap();
        let path = format!(
            "/threads/{}/runs/wait",
            thread["thread_id"].as_str().unwrap()
        );
        let answer = post(&mut stream, &path, &body).await;
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["count"], 10, "{answer}");
        runs += 1;
    }
    runs
}

async fn post(stream: &mut tokio::io::BufReader<TcpStream>, path: &str, body: &str) -> String {
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut length, mut chunked) = (0, false);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        chunked |= line == "transfer-encoding: chunked";
    }
    let mut out = vec![];
    loop {
        if chunked {
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            length = usize::from_str_radix(line.trim(), 16).unwrap();
        }
        let start = out.len();
        out.resize(start + length, 0);
        stream.read_exact(&mut out[start..]).await.unwrap();
        if chunked {
            let mut end = [0; 2];
            stream.read_exact(&mut end).await.unwrap();
        }
        if !chunked || length == 0 {
            return String::from_utf8(out).unwrap();
        }
    }
}

/// The same rows in an SQLite file of the same folder, one durable transaction a superstep.
fn sqlite_ceiling(folder: &Path, span: Duration) -> f64 {
    let file = folder.join("ceiling.db");
    let _ = std::fs::remove_file(&file);
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
         CREATE TABLE branches (id BLOB PRIMARY KEY, head BLOB) WITHOUT ROWID;
         CREATE TABLE checkpoints (tree BLOB, id BLOB, parent BLOB, envelope TEXT, metadata TEXT,
           PRIMARY KEY (tree, id)) WITHOUT ROWID;
         CREATE TABLE blobs (tree BLOB, channel TEXT, version TEXT, blob BLOB,
           PRIMARY KEY (tree, channel, version)) WITHOUT ROWID;
         CREATE TABLE writes (tree BLOB, checkpoint BLOB, task BLOB, writes BLOB,
           PRIMARY KEY (tree, checkpoint, task)) WITHOUT ROWID;",
    )
    .unwrap();
    let envelope = "x".repeat(600);
    let start = Instant::now();
    let mut steps = 0_u64;
    while start.elapsed() < span {
        let (tree, id) = ([1_u8; 16], u128::from(steps).to_be_bytes());
        let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
            db.prepare_cached(sql).unwrap().execute(values).unwrap();
        };
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        run(
            "INSERT OR REPLACE INTO branches VALUES (?, ?)",
            &[&tree, &id],
        );
        run(
            "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)",
            &[&tree, &id, &id, &envelope, &"{\"graph_id\":\"seq10\"}"],
        );
        run(
            "INSERT INTO blobs VALUES (?, 'log', ?, ?)",
            &[&tree, &steps.to_string(), &[7_u8; 24]],
        );
        run(
            "INSERT INTO writes VALUES (?, ?, ?, ?)",
            &[&tree, &id, &id, &[7_u8; 60]],
        );
        db.execute_batch("COMMIT").unwrap();
        steps += 1;
    }
    steps as f64 / start.elapsed().as_secs_f64()
}

/// The same rows by pgbench, one pipelined transaction a superstep.
fn pgbench(url: &str, clients: usize, seconds: f64) -> f64 {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/superstep.pgbench");
    let output = Command::new("pgbench")
        .args(["-n", "-M", "prepared", "-f", script, "-j", "2"])
        .args(["-c", &clients.to_string()])
        .args(["-T", &format!("{}", seconds.ceil())])
        .arg(url)
        .output()
        .expect("pgbench runs: it comes with Postgres");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with("tps = "));
    let line = line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    let number = line["tps = ".len()..].split(' ').next();
    number.unwrap().parse().unwrap()
}

/// A database of its own in the cluster of `TEST_DATABASE_URL`, dropped at the end.
struct Scratch {
    url: String,
    admin: String,
    name: String,
}

impl Scratch {
    fn create(admin: &str) -> Self {
        let name = format!("backstitch_bench_{}", std::process::id());
        let psql = Command::new("psql")
            .args([admin, "-qc", &format!("CREATE DATABASE {name}")])
            .status();
        assert!(
            psql.is_ok_and(|status| status.success()),
            "the database was not created"
        );
        let (front, query) = admin.split_once('?').unwrap_or((admin, ""));
        let (server, _) = front.rsplit_once('/').unwrap();
        Self {
            url: format!("{server}/{name}?{query}"),
            admin: admin.to_owned(),
            name,
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = Command::new("psql")
            .args([&self.admin, "-qc"])
            .arg(format!("DROP DATABASE {} WITH (FORCE)", self.name))
            .status();
    }
}

/// `bench_server` as a process of its own.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let own: PathBuf = std::env::current_exe().unwrap();
        let program = own.with_file_name("bench_server");
        let mut child = Command::new(&program)
            .args(arguments)
            .envs(environment.iter().copied())
            .env("PORT", "0")
            .env("LOG_LEVEL", "warn")
            .stdout(Stdio::piped())
            .spawn()
            .expect("bench_server was built: cargo build --release --examples");
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let address = line.trim().rsplit_once('/').unwrap().1.to_owned();
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
