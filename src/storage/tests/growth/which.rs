//! Which test measures a statement: each one has exactly one, and what that test does not measure is listed.

use super::{Statement, exceptions::Exceptions};
use crate::storage::tests::source;

/// The tests of growth.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Test {
    /// With small and large trees.
    Trees,
    /// With few and many rows that are no part of trees.
    Rooms,
    /// With few and many threads.
    Lists,
}

/// Where the statements on rows are that are no part of trees: files, and folders with theirs.
const ROOMS: [&str; 10] = [
    "assistants",
    "counts",
    "crons",
    "idempotency",
    "items",
    "log",
    "outbox",
    "probe",
    "runs/fire",
    "vectors",
];

const LISTS: [&str; 2] = ["threads/narrow", "threads/search"];

/// What of those files only requests to trees execute.
const ON_TREES: [&str; 5] = [
    "log.rs: SELECT 1 FROM runs",
    "log.rs: UPDATE run_events SET superseded",
    "postgres::crons::SHARE_TREE",
    "postgres::threads::narrow::OF_STATUS",
    "threads/narrow.rs: SELECT*WHERE ?1 = 'busy'",
];

/// The test of a statement of the file at this path.
fn test_of(path: &str, name: &str) -> Test {
    let is_in = |places: &[&str]| {
        let mut places = places.iter();
        places.any(|place| path == *place || path.starts_with(&format!("{place}/")))
    };
    if ON_TREES.iter().any(|one| fits(one, name)) {
        Test::Trees
    } else if is_in(&ROOMS) {
        Test::Rooms
    } else if is_in(&LISTS) {
        Test::Lists
    } else {
        Test::Trees
    }
}

/// The statements of Postgres that a test measures.
pub(super) fn of_postgres(test: Test) -> Vec<Statement> {
    let mut statements = crate::storage::postgres::statements();
    statements.retain(|one| {
        let path = one.name.replace("::", "/");
        let (path, _) = path.rsplit_once('/').unwrap();
        let path = path.strip_prefix("postgres/").unwrap_or(path);
        test_of(path, &one.name) == test
    });
    statements
}

/// The statements of SQLite that a test measures.
pub(super) fn of_sqlite(test: Test) -> Vec<Statement> {
    let mut found = source::statements("src/storage/sqlite");
    found.sort_by(|a, b| (&a.file, &a.text).cmp(&(&b.file, &b.text)));
    found.dedup_by(|a, b| (&a.file, &a.text) == (&b.file, &b.text));
    let named = found.into_iter().map(|found| {
        let name = format!("{}: {}", found.file, found.text);
        (found.file, name, found.text)
    });
    named
        .filter(|(file, name, _)| test_of(file.trim_end_matches(".rs"), name) == test)
        .map(|(_, name, text)| Statement {
            name,
            text: text.leak(),
        })
        .collect()
}

/// Before a name of several statements.
const ALL: &str = "all ";

/// Whether this is the name of a statement: that of its constant, or what its text begins with, and after each `*`
/// something behind that; a full stop is its end.
fn fits(name: &str, statement: &str) -> bool {
    let (names_all, name) = match name.strip_prefix(ALL) {
        Some(name) => (true, name),
        None => (false, name),
    };
    if !names_all && !name.contains(": ") {
        return name == statement;
    }
    let (name, is_whole) = match name.strip_suffix('.') {
        Some(name) => (name, true),
        None => (name, false),
    };
    let mut parts = name.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = statement.strip_prefix(first) else {
        return false;
    };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else {
            return false;
        };
        rest = behind;
    }
    !is_whole || rest.is_empty()
}

pub(super) fn is_among(exceptions: Exceptions, statement: &str) -> bool {
    let mut names = exceptions.iter().flat_map(|(_, names)| *names);
    names.any(|name| fits(name, statement))
}

/// The names that fit no statement, or several without saying so: a new statement is no exception because it
/// begins as another one does.
pub(super) fn unfit(exceptions: Exceptions, statements: &[Statement]) -> Vec<(String, String)> {
    let names = exceptions.iter().flat_map(|(_, names)| *names);
    let counted = names.map(|name| {
        let fitting = statements.iter().filter(|one| fits(name, &one.name));
        (*name, fitting.count())
    });
    counted
        .filter(|(name, count)| *count == 0 || (*count > 1 && !name.starts_with(ALL)))
        .map(|(name, count)| (name.to_owned(), format!("names {count} statements")))
        .collect()
}

#[test]
fn a_name_of_an_exception_is_that_of_one_statement() {
    let statement = |name: &str| Statement {
        name: name.to_owned(),
        text: "",
    };
    let known = [statement("runs.rs: SELECT a FROM runs")];
    let new = statement("runs.rs: SELECT a FROM runs WHERE b");
    let exceptions: Exceptions = &[("so", &["runs.rs: SELECT a*runs"])];
    assert_eq!(unfit(exceptions, &known), []);
    let both = [known[0].clone(), new];
    assert_eq!(unfit(exceptions, &both).len(), 1);
    let whole: Exceptions = &[("so", &["runs.rs: SELECT a FROM runs."])];
    assert_eq!(unfit(whole, &both), []);
    let several: Exceptions = &[("so", &["all runs.rs: SELECT a"])];
    assert_eq!(unfit(several, &both), []);
    assert_eq!(unfit(several, &[statement("log.rs: SELECT a")]).len(), 1);
}

#[test]
fn each_statement_has_one_test() {
    let tests = [Test::Trees, Test::Rooms, Test::Lists];
    let measured = tests.map(|test| of_postgres(test).len());
    assert_eq!(
        measured.iter().sum::<usize>(),
        crate::storage::postgres::statements().len()
    );
    for one in ON_TREES {
        let fitting = [of_postgres(Test::Trees), of_sqlite(Test::Trees)].concat();
        let fitting = fitting
            .iter()
            .filter(|statement| fits(one, &statement.name));
        assert_eq!(fitting.count(), 1, "{one}");
    }
}
