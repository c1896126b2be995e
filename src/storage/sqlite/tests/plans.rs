//! How SQLite answers the statements of this room: on a database without rows, and on one where most trees are small,
//! before and after somebody gathered statistics with `ANALYZE`.

use std::collections::HashMap;

use rusqlite::Connection;

use super::{
    super::{
        Store, checkpoints,
        connection::{DATABASE, configure},
        outbox, runs, threads, tree,
    },
    options,
};
use crate::storage::tests::source::{self, Found};

/// Tables with many rows for one tree.
const LARGE: [&str; 10] = [
    "branches",
    "checkpoint_blobs",
    "checkpoint_labels",
    "checkpoint_writes",
    "checkpoints",
    "event_facts",
    "events",
    "message_nodes",
    "runs",
    "tags",
];
/// Indexes that hold runs which wait or are executed, and no others.
const OPEN_RUNS: [&str; 5] = [
    "one_running_per_branch",
    "runs_open",
    "runs_ready",
    "runs_waiting",
    "runs_behind",
];

pub(super) struct Plans {
    pub(super) db: Connection,
    tables: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Plans {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        drop(Store::open(options(folder.path())).unwrap());
        let db = Connection::open(folder.path().join(DATABASE)).unwrap();
        configure(&db, true).unwrap();
        let tables: Vec<String> = db
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(!tables.iter().any(|table| table.starts_with("sqlite_stat")));
        db.execute_batch(threads::copy::TABLES).unwrap();
        Self {
            db,
            tables,
            _folder: folder,
        }
    }

    /// Adds rows of which most trees have few and one has many.
    pub(super) fn fill(&self) {
        self.db.execute_batch(include_str!("trees.sql")).unwrap();
    }

    /// Gathers statistics, as an operator may do.
    fn analyze(&self) {
        self.db.execute_batch("ANALYZE").unwrap();
        let counted = "SELECT count(*) FROM sqlite_stat1 WHERE tbl IN ('checkpoints', 'runs')";
        let counted: i64 = self.db.query_row(counted, [], |row| row.get(0)).unwrap();
        assert!(counted > 5, "{counted}");
    }

    /// Lets a check look at the plans of a new database, of one with rows and of one with statistics, too.
    fn of_each(mut check: impl FnMut(&Self, &str)) {
        let plans = Self::new();
        check(&plans, "without rows");
        plans.fill();
        check(&plans, "without statistics");
        plans.analyze();
        check(&plans, "with statistics");
    }

    pub(super) fn steps(&self, sql: &str) -> Vec<String> {
        let mut statement = self
            .db
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        // Nothing is bound: a plan needs no values.
        let mut rows = statement.raw_query();
        let mut steps = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            // The head of a trigger has no text.
            steps.extend(row.get::<_, Option<String>>(3).unwrap());
        }
        steps
    }

    /// The tables a statement reads, by the names its plan has for them.
    fn named<'a>(&self, sql: &'a str) -> HashMap<&'a str, &'a str> {
        let words: Vec<&str> = sql
            .split_inclusive(['(', ')', ','])
            .flat_map(str::split_whitespace)
            .collect();
        let mut named = HashMap::new();
        for (at, word) in words.iter().enumerate() {
            let table = word.trim_end_matches([',', ')']);
            if !self.tables.iter().any(|known| known == table) {
                continue;
            }
            let alias = words
                .get(at + 1)
                .map(|next| next.trim_end_matches([',', ')']))
                .filter(|next| table == *word && is_alias(next));
            named.insert(alias.unwrap_or(table), table);
        }
        if sql.contains("all_checkpoint_writes") {
            for table in ["checkpoint_writes", "checkpoints"] {
                named.entry(table).or_insert(table);
            }
        }
        named
    }

    /// The steps that read more than the statement needs, with the names of what they read.
    fn walks(&self, sql: &str) -> Vec<(String, String)> {
        let named = self.named(sql);
        let mut walks = Vec::new();
        for step in self.steps(sql) {
            let mut words = step.trim_start_matches("BLOOM FILTER ").split(' ');
            let (how, name) = (words.next().unwrap(), words.next().unwrap_or(""));
            // Others are made by the statement, or by a view that it reads as a whole.
            let Some(table) = named.get(name) else {
                continue;
            };
            let walks_it = match how {
                "SCAN" => !OPEN_RUNS.iter().any(|index| step.ends_with(index)),
                "SEARCH" => {
                    let reads_open_runs = OPEN_RUNS.iter().any(|index| {
                        step.contains(&format!(" INDEX {index} ("))
                            || step.contains(&format!(" COVERING INDEX {index} ("))
                    });
                    let reads_all = step.contains(" AUTOMATIC ") || step.contains("(ANY(");
                    reads_all
                        || (LARGE.contains(table) && is_by_tree_alone(&step) && !reads_open_runs)
                }
                // A Bloom filter is made of all rows.
                "ON" => true,
                _ => false,
            };
            if walks_it {
                let name = name.to_owned();
                walks.push((name, step));
            }
        }
        walks
    }
}

fn is_alias(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// Whether a search goes over all rows, or all root checkpoints, of a tree, or a range of them.
fn is_by_tree_alone(step: &str) -> bool {
    let (_, by) = step.rsplit_once('(').unwrap();
    let (by, _) = by.split_once(')').unwrap();
    by.split(" AND ")
        .all(|term| matches!(term, "tree_id=?" | "checkpoint_ns=?") || !term.ends_with("=?"))
}

/// What walks more than its key on purpose: the file, the statement, with `*` for any text, the tables by the names that it
/// has for them, why.
const ON_PURPOSE: &[(&str, &str, &[&str], &str)] = &[
    (
        "assistants.rs",
        "SELECT *WHERE ?1 IS NULL ORDER BY*",
        &["assistants"],
        "without keys all assistants are everybody's",
    ),
    (
        "checkpoints/load.rs",
        "SELECT 1 FROM checkpoints WHERE tree_id = ?1 AND checkpoint_ns = ?2",
        &["checkpoints"],
        "ends at the first row",
    ),
    (
        "crons/lists.rs",
        "SELECT *WHERE ?1 IS NULL AND ?2 IS NULL*",
        &["crons"],
        "without keys all crons are everybody's",
    ),
    (
        "projections.rs",
        "DELETE FROM projection_offsets WHERE projection = ?1",
        &["projection_offsets"],
        "a derived table is built anew",
    ),
    (
        "runs/recover.rs",
        "DELETE FROM workers WHERE worker_id <> ?1*",
        &["workers"],
        "has a row for each process",
    ),
    (
        "threads/blobs.rs",
        "SELECT checkpoint_ns, blob_versions FROM checkpoints WHERE tree_id = ?1",
        &["checkpoints"],
        "a pruned tree is swept as a whole",
    ),
    (
        "threads/blobs.rs",
        "SELECT w.checkpoint_ns, w.type, w.writes FROM all_checkpoint_writes w*",
        &["checkpoints", "checkpoint_writes"],
        "a pruned tree is swept as a whole",
    ),
    (
        "threads/blobs.rs",
        "SELECT checkpoint_ns, channel, version, base_version FROM checkpoint_blobs WHERE tree_id = ?1",
        &["checkpoint_blobs"],
        "a pruned tree is swept as a whole",
    ),
    (
        "migrate.rs",
        "SELECT version, name, checksum FROM refinery_schema_history ORDER BY version",
        &["refinery_schema_history"],
        "a row per migration, once at the start",
    ),
    (
        "threads/copy.rs",
        "SELECT checkpoint_ns, type, writes FROM all_checkpoint_writes WHERE tree_id = ?1 AND idx = 0",
        &["checkpoint_writes", "checkpoints"],
        "goes over the copy alone",
    ),
    (
        "threads/copy.rs",
        "INSERT INTO checkpoint_writes *FROM checkpoints c*",
        &["c"],
        "goes over the copy alone",
    ),
    (
        "threads/copy.rs",
        "INSERT INTO checkpoint_blobs *FROM checkpoints c*",
        &["c"],
        "goes over the copy alone",
    ),
    (
        "threads/delete.rs",
        "SELECT 1 FROM events WHERE tree_id = ?1",
        &["events"],
        "ends at the first row",
    ),
    (
        "threads/delete.rs",
        "DELETE FROM * WHERE tree_id = ?1",
        &[
            "branches",
            "checkpoint_blobs",
            "checkpoint_writes",
            "checkpoints",
            "event_facts",
            "events",
            "message_nodes",
            "tags",
        ],
        "a deleted tree goes as a whole",
    ),
    (
        "threads/delete.rs",
        "UPDATE purge_switch SET open = *",
        &["purge_switch"],
        "has one row",
    ),
    (
        "threads/prune.rs",
        "WITH kept (id) AS *",
        &["w"],
        "a resume value retains a checkpoint, whatever branch it is stored for",
    ),
    (
        "threads/search.rs",
        "WITH act AS *ORDER BY CASE ?4 WHEN 'thread_id' *",
        &["t"],
        "an order that no index has",
    ),
];

/// Whether this is a statement of [`ON_PURPOSE`].
fn fits(pattern: &str, statement: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = statement.strip_prefix(first) else {
        return false;
    };
    let mut last = first;
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else {
            return false;
        };
        (rest, last) = (behind, part);
    }
    rest.is_empty() || last.is_empty()
}

#[test]
fn no_statement_walks_a_table_or_a_tree_but_on_purpose() {
    let statements = source::statements("src/storage/sqlite");
    assert!(statements.len() > 200, "{}", statements.len());
    let exceptions = ON_PURPOSE
        .iter()
        .flat_map(|(place, part, tables, _)| tables.iter().map(|table| (*place, *part, *table)));
    let exceptions: Vec<_> = exceptions.collect();
    let mut unneeded = exceptions.clone();
    let mut walking = Vec::new();
    Plans::of_each(|plans, database| {
        for Found { file, text } in &statements {
            for (name, step) in plans.walks(text) {
                let is_known = |(place, part, table): &&(&str, &str, &str)| {
                    *place == file && *table == name && fits(part, text)
                };
                match exceptions.iter().find(is_known) {
                    Some(known) => unneeded.retain(|exception| exception != known),
                    None => walking.push(format!("{database}: {file}: {step}\n    {text}")),
                }
            }
        }
    });
    assert!(
        walking.is_empty(),
        "{}:\n{}",
        walking.len(),
        walking.join("\n")
    );
    assert!(unneeded.is_empty(), "these walk nothing: {unneeded:#?}");
}

#[test]
fn an_exception_is_for_its_statement_and_for_no_longer_one() {
    let whole = "DELETE FROM * WHERE tree_id = ?1";
    assert!(fits(whole, "DELETE FROM events WHERE tree_id = ?1"));
    let longer = "DELETE FROM events WHERE tree_id = ?1 AND kind = ?2";
    assert!(!fits(whole, longer));
    assert!(fits("DELETE FROM events *", longer));
    assert!(!fits("FROM events *", longer));
}

#[test]
fn what_is_asked_often_comes_in_the_order_of_an_index() {
    let often = [
        checkpoints::LIST_OF_LABEL,
        checkpoints::LIST_OF_NAMESPACE,
        checkpoints::NEWEST,
        runs::BEHIND,
        runs::PRINCIPAL,
        runs::READY,
        runs::RUNS,
        outbox::DUE,
        outbox::HOST,
        outbox::OF_HOST,
        tree::RELATIVES,
        tree::RELATIVE_SIZES,
        tree::FORKS,
        tree::OWN_POINTS,
    ];
    Plans::of_each(|plans, database| {
        for sql in often {
            let steps = plans.steps(sql);
            let sorts = steps.iter().any(|step| step.contains("TEMP B-TREE"));
            assert!(!sorts, "{database}: {sql}: {steps:#?}");
        }
    });
}

#[test]
fn a_statement_that_walks_a_tree_is_seen() {
    let plans = Plans::new();
    for sql in [
        "SELECT m.role FROM message_nodes m WHERE m.tree_id = ?1 AND m.message_id = ?2",
        "DELETE FROM checkpoints WHERE tree_id = ?1 AND run_id = ?2",
        "DELETE FROM event_facts WHERE tree_id = ?1 AND facts = ?2",
        "SELECT DISTINCT root_checkpoint_id, branch_id FROM checkpoints WHERE tree_id = ?1 \
         AND thread_id = ?2 AND checkpoint_ns <> '' AND root_checkpoint_id IS NOT NULL",
        "SELECT h.role, b.name FROM branches b LEFT JOIN message_nodes h ON h.tree_id = b.tree_id \
         AND h.thread_id = b.thread_id WHERE b.tree_id = ?1 AND b.branch_id = ?2",
        "SELECT r.kwargs FROM runs r WHERE r.status = 'running' ORDER BY r.seq",
        "SELECT (SELECT max(s.updated_at) FROM branches s \
          WHERE s.tree_id = t.tree_id AND s.thread_id = t.thread_id) FROM threads t \
         WHERE t.thread_id = ?1",
    ] {
        assert_eq!(plans.walks(sql).len(), 1, "{sql}: {:?}", plans.steps(sql));
    }
}

#[test]
fn a_statement_for_which_an_index_is_made_of_a_table_is_seen() {
    let plans = Plans::new();
    let sql = "SELECT h.thread_id FROM threads t LEFT JOIN thread_heads h ON h.runs = t.created_at \
               WHERE t.thread_id > ?1";
    let walks = plans.walks(sql);
    let made = |word: &str| walks.iter().any(|(_, step)| step.contains(word));
    assert!(made("AUTOMATIC") && made("BLOOM FILTER"), "{walks:?}");
}

#[test]
fn a_statement_that_walks_because_of_statistics_is_seen() {
    let plans = Plans::new();
    plans.fill();
    let walks_because_of_statistics = [
        // The tree's rows may come first, since most trees have few.
        "WITH RECURSIVE up (id, parent) AS ( \
           SELECT node_id, parent_node_id FROM message_nodes WHERE tree_id = ?1 AND node_id = ?2 \
           UNION ALL SELECT m.node_id, m.parent_node_id FROM up u JOIN message_nodes m \
             ON m.tree_id = ?1 AND m.node_id = u.parent) SELECT id FROM up",
        // There are few owners to go through.
        "SELECT t.thread_id FROM threads t WHERE t.updated_at = ?1 AND t.owner <> '' ORDER BY t.owner",
    ];
    for sql in walks_because_of_statistics {
        assert!(plans.walks(sql).is_empty(), "{sql}: {:?}", plans.steps(sql));
    }
    plans.analyze();
    for sql in walks_because_of_statistics {
        assert_eq!(plans.walks(sql).len(), 1, "{sql}: {:?}", plans.steps(sql));
    }
}
