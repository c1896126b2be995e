//! What a request costs the storage of a server that has just started, seen from outside.

use std::{fs, path::Path, time::Duration};

use test_support::client::Client;
use test_support::place::{Place, block_on};
use test_support::server::Server;

/// Counts what requests cost.
pub struct Counter {
    /// Of a Postgres database: rows and index entries are counted.
    url: Option<String>,
    /// What a life of a server without a request costs.
    idle: u64,
}

impl Counter {
    pub fn new(place: &Place, server: &mut Server) -> Self {
        let mut counter = Self {
            url: place.url().map(str::to_owned),
            idle: 0,
        };
        counter.idle = counter.least(server, "/ok");
        counter
    }

    /// The least that it costs in a few tries: the server reads for itself, too, at times of its own.
    pub fn least(&self, server: &mut Server, path: &str) -> u64 {
        let costs = (0..3).map(|_| self.of(server, path));
        costs.min().unwrap_or(0)
    }

    /// What the first request to a server costs.
    pub fn of(&self, server: &mut Server, path: &str) -> u64 {
        let ask = |server: &Server| {
            let answer = Client::of(server).get(path);
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        };
        let cost = match &self.url {
            Some(url) => {
                server.kill();
                let before = block_on(rows_read(url));
                server.restart();
                ask(server);
                server.kill();
                let cost = block_on(rows_read(url)) - before;
                server.restart();
                cost
            }
            None => {
                server.restart();
                Client::of(server).get("/ok");
                let process = process_in(server.folder());
                let before = bytes_read_at_rest(&process);
                ask(server);
                bytes_read(&process) - before
            }
        };
        cost.saturating_sub(self.idle)
    }

    /// By how much two requests of the same kind may differ.
    pub fn spare(&self) -> u64 {
        match self.url {
            Some(_) => 100,
            // Trees of pages are a level higher.
            None => 256 << 10,
        }
    }

    /// What a walk over so many rows costs at least.
    pub fn walk(&self, rows: usize) -> u64 {
        match self.url {
            Some(_) => rows as u64,
            None => rows as u64 * 40,
        }
    }
}

/// Rows and index entries that were read in a database, once everybody else has left it: their
/// figures arrive when they leave.
async fn rows_read(url: &str) -> u64 {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let others = "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid() \
           AND backend_type = 'client backend'";
    for _ in 0..500 {
        let left: i64 = client.query_one(others, &[]).await.unwrap().get(0);
        if left == 0 {
            break;
        }
        // Nobody is told when a session of the database ends.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let read = "SELECT ((SELECT sum(seq_tup_read) FROM pg_stat_user_tables) \
         + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes))::bigint";
    let read: i64 = client.query_one(read, &[]).await.unwrap().get(0);
    drop(client);
    connection.await.unwrap().unwrap();
    u64::try_from(read).unwrap()
}

/// The server that was started in a folder.
fn process_in(folder: &Path) -> String {
    let folder = fs::canonicalize(folder).unwrap();
    let processes = fs::read_dir("/proc").unwrap();
    let process = processes
        .filter_map(Result::ok)
        .find(|process| fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == folder));
    process.unwrap().path().to_str().unwrap().to_owned()
}

/// The same once the process reads nothing for itself any more, as it does when it has just started.
fn bytes_read_at_rest(process: &str) -> u64 {
    let mut before = bytes_read(process);
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let now = bytes_read(process);
        if now == before {
            return now;
        }
        before = now;
    }
}

/// Bytes that a process has read, from the cache of the system or from the disk.
fn bytes_read(process: &str) -> u64 {
    let io = fs::read_to_string(format!("{process}/io")).unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}
