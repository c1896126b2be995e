//! The generic plans of all statements, on a database without rows and on one where most trees are
//! small: every index on a table of conversations is entered by what is unique.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value as Json;
use test_support::postgres::{Database, empty_database};
use tokio_postgres::{Client, NoTls};

use super::super::{
    connection::{KEYED, PATIENT, SESSION, configure},
    migrate, statements,
};
use crate::storage::tests::{Statement, source};

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

/// Tables that no statement may read as a whole.
const MANY: [&str; 5] = [
    "outbox",
    "projection_offsets",
    "thread_heads",
    "threads",
    "trees",
];

/// The table of items, which are found by namespace.
const ITEMS: &str = "store_items";

/// What walks more than its key on purpose: the statements, each with the table or the index that it walks, and why.
const ON_PURPOSE: &[(&[&str], &str, &str)] = &[
    (
        &["threads::blobs::DROP_BLOBS"],
        "checkpoint_blobs_pkey",
        "a pruned tree is swept as a whole",
    ),
    (
        &["threads::delete::WIPE"],
        "checkpoint_blobs_pkey",
        "a deleted tree goes as a whole",
    ),
    (
        &["runs::claim::READY"],
        "runs_ready",
        "the first principal of those whose turn has come",
    ),
    (
        &["runs::claim::BEHIND"],
        "runs_behind",
        "the first thread of those with runs behind others",
    ),
    (
        &["runs::open_runs::EVERYWHERE"],
        "runs_open",
        "all open runs are wanted",
    ),
    (
        &["runs::open_runs::STATES"],
        "runs_open",
        "all open runs are counted, up to a limit",
    ),
    (
        &["runs::recover::LOST", "tree::members::EXECUTED_FOR"],
        "one_running_per_branch",
        "holds what is executed",
    ),
    (
        &["projections::DELETE_ALL[0]"],
        "thread_heads",
        "a derived table is built anew",
    ),
    (
        &["items::SWEEP"],
        "store_items_expiry",
        "what has expired goes as a whole",
    ),
    (
        &[
            "threads::search::RECENT_LAST",
            "threads::search::RECENT_FIRST",
            "threads::search::RECENT_LAST_OF",
            "threads::search::RECENT_FIRST_OF",
            "threads::search::CREATED_LAST",
            "threads::search::CREATED_FIRST",
            "threads::search::CREATED_LAST_OF",
            "threads::search::CREATED_FIRST_OF",
            "threads::search::BY_ID",
            "threads::search::BY_ID_BACKWARDS",
            "threads::search::BY_ID_OF",
            "threads::search::BY_ID_BACKWARDS_OF",
            "threads::search::SORTED[0]",
            "threads::search::SORTED[1]",
            "threads::search::SORTED[2]",
            "threads::search::SORTED[3]",
            "threads::search::SORTED[4]",
            "threads::search::SORTED[5]",
            "threads::search::COUNT[0]",
            "threads::search::COUNT[1]",
            "threads::search::COUNT[2]",
        ],
        "one_running_per_branch",
        "holds what is executed",
    ),
    (
        &["threads::narrow::OF_STATUS"],
        "runs_open",
        "all open runs are wanted, up to a limit",
    ),
    (
        &["threads::narrow::OF_STATUS"],
        "branches_outcome",
        "all of an outcome are wanted, up to a limit",
    ),
    (
        &["threads::search::SORTED[0]", "threads::search::SORTED[1]"],
        "threads",
        "an order that no index has",
    ),
    (&["threads::search::COUNT[0]"], "threads", "all are counted"),
];

pub(super) async fn connect(url: &str, session: &str) -> Client {
    let config = configure(url, session).unwrap();
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The steps of a generic plan that enter a table otherwise than by its key.
fn walks(plan: &Json, tables: &HashMap<String, String>, found: &mut Vec<(String, String)>) {
    let text = |name: &str| plan.get(name).and_then(Json::as_str).unwrap_or_default();
    let (kind, table, index) = (text("Node Type"), text("Relation Name"), text("Index Name"));
    let condition = text("Index Cond");
    // What a bitmap is made of names no table, and the heap it is for no index.
    let table = match kind {
        "Bitmap Index Scan" => tables.get(index).map_or("", String::as_str),
        _ => table,
    };
    let walk = match kind {
        "Seq Scan" => LARGE.contains(&table) || MANY.contains(&table) || table == ITEMS,
        "Index Scan" | "Index Only Scan" | "Bitmap Index Scan" => {
            (LARGE.contains(&table) && !is_by_key(condition))
                || (MANY.contains(&table) && condition.is_empty())
                || (table == ITEMS && !condition.contains("namespace"))
        }
        _ => false,
    };
    if walk {
        let by = if kind == "Seq Scan" { table } else { index };
        found.push((
            by.to_owned(),
            format!("{kind} {table} {index}: {condition}"),
        ));
    }
    for child in plan
        .get("Plans")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
    {
        walks(child, tables, found);
    }
}

/// Whether a condition names a row, or the rows of one thread, branch, checkpoint or message.
fn is_by_key(condition: &str) -> bool {
    const KEYS: [&str; 11] = [
        "branch_id",
        "checkpoint_id",
        "message_id",
        "node_id",
        "parent_node_id",
        "root_checkpoint_id",
        "run_id",
        "thread_id",
        "version",
        "worker_id",
        "channel",
    ];
    condition
        .trim_matches(['(', ')'])
        .split(") AND (")
        .any(|term| {
            let column = term.split_whitespace().next().unwrap_or_default();
            let binds = term.contains(" = ") || term.ends_with(" IS NULL");
            binds && KEYS.contains(&column.trim_start_matches('('))
        })
}

/// The generic plan under the settings of a pool; `None` of what has no plan.
pub(super) async fn plan(client: &Client, text: &str) -> Option<Json> {
    let statement = client
        .prepare(text)
        .await
        .unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let count = statement.params().len();
    let nulls = vec!["NULL"; count].join(", ");
    let nulls = if count == 0 {
        String::new()
    } else {
        format!("({nulls})")
    };
    client
        .batch_execute(&format!("DEALLOCATE ALL; PREPARE planned AS {text}"))
        .await
        .ok()?;
    let explain = format!("EXPLAIN (FORMAT JSON) EXECUTE planned{nulls}");
    let rows = client.simple_query(&explain).await.unwrap();
    let json = rows.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    let plans: Json = serde_json::from_str(&json.unwrap()).unwrap();
    Some(plans[0]["Plan"].clone())
}

/// The exceptions, each a statement and what it walks.
fn exceptions() -> BTreeSet<(&'static str, &'static str)> {
    ON_PURPOSE
        .iter()
        .flat_map(|(names, by, _)| names.iter().map(|name| (*name, *by)))
        .collect()
}

/// Statements that walk, except on purpose, under the settings of each pool. The exceptions that this needs are taken
/// from the `unneeded` ones.
async fn walking(
    database: &Database,
    unneeded: &mut BTreeSet<(&'static str, &'static str)>,
) -> Vec<String> {
    let exceptions = exceptions();
    let mut found = Vec::new();
    let pools = [
        ("critical", format!("{SESSION} {KEYED}")),
        ("reads", SESSION.to_owned()),
        ("trees", format!("{SESSION} {PATIENT}")),
    ];
    for (pool, session) in pools {
        let client = connect(&database.url, &session).await;
        let indexes = "SELECT indexname::text, tablename::text FROM pg_indexes";
        let indexes = client.query(indexes, &[]).await.unwrap();
        let tables = indexes.iter().map(|row| (row.get(0), row.get(1))).collect();
        for Statement { name, text } in statements() {
            let Some(plan) = plan(&client, text).await else {
                let planless = ["LOCK TABLE", "TRUNCATE"];
                assert!(
                    planless.iter().any(|word| text.starts_with(word)),
                    "{name} has no plan"
                );
                continue;
            };
            let name = name.trim_start_matches("postgres::");
            let mut steps = Vec::new();
            walks(&plan, &tables, &mut steps);
            for (by, step) in steps {
                if exceptions.contains(&(name, &*by)) {
                    unneeded.retain(|known| *known != (name, &*by));
                } else {
                    found.push(format!("{pool} {name}: {step}"));
                }
            }
        }
    }
    found
}

pub(super) async fn migrated() -> Database {
    let database = empty_database().await;
    migrate(&database.url).await.unwrap();
    database
}

#[tokio::test]
async fn no_statement_walks_a_tree_but_on_purpose() {
    let database = migrated().await;
    let mut unneeded = exceptions();
    let of_new = walking(&database, &mut unneeded).await;
    let client = connect(&database.url, "-c statement_timeout=0").await;
    client
        .batch_execute(include_str!("trees.sql"))
        .await
        .unwrap();
    let of_small_trees = walking(&database, &mut unneeded).await;
    assert!(
        of_new.is_empty() && of_small_trees.is_empty(),
        "{} of a new database:\n{}\n{} where most trees are small:\n{}",
        of_new.len(),
        of_new.join("\n"),
        of_small_trees.len(),
        of_small_trees.join("\n")
    );
    assert!(unneeded.is_empty(), "these walk nothing: {unneeded:#?}");
}

/// Files whose statements are no part of requests and runs.
const APART: [&str; 1] = ["migrate.rs"];

#[test]
fn every_statement_is_listed_for_its_plan() {
    let unlisted: Vec<String> = source::unlisted("src/storage/postgres")
        .into_iter()
        .filter(|found| !APART.contains(&&*found.file))
        .map(|found| format!("{}: {}", found.file, found.text))
        .collect();
    assert!(
        unlisted.is_empty(),
        "name these in `statements!` of their files:\n{}",
        unlisted.join("\n")
    );
}
