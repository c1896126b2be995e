//! What a thread's log says of its runs: created, started, ended. Runs whose threads go with them
//! are not mentioned.

use rusqlite::{Connection, params};

use super::super::events;
use crate::{
    checkpoint::{Error, Slot},
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
    runs::{Run, Status},
    time::Timestamp,
    tree::{event, store::rows::NewEvent},
};

/// A run was inserted, and may have been claimed at once.
pub(super) fn created(db: &Connection, run: &Run, now: Timestamp) -> Result<(), Error> {
    if run.temporary {
        return Ok(());
    }
    let about = |kind| NewEvent {
        kind,
        payload: event::about_run(run.id),
        branch: run.branch,
        ..NewEvent::default()
    };
    let mut told = vec![about(event::RUN_ENQUEUED)];
    if run.status == Status::Running {
        told.push(about(event::RUN_STARTED));
    }
    events::append(db, run.tree, run.thread, &told, now).map(drop)
}

/// A run was taken from the queue.
pub(super) fn started(
    db: &Connection,
    run: &Run,
    slot: &Slot,
    now: Timestamp,
) -> Result<(), Error> {
    if run.temporary {
        return Ok(());
    }
    let told = NewEvent {
        kind: event::RUN_STARTED,
        payload: event::about_run(run.id),
        branch: Some(slot.branch),
        ..NewEvent::default()
    };
    events::append(db, run.tree, run.thread, &[told], now).map(drop)
}

/// A run that ended.
pub(super) struct Ended {
    pub(super) tree: TreeId,
    pub(super) thread: ThreadId,
    pub(super) run: RunId,
    /// The branch it worked on.
    pub(super) branch: BranchId,
    /// Where it began.
    pub(super) base: Option<CheckpointId>,
    /// Where it left its branch; `None` when it never ran, or what it did is undone.
    pub(super) head: Option<CheckpointId>,
    pub(super) status: Status,
}

/// Says so, with the checkpoint the run left, and settles its last message there.
pub(super) fn ended(db: &Connection, end: &Ended, now: Timestamp) -> Result<(), Error> {
    let mut told = vec![];
    if let Some(head) = end.head.filter(|_| end.head != end.base) {
        db.prepare_cached(
            "UPDATE message_nodes SET settled_checkpoint_id = ?2 WHERE tree_id = ?1 \
             AND node_id = (SELECT last_node_id FROM checkpoints \
               WHERE tree_id = ?1 AND checkpoint_ns = '' AND checkpoint_id = ?2) \
             AND run_id = ?3",
        )?
        .execute(params![
            end.tree.0.as_bytes(),
            head.0.as_bytes(),
            end.run.0.as_bytes(),
        ])?;
        told.push(NewEvent {
            kind: event::CHECKPOINT_CREATED,
            branch: Some(end.branch),
            checkpoint: Some(head),
            ..NewEvent::default()
        });
    }
    told.push(NewEvent {
        kind: event::RUN_FINISHED,
        payload: event::end_of_run(end.run, end.status.as_str()),
        branch: Some(end.branch),
        checkpoint: end.head,
        ..NewEvent::default()
    });
    events::append(db, end.tree, end.thread, &told, now).map(drop)
}
