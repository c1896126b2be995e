//! Crons: created, read, changed, deleted and listed.

use const_format::formatcp;

use std::sync::Arc;

use self::rows::{Bound, cron_of};
use super::{
    Store,
    columns::{Params, Time, column, execute, name, one, word},
    connection::{self, Object, Result, prepare},
    counts,
    threads::rows::line_of,
    tree::LEVEL_ON_THREAD,
};
use crate::{
    checkpoint::Error,
    crons::{CronRow, store::CreatedCron},
    id::CronId,
    time::Timestamp,
    tree::members::{Access, Level},
};

/// The columns of a cron.
const CRON_COLUMNS: &str = "cron_id, owner, principal, assistant_id, thread_id, schedule, timezone, end_time, enabled, on_run_completed, metadata, type,
       payload, next_run_at, last_run_at, created_at, updated_at";

mod lists;
mod rows;

pub(super) use lists::{count_crons, crons, due_crons, search_crons};

const CLOCK: &str = "SELECT clock_timestamp() AS now";

/// Keeps deletions of the thread and changes of rights out until the cron is there.
const SHARE_TREE: &str = "
SELECT 1 FROM trees WHERE tree_id = (SELECT tree_id FROM threads WHERE thread_id = $1) FOR SHARE";

/// Keeps deletions of the assistant out.
const SHARE_ASSISTANT: &str = "SELECT 1 FROM assistants WHERE assistant_id = $1 FOR KEY SHARE";

const INSERT: &str = formatcp!(
    "
INSERT INTO crons (cron_id, owner, principal, assistant_id, thread_id, schedule, timezone, end_time, enabled, on_run_completed,
       metadata, type, payload, next_run_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
ON CONFLICT (cron_id) DO NOTHING
RETURNING {CRON_COLUMNS}"
);

const VISIBLE: &str = formatcp!(
    "SELECT {CRON_COLUMNS} FROM crons WHERE cron_id = $1 AND ($2::text IS NULL OR owner = $2)"
);

/// Only of the row that was read: neither others nor a due time came in between.
const REPLACE: &str = formatcp!(
    "
UPDATE crons SET schedule = $5, timezone = $6, end_time = $7, enabled = $8, on_run_completed = $9, metadata = $10, type = $11,
       payload = $12, next_run_at = $13, updated_at = greatest(now(), updated_at + interval '1 microsecond')
 WHERE cron_id = $1 AND owner = $2 AND updated_at = $3 AND next_run_at IS NOT DISTINCT FROM $4
RETURNING {CRON_COLUMNS}"
);

const DELETE: &str = "DELETE FROM crons WHERE cron_id = $1 AND ($2::text IS NULL OR owner = $2)";

pub(super) async fn clock(db: &Object) -> Result<Timestamp> {
    let now = one(db, CLOCK, &[], |row| column::<Time>(row, "now")).await?;
    Ok(now.map_or_else(Timestamp::now, |now| now.0))
}

/// See [`crons::Store::create_cron`](crate::crons::Store::create_cron).
pub(super) async fn create_cron(
    store: &Store,
    row: &CronRow,
    access: &Access,
    most: usize,
) -> Result<CreatedCron, Error> {
    let pool = &store.pools.reads;
    let _turn = match row.thread {
        Some(thread) => {
            let tree = line_of(store, pool, thread).await?;
            Some(store.hot.tree(tree).await?)
        }
        None => None,
    };
    connection::retry(pool, |mut db| async move {
        create(&mut db, row, access, most).await
    })
    .await
}

async fn create(
    db: &mut Object,
    row: &CronRow,
    access: &Access,
    most: usize,
) -> Result<CreatedCron> {
    let share_tree = prepare(db, SHARE_TREE).await?;
    let level = prepare(db, LEVEL_ON_THREAD).await?;
    let share_assistant = prepare(db, SHARE_ASSISTANT).await?;
    let insert = prepare(db, INSERT).await?;
    let find = prepare(db, VISIBLE).await?;
    let count = prepare(db, counts::COUNT).await?;
    let format = db.format;
    let transaction = db.transaction().await?;
    if let Some(thread) = row.thread {
        transaction.query_opt(&share_tree, &[&thread.0]).await?;
        let principal = access.principal().map_or("", |principal| &**principal);
        let params: Params<'_, 2> = [&thread.0, &name(principal)];
        let Some(found) = transaction.query_opt(&level, &params).await? else {
            return Ok(CreatedCron::NoThread);
        };
        let level = column::<Option<&str>>(&found, "level")?;
        let level = level.map(word::<Level>).transpose()?;
        if let Err(denied) = access.check(thread, level) {
            return Ok(CreatedCron::Denied(denied));
        }
    }
    let assistant: Params<'_, 1> = [&row.assistant.0];
    if transaction
        .query_opt(&share_assistant, &assistant)
        .await?
        .is_none()
    {
        return Ok(CreatedCron::NoAssistant);
    }
    let bound = Bound::of(row, format);
    let params: Params<'_, 14> = [
        &row.id.0,
        &bound.owner,
        &bound.principal,
        &row.assistant.0,
        &bound.thread,
        &row.schedule,
        &row.timezone,
        &bound.end_time,
        &row.enabled,
        &bound.on_run_completed,
        &bound.metadata,
        &&*bound.tag,
        &bound.payload,
        &bound.next_run,
    ];
    let written = match transaction.query_opt(&insert, &params).await? {
        Some(written) => {
            let owner = ("crons", &*bound.owner);
            if counts::is_over(&transaction, &count, owner, most).await? {
                return Ok(CreatedCron::Full);
            }
            written
        }
        // The reply of an attempt that took effect was lost.
        None => {
            let found = transaction
                .query_opt(&find, &[&row.id.0, &None::<&str>])
                .await?;
            found.ok_or(Error::Fenced)?
        }
    };
    let written = cron_of(&written)?;
    transaction.commit().await?;
    Ok(CreatedCron::Done(Box::new(written)))
}

pub(super) async fn cron(
    db: &Object,
    id: CronId,
    viewer: &Option<Arc<str>>,
) -> Result<Option<CronRow>> {
    let viewer = viewer.as_deref().map(name);
    one(db, VISIBLE, &[&id.0, &viewer], cron_of).await
}

pub(super) async fn replace_cron(
    db: &Object,
    old: &CronRow,
    new: &CronRow,
) -> Result<Option<CronRow>> {
    let bound = Bound::of(new, db.format);
    let params: Params<'_, 13> = [
        &old.id.0,
        &bound.owner,
        &Time(old.updated_at),
        &old.next_run.map(Time),
        &new.schedule,
        &new.timezone,
        &bound.end_time,
        &new.enabled,
        &bound.on_run_completed,
        &bound.metadata,
        &&*bound.tag,
        &bound.payload,
        &bound.next_run,
    ];
    one(db, REPLACE, &params, cron_of).await
}

pub(super) async fn delete_cron(
    db: &Object,
    id: CronId,
    viewer: &Option<Arc<str>>,
) -> Result<bool> {
    let viewer = viewer.as_deref().map(name);
    Ok(execute(db, DELETE, &[&id.0, &viewer]).await? > 0)
}

statements!(CLOCK, SHARE_TREE, SHARE_ASSISTANT, INSERT, VISIBLE, REPLACE, DELETE; lists);
