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

/// The payload of the pages of each table.
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
    let query = "SELECT d.name, sum(d.payload) FROM dbstat d JOIN sqlite_schema s ON s.name = d.name \
                 WHERE s.type = 'table' GROUP BY d.name";
    let mut statement = db.prepare(query).unwrap();
    let tables = statement
        .query_map([], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
        })
        .unwrap();
    let mut sizes = Sizes { state: 0, whole: 0 };
    for (table, bytes) in tables.map(Result::unwrap) {
        sizes.whole += bytes.unsigned_abs();
        if STATE.contains(&&*table) {
            sizes.state += bytes.unsigned_abs();
        }
    }
    sizes
}
