//! What must hold in the tables whatever was done: read as they are, past every trait.
//!
//! `check` is called by tests after their operations; the numbers in its complaints are those of
//! the invariants I1 to I12 of the conversation tree.

mod checks;
mod rows;

use std::{collections::BTreeMap, path::PathBuf};

use checks::CHECKS;
use rows::text;

/// Where the tables are.
#[derive(Clone, Debug)]
pub enum Tables {
    /// An SQLite file.
    File(PathBuf),
    /// The URL of a Postgres database.
    Url(String),
}

impl Tables {
    /// Panics with every complaint there is. `pruned` allows for what pruning and rolling back
    /// leave.
    pub async fn check(&self, pruned: bool) {
        let complaints = self.complaints(pruned).await;
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }

    /// What does not hold.
    pub async fn complaints(&self, pruned: bool) -> Vec<String> {
        let loaded = self.load().await;
        let mut all = Vec::new();
        for (number, check) in CHECKS {
            let found = check(&loaded, pruned);
            all.extend(found.into_iter().map(|text| format!("{number}: {text}")));
        }
        all
    }

    /// The path of every living branch and tag, by thread and name: deleting, pruning and rolling
    /// back change none but those they are about (I10).
    pub async fn paths(&self) -> BTreeMap<(String, String), Vec<String>> {
        let loaded = self.load().await;
        let mut paths = BTreeMap::new();
        for (table, column) in [
            ("branches", "head_checkpoint_id"),
            ("tags", "checkpoint_id"),
        ] {
            for row in loaded.of(table) {
                let Some(head) = row[column].as_deref() else {
                    continue;
                };
                let key = (
                    text(row, "thread_id"),
                    format!("{table} {}", text(row, "name")),
                );
                paths.insert(key, loaded.path(&text(row, "tree_id"), head));
            }
        }
        paths
    }
}
