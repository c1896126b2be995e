//! Threads and the slots of their active branches.

use rusqlite::{Connection, params};
use slots::{is_head, raise_epoch};

use super::{columns::map_text, runs};
use crate::{
    checkpoint::{Error, Result, Slot},
    id::ThreadId,
    time::Timestamp,
    tree::{Outcome, Thread},
    value::{Map, Value},
};

pub(super) mod blobs;
pub(super) mod copy;
pub(super) mod create;
pub(super) mod delete;
pub(super) mod event_facts;
pub(super) mod expiry;
mod interrupts;
pub(super) mod made_values;
mod narrow;
pub(super) mod prune;
mod rows;
mod search;
pub(super) mod slots;
mod with_checkpoint;
mod with_level;

pub(super) use copy::copy_thread;
pub(super) use create::create_thread;
pub(super) use delete::{delete_thread, delete_tree};
pub(super) use expiry::{expiry, take_expired};
pub(super) use interrupts::pending_interrupts;
pub(super) use prune::prune_thread;
pub(super) use rows::thread;
pub(super) use search::{count, search};
pub(super) use with_checkpoint::thread_with_checkpoint;
pub(super) use with_level::thread_with_level;

pub(super) fn patch_thread(
    db: &Connection,
    id: ThreadId,
    metadata: &Map,
) -> Result<Option<Thread>> {
    let Some(mut thread) = thread(db, id)? else {
        return Ok(None);
    };
    thread.metadata.extend(metadata.clone());
    let now = Timestamp::now();
    db.prepare_cached("UPDATE threads SET metadata = ?1, updated_at = ?2 WHERE thread_id = ?3")?
        .execute(params![map_text(&thread.metadata), now.0, id])?;
    thread.updated_at = thread.updated_at.max(now);
    Ok(Some(thread))
}

pub(super) fn take_slot(db: &Connection, id: ThreadId) -> Result<Option<Slot>> {
    let Some(mut slot) = slot(db, id)? else {
        return Ok(None);
    };
    // A run that is fenced off must not stay `running` for ever.
    runs::end_running(db, &slot, Timestamp::now())?;
    slot.epoch = raise_epoch(db, slot.tree, slot.branch)?;
    Ok(Some(slot))
}

pub(super) fn slot(db: &Connection, id: ThreadId) -> Result<Option<Slot>> {
    slots::slot(db, id, None)
}

pub(super) fn record_outcome(
    db: &Connection,
    slot: Slot,
    outcome: Outcome,
    error: &Option<Value>,
) -> Result<()> {
    if !is_head(db, &slot)? {
        return Err(Error::Fenced);
    }
    let now = Timestamp::now();
    slots::record_outcome(db, &slot, outcome, error.as_ref(), now)?;
    // Nothing else moves the time of the thread: no state is newer than its thread.
    db.prepare_cached("UPDATE threads SET updated_at = ?2 WHERE thread_id = ?1")?
        .execute(params![slot.thread, now.0])?;
    Ok(())
}
