//! Lists of crons: pages in every order, counts, and those that are due.

use std::sync::Arc;

use const_format::formatcp;
use uuid::Uuid;

use super::{
    super::{
        columns::{Json, Params, Time, all, column, id_if, name, one, unname},
        connection::{Object, Result},
    },
    rows::cron_of,
};
use crate::{
    crons::{
        CronRow,
        request::{Columns, Filter, Search, SortBy},
        store::DueCron,
    },
    id::CronId,
    time::Timestamp,
};

/// What of the filter every list has.
macro_rules! filtered {
    ($by:literal, $rest:expr) => {
        formatcp!(
            " FROM crons
 WHERE {by} AND ($3::uuid IS NULL OR assistant_id = $3) AND ($4::boolean IS NULL OR enabled = $4)
   AND ($5::jsonb IS NULL OR metadata @> $5){rest}",
            by = $by,
            rest = $rest
        )
    };
}

macro_rules! page {
    ($by:literal, $column:literal, $order:literal) => {
        formatcp!(
            "SELECT cron_id, (CASE WHEN $8::boolean OR ($9::boolean AND end_time IS NOT NULL) THEN {payload} ELSE 0 END
        + CASE WHEN $10::boolean THEN {metadata} ELSE 0 END)::bigint AS weight{filtered}",
            payload = weight!("type", "payload"),
            metadata = json_weight!("metadata::text"),
            filtered = filtered!(
                $by,
                concat!(
                    "
 ORDER BY ",
                    $column,
                    " ",
                    $order,
                    ", cron_id ",
                    $order,
                    " LIMIT $6 OFFSET $7"
                )
            )
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

const ALL: [&str; 14] = pages!("$1::text IS NULL AND $2::uuid IS NULL");
const OWNED: [&str; 14] = pages!("owner = $1 AND $2::uuid IS NULL");
const OF_THREAD: [&str; 14] = pages!("thread_id = $2 AND ($1::text IS NULL OR owner = $1)");

const COUNTS: [&str; 3] = [
    formatcp!(
        "SELECT count(*){filtered}",
        filtered = filtered!("$1::text IS NULL AND $2::uuid IS NULL", "")
    ),
    formatcp!(
        "SELECT count(*){filtered}",
        filtered = filtered!("owner = $1 AND $2::uuid IS NULL", "")
    ),
    formatcp!(
        "SELECT count(*){filtered}",
        filtered = filtered!("thread_id = $2 AND ($1::text IS NULL OR owner = $1)", "")
    ),
];

const DUE: &str = "
SELECT cron_id, owner, thread_id, next_run_at FROM crons
 WHERE enabled AND next_run_at <= $1 AND next_run_at >= COALESCE($2, '-infinity'::timestamptz)
   AND ($2 IS NULL OR next_run_at > $2 OR cron_id > $3::uuid)
 ORDER BY next_run_at, cron_id LIMIT $4";

/// What of the content is not requested is not read. An end is in the payload as the client wrote it.
const CRONS: &str = "
SELECT cron_id, owner, principal, assistant_id, thread_id, schedule, timezone, end_time, enabled, on_run_completed,
       CASE WHEN $5::boolean THEN metadata ELSE '{}' END AS metadata,
       CASE WHEN $3::boolean OR ($4::boolean AND end_time IS NOT NULL) THEN type END AS type,
       CASE WHEN $3 OR ($4 AND end_time IS NOT NULL) THEN payload END AS payload,
       next_run_at, last_run_at, created_at, updated_at
  FROM crons WHERE cron_id = ANY($1) AND ($2::text IS NULL OR owner = $2)";

/// Which of the three ways leads to the crons that a filter lets pass.
fn way(filter: &Filter) -> usize {
    match (filter.thread, &filter.viewer) {
        (Some(_), _) => 2,
        (None, Some(_)) => 1,
        (None, None) => 0,
    }
}

fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn metadata(filter: &Filter) -> Option<Json<'static>> {
    (!filter.metadata.is_empty()).then(|| Json::of_map(&filter.metadata))
}

pub(in super::super) async fn search_crons(
    db: &Object,
    search: &Search,
    columns: Columns,
) -> Result<Vec<(CronId, u64)>> {
    let filter = &search.filter;
    let texts = [ALL, OWNED, OF_THREAD][way(filter)];
    let params: Params<'_, 10> = [
        &filter.viewer.as_deref().map(name),
        &filter.thread.map(|thread| thread.0),
        &filter.assistant.map(|assistant| assistant.0),
        &filter.enabled,
        &metadata(filter),
        &whole(search.limit),
        &whole(search.offset),
        &columns.payload,
        &columns.end_time,
        &columns.metadata,
    ];
    all(db, texts[search.order(SortBy::ALL)], &params, |row| {
        let weight = column::<i64>(row, "weight")?;
        Ok((
            CronId(column(row, "cron_id")?),
            u64::try_from(weight).unwrap_or(0),
        ))
    })
    .await
}

pub(in super::super) async fn crons(
    db: &Object,
    ids: &[CronId],
    viewer: &Option<Arc<str>>,
    columns: Columns,
) -> Result<Vec<CronRow>> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let params: Params<'_, 5> = [
        &ids,
        &viewer.as_deref().map(name),
        &columns.payload,
        &columns.end_time,
        &columns.metadata,
    ];
    all(db, CRONS, &params, cron_of).await
}

pub(in super::super) async fn count_crons(db: &Object, filter: &Filter) -> Result<u64> {
    let params: Params<'_, 5> = [
        &filter.viewer.as_deref().map(name),
        &filter.thread.map(|thread| thread.0),
        &filter.assistant.map(|assistant| assistant.0),
        &filter.enabled,
        &metadata(filter),
    ];
    let count = one(db, COUNTS[way(filter)], &params, |row| {
        column::<i64>(row, "count")
    });
    Ok(u64::try_from(count.await?.unwrap_or(0)).unwrap_or(0))
}

pub(in super::super) async fn due_crons(
    db: &Object,
    now: Timestamp,
    after: Option<(Timestamp, CronId)>,
    limit: usize,
) -> Result<Vec<DueCron>> {
    let (due, id) = after.map_or((None, None), |(due, id)| (Some(Time(due)), Some(id.0)));
    let params: Params<'_, 4> = [&Time(now), &due, &id, &whole(limit)];
    all(db, DUE, &params, |row| {
        Ok(DueCron {
            id: CronId(column(row, "cron_id")?),
            owner: unname(column(row, "owner")?),
            thread: id_if(row, "thread_id")?,
            due: column::<Time>(row, "next_run_at")?.0,
        })
    })
    .await
}

statements!(ALL, OWNED, OF_THREAD, COUNTS, DUE, CRONS);
