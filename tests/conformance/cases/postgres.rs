//! The Postgres storage under test.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use backstitch::{
    id::{CheckpointId, RunId, ThreadId, TreeId},
    storage::postgres::{Options, Store},
};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use super::backend::{Backend, Probe, told_by};
use test_support::invariants::Tables;

pub async fn open() -> Backend {
    let database = test_support::postgres::database().await;
    let store = Arc::new(Store::connect(Options::new(&database.url)).await.unwrap());
    let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    Backend {
        saver: store.clone(),
        trees: store.clone(),
        runs: store.clone(),
        outbox: store.clone(),
        log: store.clone(),
        assistants: store.clone(),
        crons: store.clone(),
        projections: store,
        probe: Box::new(Session(client)),
        tables: Tables::Url(database.url.clone()),
        _keep: Box::new(database),
    }
}

struct Session(Client);

#[async_trait]
impl Probe for Session {
    async fn rows(&self, tree: TreeId) -> BTreeMap<String, i64> {
        // Whatever tables there are now or later.
        let tables = self
            .0
            .query(
                "SELECT c.table_name::text FROM information_schema.columns c \
                   JOIN information_schema.tables t USING (table_schema, table_name) \
                  WHERE c.table_schema = 'public' AND c.column_name = 'tree_id' \
                    AND t.table_type = 'BASE TABLE'",
                &[],
            )
            .await
            .unwrap();
        assert!(tables.len() > 8, "{} tables", tables.len());
        let mut counts = BTreeMap::new();
        for table in tables {
            let table: String = table.get(0);
            let count = format!("SELECT count(*) FROM {table} WHERE tree_id = $1");
            let rows: i64 = self.0.query_one(&count, &[&tree.0]).await.unwrap().get(0);
            if rows > 0 {
                counts.insert(table, rows);
            }
        }
        counts
    }

    async fn branch_names(&self, thread: ThreadId) -> Vec<String> {
        let rows = self
            .0
            .query(
                "SELECT name FROM branches WHERE thread_id = $1 ORDER BY created_at, branch_id",
                &[&thread.0],
            )
            .await
            .unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn events(&self, thread: ThreadId) -> Vec<(i64, String)> {
        let rows = self
            .0
            .query(
                "SELECT event_number, kind FROM events WHERE thread_id = $1 \
                 ORDER BY event_number",
                &[&thread.0],
            )
            .await
            .unwrap();
        rows.iter()
            .flat_map(|row| told_by(row.get(0), row.get(1)))
            .collect()
    }

    async fn nodes(&self, tree: TreeId) -> Vec<(String, Option<i64>, i32, Option<CheckpointId>)> {
        let rows = self
            .0
            .query(
                "SELECT message_id, event_number, depth, settled_checkpoint_id \
                 FROM message_nodes WHERE tree_id = $1 ORDER BY message_id",
                &[&tree.0],
            )
            .await
            .unwrap();
        rows.iter()
            .map(|row| {
                let settled: Option<Uuid> = row.get(3);
                (
                    row.get(0),
                    row.get(1),
                    row.get(2),
                    settled.map(CheckpointId),
                )
            })
            .collect()
    }

    async fn spoil(&self, run: RunId) {
        let text = format!(
            "CREATE FUNCTION spoiled() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'this row is spoiled'; END $$;
             CREATE TRIGGER spoiled BEFORE UPDATE ON runs FOR EACH ROW
             WHEN (OLD.run_id = '{run}') EXECUTE FUNCTION spoiled()"
        );
        self.0.batch_execute(&text).await.unwrap();
    }
}
