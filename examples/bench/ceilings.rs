//! What the databases do alone: the yardsticks of the same call.

use std::{path::Path, process::Command, time::Duration};

use tokio::time::Instant;

/// The same rows in an SQLite file of the same folder, one durable transaction a superstep.
pub fn sqlite(folder: &Path, span: Duration) -> f64 {
    let file = folder.join("ceiling.db");
    let _ = std::fs::remove_file(&file);
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;
         CREATE TABLE branches (id BLOB PRIMARY KEY, head BLOB) WITHOUT ROWID;
         CREATE TABLE checkpoints (tree BLOB, id BLOB, parent BLOB, envelope TEXT, metadata TEXT,
           PRIMARY KEY (tree, id));
         CREATE TABLE blobs (tree BLOB, channel TEXT, version TEXT, blob BLOB,
           PRIMARY KEY (tree, channel, version));
         CREATE TABLE writes (tree BLOB, checkpoint BLOB, task BLOB, writes BLOB,
           PRIMARY KEY (tree, checkpoint, task));",
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

/// A superstep as LangGraph's saver stores it, in tables shaped like its own: the yardstick that stays
/// the same whatever our rows become.
pub fn reference(url: &str, clients: usize, span: Duration) -> f64 {
    psql(
        url,
        &[
            "-f",
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/reference.sql"),
        ],
    );
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/reference.pgbench");
    pgbench(url, script, clients, span)
}

/// The rows that the server writes, as plain inserts into its tables.
pub fn own_rows(url: &str, clients: usize, span: Duration) -> f64 {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/superstep.pgbench");
    pgbench(url, script, clients, span)
}

/// Transactions per second of a script.
fn pgbench(url: &str, script: &str, clients: usize, span: Duration) -> f64 {
    let output = Command::new("pgbench")
        .args(["-n", "-M", "prepared", "-f", script, "-j", "2"])
        .args(["-c", &clients.to_string()])
        .args(["-T", &format!("{}", span.as_secs_f64().ceil())])
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
pub struct Scratch {
    /// Where it is.
    pub url: String,
    admin: String,
    name: String,
}

impl Scratch {
    /// Creates it.
    pub fn create(admin: &str) -> Self {
        let name = format!("backstitch_bench_{}", uuid::Uuid::now_v7().simple());
        psql(admin, &["-c", &format!("CREATE DATABASE {name}")]);
        let (front, query) = admin.split_once('?').unwrap_or((admin, ""));
        let (server, _) = front.rsplit_once('/').unwrap();
        Self {
            url: format!("{server}/{name}?{query}"),
            admin: admin.to_owned(),
            name,
        }
    }
}

impl Scratch {
    /// The process that started all processes of the cluster, where it runs on this machine.
    pub fn postmaster(&self) -> Option<u32> {
        let folder = psql(&self.url, &["-Atc", "SHOW data_directory"]);
        let file = std::fs::read_to_string(Path::new(folder.trim()).join("postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok()
    }

    /// One number.
    pub fn number(&self, query: &str) -> f64 {
        self.text(query).parse().unwrap()
    }

    /// One text.
    pub fn text(&self, query: &str) -> String {
        psql(&self.url, &["-Atc", query]).trim().to_owned()
    }
}

/// What `psql` prints.
fn psql(url: &str, arguments: &[&str]) -> String {
    let output = Command::new("psql")
        .args(["-q", "-v", "ON_ERROR_STOP=1", url])
        .args(arguments)
        .output()
        .expect("psql runs: it comes with Postgres");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "psql {arguments:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = Command::new("psql")
            .args([&self.admin, "-qc"])
            .arg(format!("DROP DATABASE {} WITH (FORCE)", self.name))
            .status();
    }
}
