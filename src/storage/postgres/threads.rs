//! Threads and the slots of their active branches.

use rows::{SELECT, slot_of, thread_of};

use super::{
    columns::{Json, Params},
    connection::{Object, Result, prepare},
    events::{append_rows, ended},
    runs::create::LOCK,
};
use crate::{
    checkpoint::{Error, Slot},
    id::ThreadId,
    tree::{Outcome, Thread},
    value::{Map, Value},
};

pub(super) mod blobs;
mod copy;
pub(super) mod create;
pub(super) mod delete;
pub(super) mod event_facts;
pub(super) mod expiry;
mod interrupts;
pub(super) mod made_values;
mod narrow;
pub(super) mod prune;
pub(super) mod rows;
mod search;
mod with_checkpoint;
mod with_level;

pub(super) use copy::copy_thread;
pub(super) use create::create_thread;
pub(super) use delete::{delete_thread, delete_tree};
pub(super) use expiry::{expiry, take_expired};
pub(super) use interrupts::pending_interrupts;
pub(super) use prune::prune_thread;
pub(super) use search::{count, search};
pub(super) use with_checkpoint::thread_with_checkpoint;
pub(super) use with_level::thread_with_level;

const PATCH: &str = "
UPDATE threads SET metadata = metadata || $2, updated_at = now() WHERE thread_id = $1 AND deleted_at IS NULL";

const SLOT: &str = "
SELECT b.tree_id, b.thread_id, b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth
  FROM threads t JOIN branches b ON b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id
 WHERE t.thread_id = $1 AND t.deleted_at IS NULL";

/// A run that holds the slot ends with it. Behind the lock of `create`, so that a claim that was
/// quicker is seen.
const TAKE: &str = concat!(
    "
WITH b AS (
  UPDATE branches b SET writer_epoch = b.writer_epoch + 1 FROM threads t
   WHERE t.thread_id = $1 AND t.deleted_at IS NULL AND b.tree_id = t.tree_id AND b.branch_id = t.active_branch_id
  RETURNING b.tree_id, b.thread_id, b.branch_id, b.writer_epoch, b.head_checkpoint_id, b.head_depth),
r AS (
  UPDATE runs r SET status = 'interrupted', last_checkpoint_id = b.head_checkpoint_id, updated_at = now() FROM b
   WHERE r.tree_id = b.tree_id AND r.thread_id = b.thread_id AND r.status IN ('pending', 'running')
     AND CASE WHEN r.status = 'running' THEN r.branch_id = b.branch_id END
  RETURNING r.tree_id, r.thread_id, r.seq, r.run_id, r.branch_id, r.base_checkpoint_id AS base, r.last_checkpoint_id AS head, r.status, r.temporary),
d AS (SELECT * FROM r),",
    ended!(),
    append_rows!(),
    "
SELECT * FROM b"
);

const RECORD_OUTCOME: &str = "
WITH b AS (
  UPDATE branches SET outcome = $4, error = $5, updated_at = now()
   WHERE tree_id = $1 AND branch_id = $2 AND writer_epoch = $3 AND head_checkpoint_id IS NOT DISTINCT FROM $6 RETURNING thread_id)
UPDATE threads SET updated_at = now() WHERE thread_id = (SELECT b.thread_id FROM b)";

pub(super) async fn thread(db: &Object, id: ThreadId) -> Result<Option<Thread>> {
    let statement = prepare(db, SELECT).await?;
    let row = db.query_opt(&statement, &[&id.0]).await?;
    Ok(row.as_ref().map(thread_of).transpose()?)
}

pub(super) async fn patch_thread(
    db: &Object,
    id: ThreadId,
    metadata: &Map,
) -> Result<Option<Thread>> {
    let patch = prepare(db, PATCH).await?;
    let select = prepare(db, SELECT).await?;
    let json = Json::of_map(metadata);
    let (by_id, change): (Params<'_, 1>, Params<'_, 2>) = ([&id.0], [&id.0, &json]);
    let (patched, row) = tokio::join!(
        biased;
        db.execute(&patch, &change),
        db.query_opt(&select, &by_id),
    );
    patched?;
    Ok(row?.as_ref().map(thread_of).transpose()?)
}

pub(super) async fn take_slot(db: &Object, id: ThreadId) -> Result<Option<Slot>> {
    let lock = prepare(db, LOCK).await?;
    let take = prepare(db, TAKE).await?;
    let active: Params<'_, 2> = [&id.0, &None::<uuid::Uuid>];
    let id: Params<'_, 1> = [&id.0];
    let (begin, locked, row, end) = tokio::join!(
        biased;
        db.batch_execute("BEGIN"),
        db.query_opt(&lock, &active),
        db.query_opt(&take, &id),
        db.batch_execute("COMMIT"),
    );
    begin?;
    locked?;
    let row = row?;
    end?;
    Ok(row.as_ref().map(slot_of).transpose()?)
}

pub(super) async fn slot(db: &Object, id: ThreadId) -> Result<Option<Slot>> {
    let statement = prepare(db, SLOT).await?;
    let row = db.query_opt(&statement, &[&id.0]).await?;
    Ok(row.as_ref().map(slot_of).transpose()?)
}

pub(super) async fn record_outcome(
    db: &Object,
    slot: Slot,
    outcome: Outcome,
    error: &Option<Value>,
) -> Result<()> {
    let statement = prepare(db, RECORD_OUTCOME).await?;
    let error = error.as_ref().map(Json::of_value);
    let outcome = outcome.as_str();
    let head = slot.head.map(|head| head.0);
    let params: Params<'_, 6> = [
        &slot.tree.0,
        &slot.branch.0,
        &slot.epoch,
        &outcome,
        &error,
        &head,
    ];
    if db.execute(&statement, &params).await? == 0 {
        return Err(Error::Fenced.into());
    }
    Ok(())
}

statements!(PATCH, SLOT, TAKE, RECORD_OUTCOME; blobs, copy, create, delete, event_facts, expiry, interrupts, made_values, narrow, prune, rows, search, with_checkpoint, with_level);
