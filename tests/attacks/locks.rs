//! What requests of a server wait for: locks on tables of Postgres.

use test_support::place::Place;
use test_support::tables::{connect, rows_at};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Client;

/// Sessions whose statement waits for a lock, in this database and for a client.
const WAITING: &str = "
SELECT count(DISTINCT l.pid)::text FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE NOT l.granted AND a.datname = current_database() AND a.backend_type = 'client backend'";

const STATEMENTS: &str = "
SELECT a.query FROM pg_stat_activity a WHERE a.datname = current_database() AND a.backend_type = 'client backend'
   AND EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid AND NOT l.granted)";

/// A transaction that has locked something, until it is dropped.
pub struct Locked {
    client: Option<Client>,
    runtime: Runtime,
}

impl Locked {
    /// Commits it.
    pub fn commit(mut self) {
        let client = self.client.take().unwrap();
        self.runtime
            .block_on(client.batch_execute("COMMIT"))
            .unwrap();
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let client = self.client.take();
        self.runtime.block_on(async {
            if let Some(client) = client {
                client.batch_execute("ROLLBACK").await.ok();
            }
        });
    }
}

/// Begins a transaction with a statement that locks something.
pub fn locked(url: &str, statement: &str) -> Locked {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let client = runtime.block_on(async {
        let client = connect(url).await;
        let begin = format!("BEGIN; {statement}");
        client.batch_execute(&begin).await.unwrap();
        client
    });
    Locked {
        client: Some(client),
        runtime,
    }
}

/// The URL of a place, for a server whose statements wait for locks as long as it takes.
pub fn patient(place: &Place) -> String {
    let url = place.url().unwrap();
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}options=-c%20lock_timeout%3D0%20-c%20statement_timeout%3D0")
}

/// The statements that wait for locks.
pub fn waiting_statements(place: &Place) -> Vec<String> {
    let rows = rows_at(place.url().unwrap(), STATEMENTS);
    rows.into_iter().flatten().flatten().collect()
}

/// How many statements wait for locks.
pub fn waiting(place: &Place) -> usize {
    let rows = rows_at(place.url().unwrap(), WAITING);
    rows[0][0].as_ref().unwrap().parse().unwrap()
}
