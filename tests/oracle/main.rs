//! The engine against LangGraph: every case describes a graph, calls, and what LangGraph 1.2.22
//! made of them, down to every event and every stored checkpoint.
//!
//! `BACKSTITCH_ORACLE_CASES=dir[:dir]` adds folders, `BACKSTITCH_ORACLE_ONLY=name` picks cases.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a panic is the failure of the test"
)]

mod compare;
mod events;
mod graph;
mod labels;
mod lang;
mod random_graphs;
mod run;
mod supersteps;

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use backstitch::Local;
use parking_lot::Mutex;
use serde_json::Value as Json;

/// Threads that run cases: each has a runtime and a storage of its own.
const THREADS: usize = 4;

#[test]
fn every_case_in_memory() {
    all("memory", |_| async { Local::memory().unwrap() });
}

#[test]
fn every_case_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    all("sqlite", |index| {
        let path = folder.path().join(index.to_string());
        async move { Local::sqlite(path).unwrap() }
    });
}

#[test]
fn every_case_in_postgres() {
    let runtime = runtime();
    let database = runtime.block_on(test_support::postgres::database());
    all("postgres", |_| {
        let url = database.url.clone();
        async move { Local::postgres(&url).await.unwrap() }
    });
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Runs every case and reports all that differ.
fn all<F: Future<Output = Local>>(storage: &str, open: impl Fn(usize) -> F + Sync) {
    let cases = cases();
    let not_yet = not_yet();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(vec![]);
    std::thread::scope(|scope| {
        for index in 0..THREADS {
            let (cases, not_yet, next, failures, open) =
                (&cases, &not_yet, &next, &failures, &open);
            scope.spawn(move || {
                let runtime = runtime();
                let local = runtime.block_on(open(index));
                while let Some(path) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = path.file_stem().unwrap().to_str().unwrap();
                    let differences = differences(path, &runtime, &local);
                    let listed = not_yet.contains(name);
                    let word = match (differences.is_empty(), listed) {
                        (true, false) => "ok",
                        (false, true) => "not yet",
                        (true, true) => "passes, but is listed in tests/oracle/not_yet.txt",
                        (false, false) => "DIFFERS",
                    };
                    // Past the capture of the test harness: one line a case, whatever the outcome.
                    writeln!(std::io::stdout(), "{storage} {name}: {word}").ok();
                    if differences.is_empty() == listed {
                        let shown = differences.join("\n  ");
                        failures.lock().push(format!("{name}: {word}\n  {shown}"));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner();
    failures.sort();
    let (wrong, all) = (failures.len(), cases.len());
    assert!(
        failures.is_empty(),
        "{wrong} of {all} cases differ\n{}",
        failures.join("\n")
    );
}

fn differences(path: &Path, runtime: &tokio::runtime::Runtime, local: &Local) -> Vec<String> {
    let case: Json = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let work = std::panic::AssertUnwindSafe(|| {
        let limit = std::time::Duration::from_secs(30);
        runtime.block_on(async { tokio::time::timeout(limit, run::run(&case, local)).await })
    });
    match std::panic::catch_unwind(work) {
        Ok(Ok(outcome)) => compare::differences(&case, &outcome),
        Ok(Err(_)) => vec!["does not end".to_owned()],
        Err(_) => vec!["panics".to_owned()],
    }
}

fn cases() -> Vec<PathBuf> {
    let mut folders = vec![
        PathBuf::from("tests/oracle/cases"),
        PathBuf::from("tests/oracle/more"),
    ];
    if let Ok(more) = std::env::var("BACKSTITCH_ORACLE_CASES") {
        folders.extend(std::env::split_paths(&more));
    }
    let only = std::env::var("BACKSTITCH_ORACLE_ONLY").unwrap_or_default();
    let mut cases = vec![];
    for folder in folders {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let wanted = path.to_str().unwrap().contains(&only);
            if wanted
                && path
                    .extension()
                    .is_some_and(|extension| extension == "json")
            {
                cases.push(path);
            }
        }
    }
    cases.sort();
    cases
}

/// Cases that are known to differ. The list only shrinks: a case that passes must leave it.
fn not_yet() -> BTreeSet<String> {
    let list = fs::read_to_string("tests/oracle/not_yet.txt").unwrap();
    let names = list.lines().filter(|line| !line.starts_with('#'));
    names
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}
