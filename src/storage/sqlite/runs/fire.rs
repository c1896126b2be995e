//! The due time of a cron: its run is created and the cron moves on, in one transaction.

use rusqlite::{Connection, params};

use super::create_or_nothing;
use crate::{
    checkpoint::Result,
    runs::{Created, Fired, Firing, request::codec, transitions::firing::CronChange},
    storage::sqlite::connection::Writing,
    time::Timestamp,
};

const IS_DUE: &str = "SELECT 1 FROM crons WHERE cron_id = ?1 AND next_run_at = ?2 \
    AND updated_at = ?3 AND enabled";

const ADVANCE: &str =
    "UPDATE crons SET next_run_at = ?2, last_run_at = coalesce(?3, last_run_at) WHERE cron_id = ?1";

const DISABLE: &str =
    "UPDATE crons SET enabled = 0, updated_at = max(?2, updated_at + 1) WHERE cron_id = ?1";

const FORGET: &str = "DELETE FROM crons WHERE cron_id = ?1";

/// See [`runs::Store::fire`](crate::runs::Store::fire).
pub(in super::super) fn fire(db: &Writing<'_>, firing: &Firing) -> Result<Fired> {
    let cron = firing.cron;
    let is_due =
        db.prepare_cached(IS_DUE)?
            .exists(params![cron, firing.due.0, firing.updated_at.0])?;
    if !is_due {
        return Ok(Fired::Lost);
    }
    let Some(run) = &firing.run else {
        change(db, firing, None, Timestamp::now())?;
        return Ok(Fired::Skipped);
    };
    let kwargs = codec::encode(&run.kwargs, run.columns(), db.format);
    let now = Timestamp::now();
    let created = create_or_nothing(db, run.clone(), &kwargs, now)?;
    change(db, firing, Some(&created), now)?;
    Ok(Fired::Past(created))
}

/// Changes the cron by what became of its run.
fn change(
    db: &Connection,
    firing: &Firing,
    created: Option<&Created>,
    now: Timestamp,
) -> Result<()> {
    let cron = firing.cron;
    match CronChange::after(created) {
        CronChange::Advance { has_run } => {
            let next = firing.next.map(|next| next.0);
            let last = has_run.then_some(firing.now.0);
            db.prepare_cached(ADVANCE)?
                .execute(params![cron, next, last])?;
        }
        CronChange::Disable => {
            db.prepare_cached(DISABLE)?.execute(params![cron, now.0])?;
        }
        CronChange::Delete => {
            db.prepare_cached(FORGET)?.execute([cron])?;
        }
    }
    Ok(())
}
