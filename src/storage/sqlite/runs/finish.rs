//! Runs that end by themselves.

use rusqlite::{Connection, OptionalExtension, params};

use super::{
    super::{
        row::id_if,
        threads::{self, delete},
    },
    log,
};
use crate::{checkpoint::Error, runs::Finish, time::Timestamp, value::Value};

/// See [`runs::Store::finish`](crate::runs::Store::finish).
pub(super) fn finish(db: &Connection, finish: &Finish, now: Timestamp) -> Result<(), Error> {
    let slot = &finish.slot;
    threads::settle(db, slot, finish.outcome, finish.error.as_ref(), now)?;
    let base = db
        .prepare_cached(
            "UPDATE runs SET status = ?2, last_checkpoint_id = ?3, error = ?4, updated_at = ?5 \
             WHERE run_id = ?1 AND status = 'running' AND epoch = ?6 RETURNING base_checkpoint_id",
        )?
        .query_row(
            params![
                finish.run.0.as_bytes(),
                finish.status.as_str(),
                slot.head.as_ref().map(|id| id.0.as_bytes()),
                finish.error.as_ref().map(Value::to_json),
                now.0,
                slot.epoch,
            ],
            |row| id_if(row, 0),
        )
        .optional()?
        .ok_or(Error::Fenced)?;
    if finish.delete_thread {
        return delete::thread(db, slot.tree, slot.thread, false);
    }
    let end = log::Ended {
        tree: slot.tree,
        thread: slot.thread,
        run: finish.run,
        branch: slot.branch,
        base,
        head: slot.head,
        status: finish.status,
    };
    log::ended(db, &end, now)
}
