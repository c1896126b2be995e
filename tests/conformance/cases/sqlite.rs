//! The SQLite storage under test.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use backstitch::{
    id::{CheckpointId, RunId, ThreadId, TreeId},
    storage::sqlite::{Options, Store},
};
use rusqlite::Connection;
use uuid::Uuid;

use super::backend::{Backend, Probe, told_by};
use test_support::invariants::Tables;

pub fn open() -> Backend {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        path: folder.path().to_owned(),
        synchronous_off: true,
    };
    let store = Arc::new(Store::open(options).unwrap());
    Backend {
        saver: store.clone(),
        trees: store.clone(),
        runs: store.clone(),
        outbox: store.clone(),
        log: store.clone(),
        assistants: store.clone(),
        crons: store.clone(),
        projections: store,
        probe: Box::new(File(folder.path().join("backstitch.db"))),
        tables: Tables::File(folder.path().join("backstitch.db")),
        _keep: Box::new(folder),
    }
}

struct File(PathBuf);

impl File {
    fn open(&self) -> Connection {
        Connection::open(&self.0).unwrap()
    }
}

#[async_trait]
impl Probe for File {
    async fn rows(&self, tree: TreeId) -> BTreeMap<String, i64> {
        let db = self.open();
        // Whatever tables there are now or later.
        let tables: Vec<String> = db
            .prepare(
                "SELECT m.name FROM sqlite_schema m WHERE m.type = 'table' AND EXISTS \
                 (SELECT 1 FROM pragma_table_info(m.name) c WHERE c.name = 'tree_id')",
            )
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(tables.len() > 8, "tables: {tables:?}");
        let mut counts = BTreeMap::new();
        for table in tables {
            let count = format!("SELECT count(*) FROM {table} WHERE tree_id = ?1");
            let rows: i64 = db
                .query_row(&count, [tree.0.as_bytes()], |row| row.get(0))
                .unwrap();
            if rows > 0 {
                counts.insert(table, rows);
            }
        }
        counts
    }

    async fn branch_names(&self, thread: ThreadId) -> Vec<String> {
        self.open()
            .prepare(
                "SELECT name FROM branches WHERE thread_id = ?1 ORDER BY created_at, branch_id",
            )
            .unwrap()
            .query_map([thread.0.as_bytes()], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap()
    }

    async fn events(&self, thread: ThreadId) -> Vec<(i64, String)> {
        self.open()
            .prepare(
                "SELECT event_number, kind FROM events WHERE thread_id = ?1 \
                 ORDER BY event_number",
            )
            .unwrap()
            .query_map([thread.0.as_bytes()], |row| {
                Ok(told_by(row.get(0)?, row.get(1)?))
            })
            .unwrap()
            .flat_map(Result::unwrap)
            .collect()
    }

    async fn nodes(&self, tree: TreeId) -> Vec<(String, Option<i64>, i32, Option<CheckpointId>)> {
        self.open()
            .prepare(
                "SELECT message_id, event_number, depth, settled_checkpoint_id \
                 FROM message_nodes WHERE tree_id = ?1 ORDER BY message_id",
            )
            .unwrap()
            .query_map([tree.0.as_bytes()], |row| {
                let settled: Option<[u8; 16]> = row.get(3)?;
                Ok((
                    row.get(0)?,
                    row.get(1)?,
                    row.get(2)?,
                    settled.map(|bytes| CheckpointId(Uuid::from_bytes(bytes))),
                ))
            })
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap()
    }

    async fn spoil(&self, run: RunId) {
        let text = format!(
            "CREATE TRIGGER spoiled BEFORE UPDATE ON runs WHEN OLD.run_id = x'{}'
             BEGIN SELECT RAISE(ABORT, 'this row is spoiled'); END",
            run.0.simple()
        );
        self.open().execute_batch(&text).unwrap();
    }
}
