//! Storing what an execution has: results of tasks, and checkpoints.

use std::sync::Arc;

use super::{
    channels,
    error::Error,
    event::Kind,
    execution::{Execution, WrittenRow},
    message_index::{self, ChangeSource, IndexRows},
};
use crate::{
    checkpoint::{Checkpoint, Commit, Pending, Slot, Source, frame},
    id::{BranchId, ThreadId, TreeId},
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

/// Moves to a new checkpoint and stores it, with the results of the tasks that led to it.
///
/// # Errors
/// An earlier write failed, or another writer took over.
pub async fn checkpoint(execution: &mut Execution, source: Source) -> Result<(), Error> {
    execution.measure();
    let before = execution.current.id;
    let checkpoint = execution.advance(source);
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
    let writes = writer.take_queued().await;
    store(execution, &writer, checkpoint, &writes).await
}

async fn store(
    execution: &mut Execution,
    writer: &RunWriter,
    mut checkpoint: Checkpoint,
    writes: &[QueuedWrites],
) -> Result<(), Error> {
    let id = checkpoint.id;
    let commit = encode(execution, &mut checkpoint, writes);
    let written = WrittenRow {
        created_at: commit.checkpoint.created_at,
        weight: commit.checkpoint.weight(),
    };
    writer.commit(commit).await?;
    execution.current.stored = Some(id);
    execution.current.written = Some(written);
    execution.stored_any = true;
    Ok(())
}

/// The rows of a checkpoint and of the writes that travel with it.
fn encode(
    execution: &mut Execution,
    checkpoint: &mut Checkpoint,
    writes: &[QueuedWrites],
) -> Commit {
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
    let branch = execution.context.branch;
    let writes = writes
        .iter()
        .flat_map(|queued| {
            let own = queued.ns == execution.ns && Some(queued.checkpoint) == checkpoint.parent;
            frame::encode_writes(
                &queued.ns,
                queued.checkpoint,
                branch,
                &queued.writes,
                own.then_some(&encoded.appended),
                format,
            )
        })
        .collect();
    Commit {
        slot: no_slot(),
        open: None,
        checkpoint: encoded.row,
        blobs: encoded.blobs,
        writes,
        nodes: indexed.nodes,
        events: indexed.events,
    }
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
