//! Lists of crons: pages in every order, counts, and those that are due.

use std::sync::Arc;

use const_format::formatcp;
use uuid::Uuid;

use super::{
    super::{
        columns::{Json, Params, Time, all, column, id_if, name, one, unname},
        connection::{Object, Result},
    },
    CRON_COLUMNS,
    rows::cron_of,
};
use crate::{
    crons::{
        CronRow,
        request::{Filter, Search, SortBy},
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
            "SELECT cron_id, ({payload} + {metadata})::bigint AS weight{filtered}",
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

const WITH_CONTENT: &str = formatcp!(
    "SELECT {CRON_COLUMNS} FROM crons WHERE cron_id = ANY($1) AND ($2::text IS NULL OR owner = $2)"
);

/// What clients put into them is not read.
const WITHOUT_CONTENT: &str = "
SELECT cron_id, owner, principal, assistant_id, thread_id, schedule, timezone, end_time, enabled, on_run_completed,
       '{}'::jsonb AS metadata, NULL::text AS type, NULL::bytea AS payload, next_run_at, last_run_at, created_at, updated_at
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
) -> Result<Vec<(CronId, u64)>> {
    let filter = &search.filter;
    let texts = [ALL, OWNED, OF_THREAD][way(filter)];
    let params: Params<'_, 7> = [
        &filter.viewer.as_deref().map(name),
        &filter.thread.map(|thread| thread.0),
        &filter.assistant.map(|assistant| assistant.0),
        &filter.enabled,
        &metadata(filter),
        &whole(search.limit),
        &whole(search.offset),
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
    with_content: bool,
) -> Result<Vec<CronRow>> {
    let text = if with_content {
        WITH_CONTENT
    } else {
        WITHOUT_CONTENT
    };
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let params: Params<'_, 2> = [&ids, &viewer.as_deref().map(name)];
    all(db, text, &params, cron_of).await
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

statements!(
    ALL,
    OWNED,
    OF_THREAD,
    COUNTS,
    DUE,
    WITH_CONTENT,
    WITHOUT_CONTENT
);
