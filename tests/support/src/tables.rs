//! Looks into the tables of a place, past the server.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Client;

use crate::place::Place;
use crate::server::Server;
use crate::talk::until;

/// Columns as text; ids with hyphens.
pub type Row = Vec<Option<String>>;

/// The SQLite file of a server.
pub fn file(server: &Server) -> std::path::PathBuf {
    server.folder().join("data/backstitch.db")
}

/// The rows that a statement gives; on Postgres it gives texts.
pub fn rows(place: &Place, server: &Server, sql: &str) -> Vec<Row> {
    match place.url() {
        Some(url) => rows_at(url, sql),
        None => {
            let db = rusqlite::Connection::open(file(server)).unwrap();
            let mut statement = db.prepare(sql).unwrap();
            let columns = statement.column_count();
            let rows = statement.query_map([], |row| {
                let cell = |at| row.get_ref(at).map(cell);
                (0..columns).map(cell).collect()
            });
            rows.unwrap().collect::<Result<_, _>>().unwrap()
        }
    }
}

/// The rows of texts that a statement gives in the Postgres database with this URL.
pub fn rows_at(url: &str, sql: &str) -> Vec<Row> {
    let rows = observed(url, async |client| client.query(sql, &[]).await).unwrap();
    let row = |row: &tokio_postgres::Row| (0..row.len()).map(|at| row.get(at)).collect();
    rows.iter().map(row).collect()
}

/// The names of a table's columns.
pub fn columns(place: &Place, server: &Server, table: &str) -> Vec<String> {
    let names = if place.is_postgres() {
        format!(
            "SELECT attname::text FROM pg_attribute
              WHERE attrelid = '{table}'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''"
        )
    } else {
        format!("SELECT name FROM pragma_table_info('{table}')")
    };
    let names = rows(place, server, &names);
    names.into_iter().flatten().flatten().collect()
}

/// Waits until the tables that are derived from events know all of these.
pub fn settled(place: &Place, server: &Server) {
    let behind = "SELECT CAST(t.last_event_number AS text) FROM threads t \
         WHERE 1 > (SELECT count(*) FROM projection_offsets p \
             WHERE p.thread_id = t.thread_id AND p.last_event_number = t.last_event_number)";
    until("the derived tables know every event", || {
        rows(place, server, behind).is_empty()
    });
}

/// What every table has, by its name.
pub fn contents(place: &Place, server: &Server) -> BTreeMap<String, Vec<Row>> {
    let names = if place.is_postgres() {
        "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()"
    } else {
        "SELECT name FROM sqlite_master WHERE type = 'table'"
    };
    let names = rows(place, server, names).into_iter().flatten().flatten();
    let table = |name: String| {
        let sql = if place.is_postgres() {
            format!("SELECT t::text FROM \"{name}\" t ORDER BY 1")
        } else {
            let columns = columns(place, server, &name).into_iter();
            let columns: Vec<_> = columns.map(|name| format!("quote(\"{name}\")")).collect();
            format!("SELECT {} FROM \"{name}\" ORDER BY 1", columns.join(" || "))
        };
        let rows = rows(place, server, &sql);
        (name, rows)
    };
    names.map(table).collect()
}

/// Executes a statement: how many rows it changed, or what the database says against it.
pub fn execute(place: &Place, server: &Server, sql: &str) -> Result<u64, String> {
    match place.url() {
        Some(url) => {
            let done = observed(url, async |client| client.execute(sql, &[]).await);
            done.map_err(|error| error.as_db_error().unwrap().message().to_owned())
        }
        None => {
            let db = rusqlite::Connection::open(file(server)).unwrap();
            let done = db.execute(sql, []);
            done.map(|rows| rows as u64)
                .map_err(|error| error.to_string())
        }
    }
}

/// A connection to a database that stays open.
struct Observer {
    url: String,
    client: Client,
    runtime: Runtime,
}

impl Observer {
    fn of(url: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(connect(url));
        Self {
            url: url.to_owned(),
            client,
            runtime,
        }
    }
}

thread_local! {
    /// The connection of whoever looks into one database again and again: to open one takes the database many times as
    /// long as to answer.
    static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
}

/// Asks a database over the connection of this thread. One that a restart of the database has closed is opened again.
fn observed<T>(
    url: &str,
    ask: impl AsyncFn(&Client) -> Result<T, tokio_postgres::Error>,
) -> Result<T, tokio_postgres::Error> {
    OBSERVER.with_borrow_mut(|last| {
        let known = last.take().filter(|one| one.url == url);
        let is_new = known.is_none();
        let observer = known.unwrap_or_else(|| Observer::of(url));
        let mut answer = observer.runtime.block_on(ask(&observer.client));
        let observer = if observer.client.is_closed() && !is_new {
            let next = Observer::of(url);
            answer = next.runtime.block_on(ask(&next.client));
            next
        } else {
            observer
        };
        *last = Some(observer);
        answer
    })
}

/// A client of a Postgres database.
pub async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    client
}

fn cell(value: rusqlite::types::ValueRef<'_>) -> Option<String> {
    use rusqlite::types::ValueRef::{Blob, Integer, Null, Real, Text};
    match value {
        Null => None,
        Integer(number) => Some(number.to_string()),
        Real(number) => Some(number.to_string()),
        Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        Blob(bytes) => Some(uuid::Uuid::from_slice(bytes).unwrap().to_string()),
    }
}
