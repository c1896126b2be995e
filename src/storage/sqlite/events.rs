//! Business events of threads: numbered without a gap and appended.

use rusqlite::{Connection, Row, params, types::ValueRef};

use super::columns::{all, id, id_if, json_map, map_text, one};
use crate::{
    checkpoint::{Error, Result},
    fail_point,
    id::{BranchId, ThreadId, TreeId},
    time::Timestamp,
    tree::{
        event::{self, codes::event_code, row::LogRow},
        store::rows::{NewEvent, ThreadEvent},
    },
};

/// Takes the numbers of new events.
const NUMBER_IN_RUN: &str = "UPDATE threads SET last_event_number = last_event_number + ?1 \
     WHERE thread_id = ?2 RETURNING last_event_number";

/// Takes them, and lists show the thread as changed.
const NUMBER: &str = "UPDATE threads SET last_event_number = last_event_number + ?1, updated_at = ?3 \
     WHERE thread_id = ?2 RETURNING last_event_number";

/// Appends events to a thread's log and returns the number of the last one. Lists show a thread
/// as changed by whatever is logged of it. This is the last thing a transaction locks.
pub(super) fn append(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    events: &[NewEvent],
    now: Timestamp,
) -> Result<i64> {
    let params = params![count(events), thread, now.0];
    let last = one(db, NUMBER, params, |row| row.get(0))?;
    insert(db, (tree, thread), last, events, now)
}

/// [`append`] for a superstep of a run: the end of the run moves the time of the thread, for which lists
/// have an index.
pub(super) fn append_in_run(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    events: &[NewEvent],
    now: Timestamp,
) -> Result<i64> {
    let params = params![count(events), thread];
    let last = one(db, NUMBER_IN_RUN, params, |row| row.get(0))?;
    insert(db, (tree, thread), last, events, now)
}

fn count(events: &[NewEvent]) -> i64 {
    i64::try_from(events.len()).unwrap_or(i64::MAX)
}

/// Inserts the events that end with the number `last`, which the row of their thread has taken.
fn insert(
    db: &Connection,
    (tree, thread): (TreeId, ThreadId),
    last: Option<i64>,
    events: &[NewEvent],
    now: Timestamp,
) -> Result<i64> {
    let missing = || Error::Database(format!("there is no thread {thread} to log events of"));
    let last = last.ok_or_else(missing)?;
    let mut insert = db.prepare_cached(
        "INSERT INTO events (tree_id, thread_id, event_number, kind, payload, branch_id, \
         checkpoint_id, run_id, message_id, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    let before = last - count(events);
    for row in event::row::rows(events)? {
        insert.execute(params![
            tree,
            thread,
            before + row.position,
            row.code,
            row.payload.as_ref().map(map_text),
            row.branch,
            row.checkpoint,
            row.run,
            row.message_id,
            now.0,
        ])?;
    }
    Ok(last)
}

/// Events of a thread after a number, in order.
pub(super) fn events(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    number: i64,
    limit: usize,
) -> Result<Vec<ThreadEvent>> {
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let both = event_code!(CREATED_AND_FINISHED);
    let params = params![tree, thread, number, most, both];
    let rows = all(db, AFTER, params, log_row)?;
    event::row::events_after(rows, number, limit)
}

const AFTER: &str = "SELECT e.event_number, e.kind, e.payload, e.branch_id, e.checkpoint_id, e.run_id, \
     e.message_id, e.created_at, e.thread_id, f.facts FROM events e LEFT JOIN event_facts f \
       ON f.tree_id = e.tree_id AND f.thread_id = e.thread_id \
      AND f.event_number = e.event_number - (e.kind = ?5) \
     WHERE e.tree_id = ?1 AND e.thread_id = ?2 AND e.event_number > ?3 \
     ORDER BY e.event_number LIMIT ?4";

/// Events of several threads, those of each after a number and in order.
pub(super) fn events_of_threads(
    db: &Connection,
    after: &[(TreeId, ThreadId, i64)],
    limit: usize,
    most: u64,
) -> Result<Vec<ThreadEvent>> {
    let both = event_code!(CREATED_AND_FINISHED);
    let mut found = Vec::new();
    for (tree, thread, number) in after {
        let (mut count, mut sum) = (0, 0);
        for (_, weight) in weights(db, *tree, *thread, *number, limit)? {
            if sum >= most {
                break;
            }
            (count, sum) = (count + 1, sum.saturating_add(weight));
        }
        let params = params![tree, thread, number, count, both];
        found.extend(all(db, AFTER, params, log_row)?);
    }
    event::row::events_of_each(found, after, limit)
}

/// What the rows of [`events`] weigh.
const WEIGHTS: &str = concat!(
    "SELECT e.event_number, coalesce(",
    json_weight!("e.payload"),
    ", 0) + coalesce(",
    json_weight!("f.facts"),
    ", 0) FROM events e LEFT JOIN event_facts f \
       ON f.tree_id = e.tree_id AND f.thread_id = e.thread_id \
      AND f.event_number = e.event_number - (e.kind = ?5) \
     WHERE e.tree_id = ?1 AND e.thread_id = ?2 AND e.event_number > ?3 \
     ORDER BY e.event_number LIMIT ?4"
);

/// The numbers of the rows of [`events`], and what these weigh.
pub(super) fn event_weights(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    after: i64,
    limit: usize,
) -> Result<Vec<(i64, u64)>> {
    // What a request reads passes here, and nothing that the server reads by itself.
    fail_point!("events::weights");
    weights(db, tree, thread, after, limit)
}

fn weights(
    db: &Connection,
    tree: TreeId,
    thread: ThreadId,
    after: i64,
    limit: usize,
) -> Result<Vec<(i64, u64)>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let both = event_code!(CREATED_AND_FINISHED);
    let mut statement = db.prepare_cached(WEIGHTS)?;
    let rows = statement.query_map(params![tree, thread, after, limit, both], |row| {
        Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs()))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The types are those of a partial index.
pub(super) const NAMING: &str = concat!(
    "SELECT event_number, kind, payload, branch_id, checkpoint_id, run_id, message_id, \
     created_at, thread_id, NULL FROM events \
     WHERE tree_id = ?1 AND branch_id = ?2 AND kind IN (",
    event_code!(BRANCH_CREATED),
    ", ",
    event_code!(BRANCH_RENAMED),
    ", ",
    event_code!(BRANCH_DELETED),
    ") ORDER BY event_number"
);

/// Events that name branches from then on, or named them until then, of each branch in order.
pub(super) fn naming_events(
    db: &Connection,
    tree: TreeId,
    branches: &[BranchId],
) -> Result<Vec<ThreadEvent>> {
    let mut select = db.prepare_cached(NAMING)?;
    let mut found = Vec::new();
    for branch in branches {
        let params = params![tree, branch];
        for row in select.query_map(params, log_row)? {
            found.extend(row?.events()?);
        }
    }
    Ok(found)
}

fn log_row(row: &Row<'_>) -> rusqlite::Result<LogRow> {
    let map = |column| match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        _ => json_map(row, column).map(Some),
    };
    Ok(LogRow {
        thread: id(row, 8)?,
        number: row.get(0)?,
        code: row.get(1)?,
        run: id_if(row, 5)?,
        payload: map(2)?,
        facts: map(9)?,
        branch: id_if(row, 3)?,
        checkpoint: id_if(row, 4)?,
        message_id: row.get(6)?,
        created_at: Timestamp(row.get(7)?),
    })
}
