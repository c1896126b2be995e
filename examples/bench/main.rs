//! The page of figures: what the server does beside what the databases do alone, in one call.
//!
//! ```sh
//! make bench                # every figure, on SQLite and on Postgres
//! make bench QUICK=1        # in five minutes
//! BENCH_PEERS="name=./start.sh" make bench
//! make bench BEFORE="a b"   # this build beside older builds of bench_server, in turn
//! ```
//!
//! Everything runs in turn, so that ratios are valid on a noisy machine. Postgres is measured when
//! `TEST_DATABASE_URL` names a cluster; `make bench` starts one. A peer is a program that prints its
//! address as its first line and serves the graphs of `bench_server` by the same protocol.
//! `BENCH_ONLY=sqlite` or `postgres` measures one storage; `BENCH_PAGE` is the folder for the page.
//! `BENCH_CLIENTS=8` drives one storage by so many clients and does nothing else, so that a profiler can watch.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a program for developers"
)]

mod ceilings;
mod client;
mod compare;
mod measures;
mod page;
mod process;
mod sizes;
mod takeovers;
mod usage;
mod workloads;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use page::{Figure, Goal};
use process::Server;

/// Checkpoints of one chain of ten nodes: the input, the start, ten nodes.
const SUPERSTEPS: f64 = 12.0;

/// How much is measured.
#[derive(Clone, Copy)]
struct Plan {
    /// Time of one load.
    span: Duration,
    /// Interleaved rounds, of which the median counts.
    rounds: usize,
    /// Turns of the long chat, 800 at least: what it takes is measured in its middle too, after the first 400.
    turns: usize,
    /// Repetitions of a request.
    reads: usize,
    /// Runs that are executed at once.
    in_flight: usize,
}

impl Plan {
    fn of_environment() -> Self {
        if std::env::var("QUICK").is_ok_and(|quick| !quick.is_empty()) {
            Self {
                span: Duration::from_secs(2),
                rounds: 1,
                turns: 1000,
                reads: 50,
                in_flight: 2_000,
            }
        } else {
            Self {
                span: Duration::from_secs(5),
                rounds: 3,
                turns: 2000,
                reads: 300,
                in_flight: 10_000,
            }
        }
    }
}

/// Where a server keeps its data.
enum Place {
    Sqlite(tempfile::TempDir),
    Postgres(ceilings::Scratch),
}

/// A new database, and the program that serves it.
struct Storage {
    place: Place,
    program: PathBuf,
}

impl Storage {
    fn sqlite(program: &Path) -> Self {
        Self {
            place: Place::Sqlite(tempfile::tempdir().unwrap()),
            program: program.to_owned(),
        }
    }

    /// A database in the cluster at `url`.
    fn postgres(url: &str, program: &Path) -> Self {
        Self {
            place: Place::Postgres(ceilings::Scratch::create(url)),
            program: program.to_owned(),
        }
    }

    fn name(&self) -> &'static str {
        match self.place {
            Place::Sqlite(_) => "SQLite",
            Place::Postgres(_) => "Postgres",
        }
    }

    fn server(&self) -> Server {
        // The lease is short, so that a takeover need not be waited for.
        self.server_with(&[("BACKSTITCH_LEASE", "3")])
    }

    /// A server that executes so many runs at once.
    fn server_for(&self, runs: usize) -> Server {
        let slots = (runs + 100).to_string();
        self.server_with(&[("BACKSTITCH_LEASE", "3"), ("BACKSTITCH_SLOTS", &slots)])
    }

    /// A server with more settings.
    fn server_with(&self, settings: &[(&str, &str)]) -> Server {
        match &self.place {
            Place::Sqlite(folder) => {
                let data = folder.path().to_str().unwrap();
                Server::bench(&self.program, &["--data", data], settings)
            }
            Place::Postgres(scratch) => {
                let url = [("DATABASE_URL", &*scratch.url)];
                Server::bench(&self.program, &[], &[&url, settings].concat())
            }
        }
    }

    /// Supersteps a second that the database does alone: what goals are measured by, and the rows that the
    /// server writes.
    fn ceilings(&self, clients: usize, span: Duration) -> (f64, f64) {
        match &self.place {
            Place::Sqlite(folder) => {
                let alone = ceilings::sqlite(folder.path(), span);
                (alone, alone)
            }
            Place::Postgres(scratch) => (
                ceilings::reference(&scratch.url, clients, span),
                ceilings::own_rows(&scratch.url, clients, span),
            ),
        }
    }

    fn database_cpu(&self) -> Duration {
        match &self.place {
            Place::Sqlite(_) => Duration::ZERO,
            Place::Postgres(scratch) => scratch
                .postmaster()
                .map_or(Duration::ZERO, process::tree_cpu),
        }
    }
}

/// The figures so far; each is printed when it is there.
#[derive(Default)]
struct Book {
    figures: Vec<Figure>,
    is_silent: bool,
}

impl Book {
    fn add(&mut self, name: String, value: f64, unit: &'static str, goal: Goal, note: String) {
        let figure = Figure {
            name,
            value,
            unit,
            goal,
            note,
        };
        if !self.is_silent {
            println!("{}", figure.row());
        }
        self.figures.push(figure);
    }
}

// One thread drives all clients: more would take processors from the server and the database, which share them.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (plan, begin) = (Plan::of_environment(), tokio::time::Instant::now());
    let only = std::env::var("BENCH_ONLY").unwrap_or_default();
    let before = std::env::var("BENCH_BEFORE").unwrap_or_default();
    if !before.is_empty() {
        let others: Vec<PathBuf> = before.split_whitespace().map(PathBuf::from).collect();
        compare::builds(&only, &others).await;
        return;
    }
    let (mut book, program) = (Book::default(), process::own_build());
    if let Ok(clients) = std::env::var("BENCH_CLIENTS") {
        let clients = clients.parse().expect("BENCH_CLIENTS is a number");
        let storage = match std::env::var("TEST_DATABASE_URL") {
            Ok(url) if only != "sqlite" => Storage::postgres(&url, &program),
            _ => Storage::sqlite(&program),
        };
        measures::load(&mut book, plan, &storage, clients).await;
        return;
    }
    println!("{}", page::HEAD);
    if only != "postgres" {
        measure(&mut book, plan, || Storage::sqlite(&program)).await;
    }
    match std::env::var("TEST_DATABASE_URL") {
        Ok(url) if only != "sqlite" => {
            measure(&mut book, plan, || Storage::postgres(&url, &program)).await;
        }
        Ok(_) => {}
        Err(_) => println!("Postgres was not measured: set TEST_DATABASE_URL"),
    }
    let peers = std::env::var("BENCH_PEERS").unwrap_or_default();
    for peer in peers.split_whitespace() {
        let (name, script) = peer
            .split_once('=')
            .expect("BENCH_PEERS is name=script, with spaces between");
        measures::measure_peer(&mut book, plan, name, script).await;
    }
    println!("\nWhat fell short:\n\n{}", page::shortfalls(&book.figures));
    println!("This took {} s.", begin.elapsed().as_secs());
    let folder = std::env::var("BENCH_PAGE").unwrap_or_default();
    if !folder.is_empty() {
        let folder = std::path::Path::new(&folder);
        std::fs::write(
            folder.join("figures.md"),
            page::markdown(&book.figures, &how()),
        )
        .unwrap();
        std::fs::write(folder.join("figures.svg"), page::svg(&book.figures)).unwrap();
    }
}

/// What was measured, and where.
fn how() -> String {
    let commit = std::process::Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output();
    let commit = commit.map_or_else(
        |_| "an unknown commit".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    );
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "`make bench` wrote this page, of {commit}, on a machine of {processors} processors that server, database and \
         clients share. A run is twelve supersteps on a new thread, over HTTP, with the default durability. The \
         ceiling of Postgres is what `pgbench` reaches in the same minute with one pipelined transaction a \
         superstep, of rows as LangGraph's saver writes them; that of SQLite is one durable transaction a \
         superstep with our rows, without a server. Ratios are good beyond this machine, times are not."
    )
}

/// Every figure of one storage. Each part has a new database: what is new has no statistics.
async fn measure(book: &mut Book, plan: Plan, storage: impl Fn() -> Storage) {
    measures::supersteps(book, plan, &storage()).await;
    let fresh = storage();
    let server = fresh.server();
    measures::streams(book, plan, fresh.name(), &server).await;
    measures::reads(book, plan, fresh.name(), &server.address).await;
    drop(server);
    measures::chats(book, plan, &storage()).await;
    measures::process_figures(book, &storage()).await;
    measures::calls(book, &storage()).await;
    let fresh = storage();
    if let Place::Postgres(_) = fresh.place {
        measures::commits(book, &fresh).await;
    }
    takeovers::measure(book, &fresh).await;
    measures::in_flight(book, plan, &storage()).await;
}
