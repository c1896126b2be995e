//! The two databases side by side: whoever has read one finds everything in the other.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, sources};

/// Files that one database has alone, with the reason.
const ALONE: &[&str] = &[
    // SQLite: reading threads and one writing thread, what takes over a slot in its one transaction, and for tests
    // what statements take, which Postgres logs by itself.
    "sqlite/connection/measured.rs",
    "sqlite/connection/idle.rs",
    "sqlite/connection/readers.rs",
    "sqlite/connection/writer.rs",
    "sqlite/threads/slots.rs",
    // Postgres: what a connection carried, what becomes of one that fails, turns at what many want to lock, hints between
    // processes, and commits, runs and derived rows that are written together by one statement.
    "postgres/connection/client.rs",
    "postgres/connection/failure.rs",
    "postgres/connection/hot.rs",
    "postgres/connection/streams.rs",
    "postgres/link.rs",
    "postgres/checkpoints/commit/arrays.rs",
    "postgres/checkpoints/commit/batch.rs",
    "postgres/checkpoints/commit/batch/columns.rs",
    "postgres/checkpoints/commit/end.rs",
    "postgres/checkpoints/commit/queue.rs",
    "postgres/projections/columns.rs",
    "postgres/threads/create/group.rs",
    "postgres/runs/create/batch.rs",
    "postgres/runs/create/group.rs",
    "postgres/runs/create/many.rs",
    "postgres/runs/create/pipeline.rs",
    "postgres/runs/create/queue.rs",
];

#[test]
fn both_databases_have_the_same_files_with_the_same_operations_in_the_same_order() {
    let sources = sources();
    let of = |database: &str| -> BTreeMap<String, &Source> {
        let prefix = format!("storage/{database}/");
        let files = sources.iter().filter_map(|source| {
            let path = source.path.strip_prefix(&prefix)?.to_owned();
            let alone = ALONE.contains(&&*format!("{database}/{path}"));
            (!alone).then_some((path, source))
        });
        files.collect()
    };
    let (sqlite, postgres) = (of("sqlite"), of("postgres"));
    let mut wrong = BTreeSet::new();
    for path in sqlite.keys().chain(postgres.keys()) {
        let (Some(one), Some(other)) = (sqlite.get(path), postgres.get(path)) else {
            wrong.insert(format!("only one database has {path}"));
            continue;
        };
        let (one, other) = (operations(one), operations(other));
        let common = |names: &[String], others: &[String]| -> Vec<String> {
            let names = names.iter().filter(|name| others.contains(name));
            names.cloned().collect()
        };
        let (ours, theirs) = (common(&one, &other), common(&other, &one));
        if ours != theirs {
            wrong.insert(format!(
                "{path}: SQLite has {ours:?}, Postgres has {theirs:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", super::list(&wrong));
}

/// The functions of a file that others may call, in their order.
fn operations(source: &Source) -> Vec<String> {
    let file = syn::parse_file(&source.text).unwrap();
    let functions = file.items.into_iter().filter_map(|item| match item {
        syn::Item::Fn(function) if !matches!(function.vis, syn::Visibility::Inherited) => {
            Some(function.sig.ident.to_string())
        }
        _ => None,
    });
    functions.collect()
}
