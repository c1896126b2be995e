//! All rows of the tables, as text.

use std::collections::HashMap;

use rusqlite::Connection;

use super::Tables;

/// A row: columns as text, ids without hyphens.
pub type Row = HashMap<&'static str, Option<String>>;

/// The tables that are looked at, with their columns.
const TABLES: [(&str, &[&str]); 10] = [
    (
        "threads",
        &[
            "thread_id",
            "tree_id",
            "parent_thread_id",
            "fork_checkpoint_id",
            "fork_checkpoint_depth",
            "fork_event_number",
            "fork_level",
            "active_branch_id",
            "last_event_number",
            "deleted_at",
        ],
    ),
    (
        "branches",
        &[
            "tree_id",
            "branch_id",
            "thread_id",
            "name",
            "head_checkpoint_id",
            "head_depth",
            "writer_epoch",
        ],
    ),
    (
        "tags",
        &["tree_id", "thread_id", "name", "checkpoint_id", "depth"],
    ),
    (
        "checkpoints",
        &[
            "tree_id",
            "checkpoint_ns",
            "checkpoint_id",
            "parent_checkpoint_id",
            "depth",
            "thread_id",
            "branch_id",
            "root_checkpoint_id",
            "last_node_id",
            "event_number",
            "blob_versions",
            "metadata",
        ],
    ),
    (
        "checkpoint_labels",
        &["tree_id", "thread_id", "label", "checkpoint_id"],
    ),
    (
        "checkpoint_blobs",
        &[
            "tree_id",
            "checkpoint_ns",
            "channel",
            "version",
            "base_version",
        ],
    ),
    (
        "checkpoint_writes",
        &[
            "tree_id",
            "checkpoint_ns",
            "checkpoint_id",
            "branch_id",
            "task_id",
            "idx",
        ],
    ),
    (
        "message_nodes",
        &[
            "tree_id",
            "node_id",
            "parent_node_id",
            "ordinal",
            "kind",
            "message_id",
            "checkpoint_id",
            "depth",
            "thread_id",
            "event_number",
        ],
    ),
    ("events", &["tree_id", "thread_id", "event_number", "kind"]),
    (
        "runs",
        &[
            "tree_id",
            "run_id",
            "thread_id",
            "branch_id",
            "status",
            "epoch",
            "temporary",
        ],
    ),
];

impl Tables {
    /// All rows of all tables.
    pub async fn load(&self) -> Loaded {
        let mut tables = HashMap::new();
        match self {
            Self::File(path) => {
                let db = Connection::open(path).unwrap();
                for (table, columns) in TABLES {
                    tables.insert(table, from_file(&db, table, columns));
                }
            }
            Self::Url(url) => {
                let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
                    .await
                    .unwrap();
                let connection = tokio::spawn(connection);
                for (table, columns) in TABLES {
                    tables.insert(table, from_url(&client, table, columns).await);
                }
                drop(client);
                connection.await.unwrap().unwrap();
            }
        }
        Loaded::new(tables)
    }
}

fn from_file(db: &Connection, table: &str, columns: &[&'static str]) -> Vec<Row> {
    let list: Vec<String> = columns
        .iter()
        .map(|c| {
            format!("CASE typeof({c}) WHEN 'blob' THEN lower(hex({c})) ELSE CAST({c} AS TEXT) END")
        })
        .collect();
    let sql = format!("SELECT {} FROM {table}", list.join(", "));
    let mut statement = db.prepare(&sql).unwrap();
    let rows = statement.query_map([], |row| {
        columns
            .iter()
            .enumerate()
            .map(|(at, column)| Ok((*column, row.get(at)?)))
            .collect()
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

async fn from_url(
    client: &tokio_postgres::Client,
    table: &str,
    columns: &[&'static str],
) -> Vec<Row> {
    let list: Vec<String> = columns.iter().map(|c| format!("{c}::text")).collect();
    let sql = format!("SELECT {} FROM {table}", list.join(", "));
    let rows = client.query(&sql, &[]).await.unwrap();
    let read = |row: &tokio_postgres::Row| -> Row {
        let cell = |(at, column): (usize, &&'static str)| {
            let value: Option<String> = row.get(at);
            let is_id = column.ends_with("_id") && *column != "message_id";
            (
                *column,
                if is_id {
                    value.map(|id| id.replace('-', ""))
                } else {
                    value
                },
            )
        };
        columns.iter().enumerate().map(cell).collect()
    };
    rows.iter().map(read).collect()
}

pub fn text(row: &Row, column: &str) -> String {
    row[column].clone().unwrap_or_default()
}

pub fn number(row: &Row, column: &str) -> i64 {
    text(row, column).parse().unwrap()
}

/// All rows, and root checkpoints by tree and id.
pub struct Loaded {
    tables: HashMap<&'static str, Vec<Row>>,
    roots: HashMap<(String, String), usize>,
}

impl Loaded {
    fn new(tables: HashMap<&'static str, Vec<Row>>) -> Self {
        let roots = tables["checkpoints"]
            .iter()
            .enumerate()
            .filter(|(_, row)| text(row, "checkpoint_ns").is_empty())
            .map(|(at, row)| ((text(row, "tree_id"), text(row, "checkpoint_id")), at))
            .collect();
        Self { tables, roots }
    }

    pub fn of(&self, table: &str) -> &[Row] {
        &self.tables[table]
    }

    pub fn root(&self, tree: &str, id: &str) -> Option<&Row> {
        let at = self.roots.get(&(tree.to_owned(), id.to_owned()))?;
        Some(&self.of("checkpoints")[*at])
    }

    /// Ids from a checkpoint to the first of its path.
    pub fn path(&self, tree: &str, start: &str) -> Vec<String> {
        let mut path = Vec::new();
        let mut at = Some(start.to_owned());
        while let Some(id) = at {
            at = self
                .root(tree, &id)
                .and_then(|row| row["parent_checkpoint_id"].clone());
            assert!(
                path.len() <= self.roots.len(),
                "the path of {start} is a circle"
            );
            path.push(id);
        }
        path
    }

    pub fn living(&self) -> impl Iterator<Item = &Row> {
        self.of("threads")
            .iter()
            .filter(|row| row["deleted_at"].is_none())
    }
}
