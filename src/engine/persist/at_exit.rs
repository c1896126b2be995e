//! Storing what is left when a graph stops, in `Exit` durability.

use super::{encode, note_stored, queue::DeferredCheckpoint, writer_of, written};
use crate::{
    checkpoint::frame,
    engine::{error::Error, execution::Execution},
};

/// In `Exit` durability: stores the last state of a graph that stops, and what is pending. A graph
/// inside is stored with the root, which may yet go on: its rows lie below the root's. If it `leaves_rest`,
/// the last state may be left to [`RunWriter::finish_with_rest`](super::writer::RunWriter::finish_with_rest).
///
/// # Errors
/// The storage failed, or another writer took over.
pub async fn store_at_exit(execution: &mut Execution, leaves_rest: bool) -> Result<(), Error> {
    if !execution.stores_at_exit() {
        return Ok(());
    }
    let Some(writer) = writer_of(execution).cloned() else {
        return Ok(());
    };
    if !execution.ns.is_empty() {
        if let Some(deferred) = defer(execution) {
            writer.defer(deferred).await;
        }
        return Ok(());
    }
    let is_left = leaves_rest && writer.keep_rest().await;
    let stored = execution.current.stored;
    if execution.current.exists && stored != Some(execution.current.id) {
        let mut checkpoint = execution.checkpoint(stored);
        // Those between are never stored, and the next run may begin from memory.
        execution.current.parent = stored;
        let (commit, _) = encode(execution, &mut checkpoint);
        let row = written(&commit);
        writer.commit(commit).await?;
        note_stored(execution, row);
    }
    if is_left {
        return Ok(());
    }
    writer.commit_deferred(execution.current.id).await?;
    if !execution.context.recovery.offers_resume() {
        writer.discard_resume().await;
    }
    Ok(writer.flush().await?)
}

/// The state of a graph inside, as it is stored later; nothing if all of it is stored.
fn defer(execution: &mut Execution) -> Option<DeferredCheckpoint> {
    let stored = execution.current.stored;
    let (commit, checkpoint) = if !execution.current.exists {
        return None;
    } else if stored != Some(execution.current.id) {
        let mut checkpoint = execution.checkpoint(stored);
        let (commit, _) = encode(execution, &mut checkpoint);
        (Some(commit), checkpoint)
    } else if execution.pending.is_empty() {
        return None;
    } else {
        (None, execution.checkpoint(execution.current.parent))
    };
    let pending = execution.pending.iter();
    let decoded = frame::Decoded {
        checkpoint,
        frame: execution.frame.clone(),
        writes: pending
            .map(|write| (execution.context.branch, write.clone()))
            .collect(),
        references: vec![],
    };
    execution.current.stored = Some(execution.current.id);
    execution.stored_any = true;
    Some(DeferredCheckpoint {
        ns: execution.ns.clone(),
        commit,
        decoded,
        _memory: execution.memory.take(),
    })
}
