//! How many bytes the rows of a storage have, without indexes.

use std::{path::Path, time::Duration};

use crate::{Place, Storage};

/// Bytes of rows.
pub struct Sizes {
    /// Checkpoints, channel values and results.
    pub state: u64,
    /// All tables.
    pub whole: u64,
}

const STATE: [&str; 3] = ["checkpoints", "checkpoint_blobs", "checkpoint_writes"];

/// Measures them once the derived tables are made.
pub async fn of(storage: &Storage) -> Sizes {
    tokio::time::sleep(Duration::from_secs(2)).await;
    match &storage.place {
        Place::Sqlite(folder) => sqlite(folder.path()),
        Place::Postgres(scratch) => {
            let sum = |tables: &str| {
                let each = tables.split(' ').map(|table| {
                    format!("(SELECT COALESCE(sum(pg_column_size(t.*)), 0) FROM \"{table}\" t)")
                });
                let each: Vec<String> = each.collect();
                scratch.number(&format!("SELECT {}", each.join(" + "))) as u64
            };
            let all = scratch.text(
                "SELECT string_agg(tablename, ' ') FROM pg_tables WHERE schemaname = 'public'",
            );
            Sizes {
                state: sum(&STATE.join(" ")),
                whole: sum(&all),
            }
        }
    }
}

/// The lengths of the values of all columns: a number counts as eight bytes.
fn sqlite(folder: &Path) -> Sizes {
    let file = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.extension().is_some_and(|end| end == "db") && !path.ends_with("ceiling.db")
        })
        .unwrap();
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let db = rusqlite::Connection::open_with_flags(file, flags).unwrap();
    let list = |query: &str| -> Vec<String> {
        let mut statement = db.prepare(query).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    };
    let mut sizes = Sizes { state: 0, whole: 0 };
    for table in list("SELECT name FROM sqlite_schema WHERE type = 'table'") {
        let columns = list(&format!("SELECT name FROM pragma_table_info('{table}')"));
        let lengths = columns.iter().map(|column| {
            format!(
                "CASE typeof(\"{column}\") WHEN 'null' THEN 0 WHEN 'integer' THEN 8 WHEN 'real' THEN 8 \
                 ELSE octet_length(\"{column}\") END"
            )
        });
        let lengths: Vec<String> = lengths.collect();
        let sum = format!(
            "SELECT COALESCE(sum({}), 0) FROM \"{table}\"",
            lengths.join(" + ")
        );
        let bytes: i64 = db.query_row(&sum, [], |row| row.get(0)).unwrap();
        sizes.whole += bytes.unsigned_abs();
        if STATE.contains(&&*table) {
            sizes.state += bytes.unsigned_abs();
        }
    }
    sizes
}
