//! Storing what an execution has: results of tasks, and checkpoints.

use std::{collections::HashMap, sync::Arc};

use super::{
    barrier::Barrier,
    channels,
    error::Error,
    event::Kind,
    execution::{Execution, WrittenRow},
    message_index::{self, ChangeSource, IndexRows},
};
use crate::{
    checkpoint::{
        Checkpoint, Commit, Pending, Slot, Source,
        frame::{self, Appended},
    },
    id::{BranchId, CheckpointId, ThreadId, TreeId},
};
use queue::QueuedWrites;
use writer::RunWriter;

pub mod ahead_memory;
pub mod at_exit;
pub mod lead;
pub mod pipeline;
pub mod queue;
pub mod writer;

/// Queues the writes of a finished task for the next commit, and what must not be stored without
/// them; while its siblings run they are written within a moment. A failure to store shows at the
/// next commit.
pub async fn enqueue(
    execution: &Execution,
    writes: Vec<Pending>,
    barrier: Option<Barrier>,
    also: Option<QueuedWrites>,
    others_run: bool,
) {
    let Some(writer) = writer_of(execution) else {
        return;
    };
    let own = (!writes.is_empty()).then(|| QueuedWrites {
        ns: execution.ns.clone(),
        checkpoint: execution.current.id,
        writes,
        barrier,
    });
    writer
        .enqueue(own.into_iter().chain(also), others_run)
        .await;
}

/// The writer, if the execution stores anything.
fn writer_of(execution: &Execution) -> Option<&Arc<RunWriter>> {
    let writer = execution.context.writer.as_ref();
    writer.filter(|_| execution.stores)
}

/// From here on, events of a run whose stream has a log are shown once what the barrier goes with is stored. Nothing for an
/// execution that stores nothing, or only when it ends, or whose storage has failed: a later attempt has the stream then.
pub fn barrier(execution: &Execution) -> Option<Barrier> {
    let writer = writer_of(execution)?;
    let stores = !execution.stores_at_exit() && !writer.has_failed();
    stores.then(|| execution.context.sink.barrier()).flatten()
}

/// Makes everything that is queued durable: tasks wait or failed, and no commit follows.
///
/// # Errors
/// The storage failed, or another writer took over.
pub async fn flush(execution: &Execution) -> Result<(), Error> {
    match &execution.context.writer {
        Some(writer) if !execution.stores_at_exit() => Ok(writer.flush().await?),
        _ => Ok(()),
    }
}

/// Before an event of a kind names the present checkpoint: whoever reads that may look for it in the storage.
/// Waits until it is there, if anybody receives such events.
///
/// # Errors
/// A write failed, or another writer took over.
pub async fn before_naming(execution: &Execution, kind: Kind) -> Result<(), Error> {
    let is_received = execution.context.sink.wants(kind, &execution.ns);
    match writer_of(execution) {
        Some(writer) if is_received && !execution.stores_at_exit() => {
            Ok(writer.committed().await?)
        }
        _ => Ok(()),
    }
}

/// Before the tasks of a superstep run, or a client is told that they do not yet: waits for the checkpoint from which they
/// do, if the durability says so.
///
/// # Errors
/// A write failed, or another writer took over.
pub async fn before_superstep(execution: &Execution) -> Result<(), Error> {
    match writer_of(execution) {
        // Checkpoints of graphs inside are durable already.
        Some(writer) if execution.ns.is_empty() => Ok(writer.before_superstep().await?),
        _ => Ok(()),
    }
}

/// Moves to a new checkpoint and stores it, with the results of the tasks that led to it; what tells of it is behind a
/// barrier.
///
/// # Errors
/// An earlier write failed, or another writer took over.
pub async fn checkpoint(
    execution: &mut Execution,
    source: Source,
    barrier: Option<Barrier>,
) -> Result<(), Error> {
    execution.measure();
    let before = execution.current.id;
    let mut checkpoint = execution.advance(source);
    let late = execution.stores_at_exit();
    if execution.ns.is_empty() && !late {
        *execution.context.root.lock() = Some(checkpoint.id);
    }
    let Some(writer) = writer_of(execution).cloned() else {
        return Ok(());
    };
    if late {
        writer.discard_at(&execution.ns, before).await;
        return Ok(());
    }
    let parent = checkpoint.parent;
    let (commit, appended) = encode(execution, &mut checkpoint);
    let (ns, branch, format) = (
        &execution.ns,
        execution.context.branch,
        writer.saver().format(),
    );
    let rows = |queued: &QueuedWrites| {
        let own = queued.ns == *ns && Some(queued.checkpoint) == parent;
        let appended = own.then_some(&appended);
        let (at, of) = (queued.checkpoint, &queued.writes);
        frame::encode_writes(&queued.ns, at, branch, of, appended, format)
    };
    let row = written(&commit);
    writer.commit_with_queued(commit, rows, barrier).await?;
    note_stored(execution, row);
    Ok(())
}

/// The id of a checkpoint, and what is known of its row.
fn written(commit: &Commit) -> (CheckpointId, WrittenRow) {
    let row = &commit.checkpoint;
    let written = WrittenRow {
        created_at: row.created_at,
        weight: row.weight(),
    };
    (row.id, written)
}

/// Its present checkpoint is stored, or on its way.
fn note_stored(execution: &mut Execution, (id, row): (CheckpointId, WrittenRow)) {
    execution.current.stored = Some(id);
    execution.current.written = Some(row);
    execution.stored_any = true;
}

/// The rows of a checkpoint, and what its deltas appended.
fn encode(
    execution: &mut Execution,
    checkpoint: &mut Checkpoint,
) -> (Commit, HashMap<Arc<str>, Appended>) {
    let graph = execution.graph().clone();
    let indexed = match &execution.context.index {
        Some(index) if execution.ns.is_empty() => message_index::index_checkpoint(
            &**index,
            &graph,
            &execution.frame,
            checkpoint,
            ChangeSource::Run,
        ),
        _ => IndexRows::default(),
    };
    execution.current.last_node = checkpoint.last_node;
    let writer = execution.context.writer.as_ref();
    let format = writer.map(|writer| writer.saver().format());
    let format = format.unwrap_or_default();
    let shape = |name: &str| channels::shape(&graph, name);
    let encoded = (execution.frame).encode(&execution.ns, checkpoint, shape, format);
    let commit = Commit {
        slot: no_slot(),
        open: None,
        checkpoint: encoded.row,
        blobs: encoded.blobs,
        writes: vec![],
        nodes: indexed.nodes,
        events: indexed.events,
    };
    (commit, encoded.appended)
}

/// A placeholder that the writer replaces with the slot as it is then.
fn no_slot() -> Slot {
    Slot {
        tree: TreeId(uuid::Uuid::nil()),
        thread: ThreadId(uuid::Uuid::nil()),
        branch: BranchId(uuid::Uuid::nil()),
        epoch: 0,
        head: None,
        head_depth: -1,
    }
}
