//! Lists of crons: pages in every order, counts, and those that are due.

use std::sync::Arc;

use const_format::formatcp;
use rusqlite::{Connection, Row, params};

use super::{
    super::columns::{all, id, id_if, json_map, one},
    rows::cron_of,
};
use crate::{
    checkpoint::Result,
    crons::{
        CronRow,
        request::{Columns, Filter, Search, SortBy},
        store::DueCron,
    },
    id::CronId,
    time::Timestamp,
    value::contains_map,
};

/// Crons in one order. What SQL cannot decide (containment) is decided row by row.
macro_rules! page {
    ($by:literal, $column:literal, $order:literal) => {
        formatcp!(
            "SELECT cron_id, metadata, CASE WHEN ?5 OR (?6 AND end_time IS NOT NULL) THEN {payload} ELSE 0 END \
               + CASE WHEN ?7 THEN {metadata} ELSE 0 END \
             FROM crons WHERE {by} AND (?3 IS NULL OR assistant_id = ?3) AND (?4 IS NULL OR enabled = ?4) ORDER BY {column} {order}, cron_id {order}",
            payload = weight!("type", "payload"),
            metadata = json_weight!("metadata"),
            by = $by,
            column = $column,
            order = $order
        )
    };
}

/// Pages in each order, falling and rising, in the order of the words for it.
macro_rules! pages {
    ($by:literal) => {
        [
            page!($by, "cron_id", "DESC"),
            page!($by, "cron_id", "ASC"),
            page!($by, "assistant_id", "DESC"),
            page!($by, "assistant_id", "ASC"),
            page!($by, "thread_id IS NULL, thread_id", "DESC"),
            page!($by, "thread_id IS NULL, thread_id", "ASC"),
            page!($by, "created_at", "DESC"),
            page!($by, "created_at", "ASC"),
            page!($by, "updated_at", "DESC"),
            page!($by, "updated_at", "ASC"),
            page!($by, "next_run_at IS NULL, next_run_at", "DESC"),
            page!($by, "next_run_at IS NULL, next_run_at", "ASC"),
            page!($by, "end_time IS NULL, end_time", "DESC"),
            page!($by, "end_time IS NULL, end_time", "ASC"),
        ]
    };
}

const ALL: [&str; 14] = pages!("?1 IS NULL AND ?2 IS NULL");
const OWNED: [&str; 14] = pages!("owner = ?1 AND ?2 IS NULL");
const OF_THREAD: [&str; 14] = pages!("thread_id = ?2 AND (?1 IS NULL OR owner = ?1)");

const DUE: &str = "SELECT cron_id, owner, thread_id, next_run_at FROM crons INDEXED BY crons_due \
     WHERE enabled AND next_run_at <= ?1 AND next_run_at >= coalesce(?2, -9223372036854775808) \
       AND (?2 IS NULL OR next_run_at > ?2 OR cron_id > ?3) \
     ORDER BY next_run_at, cron_id LIMIT ?4";

/// What of the content is not requested is not read. An end is in the payload as the client wrote it.
const CRON: &str = "SELECT cron_id, owner, principal, assistant_id, thread_id, schedule, \
     timezone, end_time, enabled, on_run_completed, CASE WHEN ?5 THEN metadata ELSE '{}' END, \
     CASE WHEN ?3 OR (?4 AND end_time IS NOT NULL) THEN type END, \
     CASE WHEN ?3 OR (?4 AND end_time IS NOT NULL) THEN payload END, next_run_at, last_run_at, \
     created_at, updated_at FROM crons WHERE cron_id = ?1 AND (?2 IS NULL OR owner = ?2)";

/// Calls `visit` with every cron that passes the filter, until `visit` returns false.
fn each(
    db: &Connection,
    filter: &Filter,
    (order, columns): (usize, Columns),
    mut visit: impl FnMut(&Row<'_>) -> Result<bool>,
) -> Result<()> {
    let texts = match (filter.thread, &filter.viewer) {
        (Some(_), _) => OF_THREAD,
        (None, Some(_)) => OWNED,
        (None, None) => ALL,
    };
    let mut statement = db.prepare_cached(texts[order])?;
    let mut rows = statement.query(params![
        filter.viewer,
        filter.thread,
        filter.assistant,
        filter.enabled,
        columns.payload,
        columns.end_time,
        columns.metadata,
    ])?;
    while let Some(row) = rows.next()? {
        if !filter.metadata.is_empty() && !contains_map(&json_map(row, 1)?, &filter.metadata) {
            continue;
        }
        if !visit(row)? {
            break;
        }
    }
    Ok(())
}

pub(in super::super) fn search_crons(
    db: &Connection,
    search: &Search,
    columns: Columns,
) -> Result<Vec<(CronId, u64)>> {
    let mut found = Vec::new();
    let mut skip = search.offset;
    let order = search.order(SortBy::ALL);
    each(db, &search.filter, (order, columns), |row| {
        if skip > 0 {
            skip -= 1;
        } else if found.len() < search.limit {
            let bytes: i64 = row.get(2)?;
            found.push((id(row, 0)?, u64::try_from(bytes).unwrap_or(0)));
        }
        Ok(found.len() < search.limit)
    })?;
    Ok(found)
}

pub(in super::super) fn crons(
    db: &Connection,
    ids: &[CronId],
    viewer: &Option<Arc<str>>,
    columns: Columns,
) -> Result<Vec<CronRow>> {
    let rows = ids.iter().map(|id| {
        let params = params![
            id,
            viewer,
            columns.payload,
            columns.end_time,
            columns.metadata
        ];
        one(db, CRON, params, cron_of)
    });
    rows.filter_map(Result::transpose).collect()
}

pub(in super::super) fn count_crons(db: &Connection, filter: &Filter) -> Result<u64> {
    let mut count = 0;
    each(db, filter, (0, Columns::NONE), |_| {
        count += 1;
        Ok(true)
    })?;
    Ok(count)
}

pub(in super::super) fn due_crons(
    db: &Connection,
    now: Timestamp,
    after: Option<(Timestamp, CronId)>,
    limit: usize,
) -> Result<Vec<DueCron>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (due, last) = after.unzip();
    all(
        db,
        DUE,
        params![now.0, due.map(|due| due.0), last, limit],
        |row| {
            Ok(DueCron {
                id: id(row, 0)?,
                owner: row.get(1)?,
                thread: id_if(row, 2)?,
                due: Timestamp(row.get(3)?),
            })
        },
    )
}
