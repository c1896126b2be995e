//! What executions of statements take, for tests: each one's instructions and rows, in a file that the
//! environment names.

use std::{
    collections::HashMap,
    fs::File,
    io::Write,
    sync::{Arc, LazyLock},
};

use parking_lot::Mutex;
use rusqlite::{
    Connection, StatementStatus,
    trace::{TraceEvent, TraceEventCodes},
};

use crate::value::Value;

/// The variable with the path of the file.
const VARIABLE: &str = "SQLITE_STATEMENTS";

/// All connections write to one file.
static FILE: LazyLock<Option<Arc<Mutex<File>>>> = LazyLock::new(|| {
    let path = std::env::var_os(VARIABLE)?;
    let file = File::options().create(true).append(true).open(path).ok()?;
    Some(Arc::new(Mutex::new(file)))
});

/// In tests of this crate a file of this name beside the database has the measures, so that those of tests in one
/// process do not mix.
#[cfg(test)]
pub(in crate::storage) const BESIDE: &str = "steps";

/// Where the measures of a database go, if anywhere.
fn file_of(_db: &Connection) -> Option<Arc<Mutex<File>>> {
    #[cfg(test)]
    if let Some(path) = _db.path() {
        let beside = std::path::Path::new(path).with_file_name(BESIDE);
        if let Ok(file) = File::options().append(true).open(beside) {
            return Some(Arc::new(Mutex::new(file)));
        }
    }
    FILE.clone()
}

/// What a statement has taken in all its executions, and the rows of the one that is going on.
#[derive(Default)]
struct Taken {
    instructions: i32,
    rows: u64,
}

/// Lets a connection write what the executions of its statements take, if the environment names a file.
pub(in crate::storage::sqlite) fn measure(db: &mut Connection) -> rusqlite::Result<()> {
    let Some(file) = file_of(db) else {
        return Ok(());
    };
    let mut statements: HashMap<String, Taken> = HashMap::new();
    let events = TraceEventCodes::SQLITE_TRACE_PROFILE | TraceEventCodes::SQLITE_TRACE_ROW;
    db.trace_v2(
        events,
        Some(move |event: TraceEvent<'_>| match event {
            TraceEvent::Row(statement) => {
                let sql = statement.sql().into_owned();
                statements.entry(sql).or_default().rows += 1;
            }
            TraceEvent::Profile(statement, _) => {
                let sql = statement.sql().into_owned();
                let all = statement.get_status(StatementStatus::VmStep);
                let text = Value::str(&*sql);
                let taken = statements.entry(sql).or_default();
                // Fewer than before: it was prepared anew.
                let before = std::mem::replace(&mut taken.instructions, all);
                let own = if all < before { all } else { all - before };
                let rows = std::mem::take(&mut taken.rows);
                let line = Value::list(vec![text, i64::from(own).into(), Value::from(rows)]);
                let line = format!("{}\n", line.to_json());
                // A test that finds nothing fails.
                let _ = file.lock().write_all(line.as_bytes());
            }
            _ => {}
        }),
    )
}
