//! Crons: created, read, changed, deleted and listed.

use std::sync::Arc;

use const_format::formatcp;
use rusqlite::{Connection, params};

use self::rows::{cron_of, encoded};
use super::{
    columns::{map_text, one},
    connection::Writing,
    counts,
    tree::level_on_thread,
};
use crate::{
    checkpoint::{Error, Result},
    crons::{CronRow, request::OnRunCompleted, store::CreatedCron},
    id::CronId,
    time::Timestamp,
    tree::members::Access,
};

/// The columns of a cron, in the order in which they are read.
const CRON_COLUMNS: &str = "cron_id, owner, principal, assistant_id, thread_id, schedule, timezone, end_time, \
         enabled, on_run_completed, metadata, type, payload, next_run_at, last_run_at, \
         created_at, updated_at";

mod lists;
mod rows;

pub(super) use lists::{count_crons, crons, due_crons, search_crons};

const LIVING: &str = "SELECT 1 FROM threads WHERE thread_id = ?1 AND deleted_at IS NULL";

const INSERT: &str = formatcp!(
    "INSERT INTO crons ({CRON_COLUMNS}) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, NULL, ?15, ?15)"
);

const VISIBLE: &str =
    formatcp!("SELECT {CRON_COLUMNS} FROM crons WHERE cron_id = ?1 AND (?2 IS NULL OR owner = ?2)");

/// Only of the row that was read: neither others nor a due time came in between.
const REPLACE: &str = formatcp!(
    "UPDATE crons SET schedule = ?5, timezone = ?6, end_time = ?7, enabled = ?8, \
     on_run_completed = ?9, metadata = ?10, type = ?11, payload = ?12, next_run_at = ?13, \
     updated_at = max(?14, updated_at + 1) \
     WHERE cron_id = ?1 AND owner = ?2 AND updated_at = ?3 AND next_run_at IS ?4 RETURNING {CRON_COLUMNS}"
);

const DELETE: &str = "DELETE FROM crons WHERE cron_id = ?1 AND (?2 IS NULL OR owner = ?2)";

#[allow(clippy::unnecessary_wraps, reason = "as every operation")]
pub(super) fn clock(_: &Connection) -> Result<Timestamp> {
    Ok(Timestamp::now())
}

pub(super) fn create_cron(
    db: &Writing<'_>,
    row: &CronRow,
    access: &Access,
    most: usize,
) -> Result<CreatedCron> {
    if let Some(thread) = row.thread {
        let lives = db.prepare_cached(LIVING)?.exists([thread])?;
        if !lives {
            return Ok(CreatedCron::NoThread);
        }
        if let Some(principal) = access.principal() {
            let level = level_on_thread(db, thread, principal)?;
            if let Err(denied) = access.check(thread, level) {
                return Ok(CreatedCron::Denied(denied));
            }
        }
    }
    let assistant = db
        .prepare_cached("SELECT 1 FROM assistants WHERE assistant_id = ?1")?
        .exists([row.assistant])?;
    if !assistant {
        return Ok(CreatedCron::NoAssistant);
    }
    // An earlier attempt of the request created it.
    if let Some(row) = cron(db, row.id, &None)? {
        return Ok(CreatedCron::Done(Box::new(row)));
    }
    if counts::is_full(db, "crons", &row.owner, most)? {
        return Ok(CreatedCron::Full);
    }
    let (tag, payload) = encoded(&row.payload, db.format);
    db.prepare_cached(INSERT)?.execute(params![
        row.id,
        row.owner,
        row.principal,
        row.assistant,
        row.thread,
        row.schedule,
        row.timezone,
        row.end_time.map(|time| time.0),
        row.enabled,
        row.on_run_completed.map(OnRunCompleted::as_str),
        map_text(&row.metadata),
        &*tag,
        payload,
        row.next_run.map(|time| time.0),
        Timestamp::now().0,
    ])?;
    let written = cron(db, row.id, &None)?.ok_or(Error::Fenced)?;
    Ok(CreatedCron::Done(Box::new(written)))
}

pub(super) fn cron(
    db: &Connection,
    id: CronId,
    viewer: &Option<Arc<str>>,
) -> Result<Option<CronRow>> {
    one(db, VISIBLE, params![id, viewer], cron_of)
}

pub(super) fn replace_cron(
    db: &Writing<'_>,
    old: &CronRow,
    new: &CronRow,
) -> Result<Option<CronRow>> {
    let (tag, payload) = encoded(&new.payload, db.format);
    let params = params![
        old.id,
        old.owner,
        old.updated_at.0,
        old.next_run.map(|time| time.0),
        new.schedule,
        new.timezone,
        new.end_time.map(|time| time.0),
        new.enabled,
        new.on_run_completed.map(OnRunCompleted::as_str),
        map_text(&new.metadata),
        &*tag,
        payload,
        new.next_run.map(|time| time.0),
        Timestamp::now().0,
    ];
    one(db, REPLACE, params, cron_of)
}

pub(super) fn delete_cron(db: &Connection, id: CronId, viewer: &Option<Arc<str>>) -> Result<bool> {
    let params = params![id, viewer];
    Ok(db.prepare_cached(DELETE)?.execute(params)? > 0)
}
