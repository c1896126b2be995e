//! Both databases have the same tables and columns, but for a short list of reasoned differences.
use std::collections::BTreeSet;

use backstitch::storage::sqlite::{Options, Store};
use rusqlite::Connection;
use test_support::{postgres::database, tables::connect};

/// What only SQLite has: its triggers look at a row where those of Postgres look at a setting of
/// the transaction, and its probe of the disk writes one row anew where that of Postgres fills and
/// empties a table.
const ONLY_SQLITE: [&str; 3] = ["disk_probe.one", "purge_switch.one", "purge_switch.open"];

/// What only Postgres has: one process uses a SQLite database, so that no worker's lease lapses
/// there while another one looks on, and none cancels the runs of another one or waits for them.
const ONLY_POSTGRES: [&str; 5] = [
    "ended_runs.result",
    "runs.awaited",
    "runs.cancel",
    "workers.lease",
    "workers.lease_until",
];

#[tokio::test]
async fn both_databases_have_the_same_columns() {
    let (sqlite, postgres) = (of_sqlite(), of_postgres().await);
    assert!(sqlite.contains("runs.opened_branch"), "{sqlite:?}");
    let only_sqlite: Vec<_> = sqlite.difference(&postgres).collect();
    assert_eq!(only_sqlite, ONLY_SQLITE);
    let only_postgres: Vec<_> = postgres.difference(&sqlite).collect();
    assert_eq!(only_postgres, ONLY_POSTGRES);
}

fn of_sqlite() -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        path: folder.path().to_owned(),
        synchronous_off: true,
    };
    drop(Store::open(options).unwrap());
    let db = Connection::open(folder.path().join("backstitch.db")).unwrap();
    db.prepare(
        "SELECT t.name || '.' || c.name FROM sqlite_schema t, pragma_table_info(t.name) c \
         WHERE t.type IN ('table', 'view') AND t.name NOT LIKE 'sqlite_%'",
    )
    .unwrap()
    .query_map([], |row| row.get(0))
    .unwrap()
    .collect::<Result<_, _>>()
    .unwrap()
}

async fn of_postgres() -> BTreeSet<String> {
    let database = database().await;
    let client = connect(&database.url).await;
    let rows = client
        .query(
            "SELECT table_name || '.' || column_name FROM information_schema.columns \
             WHERE table_schema = 'public'",
            &[],
        )
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}
