//! Where the state of a graph inside is found: at the checkpoint that the request names, or the newest
//! one on the run's path.

use std::{slice, sync::Arc};

use crate::{
    budget::Reservation,
    checkpoint::{
        At, Query, Saver,
        codec::IN_MEMORY,
        frame::{self, Decoded},
        references::References,
    },
    contention::shares::apart_in_this_run,
    engine::{error::Error, persist::writer::Durability, run_context::RunContext},
    id::{BranchId, CheckpointId, TreeId},
};

/// A state, and what it takes in memory.
pub struct Loaded {
    pub decoded: Decoded,
    pub memory: Option<Reservation>,
}

/// The state of a namespace at a checkpoint.
pub async fn at(
    context: &RunContext,
    ns: &Arc<str>,
    id: CheckpointId,
) -> Result<Option<Loaded>, Error> {
    load(context, ns, move |_| At::Id(id)).await
}

/// The newest state of a namespace on the run's path.
pub async fn find(
    context: &RunContext,
    ns: &Arc<str>,
    before: Option<CheckpointId>,
) -> Result<Option<Loaded>, Error> {
    let Some(writer) = &context.writer else {
        return Ok(None);
    };
    if before.is_none()
        && let Some(deferred) = writer.find_deferred(ns).await
    {
        return Ok(Some(Loaded {
            decoded: deferred,
            memory: context.charge(0),
        }));
    }
    let Some(start) = *context.root.lock() else {
        return Ok(None);
    };
    let at = move |branch| At::Subgraph {
        start,
        branch,
        before,
    };
    load(context, ns, at).await
}

/// Reads it apart from the node that calls the graph: one that left this alone half way would keep what it has from all
/// others of the run.
async fn load(
    context: &RunContext,
    ns: &Arc<str>,
    at: impl FnOnce(BranchId) -> At + Send + 'static,
) -> Result<Option<Loaded>, Error> {
    let Some(writer) = context.writer.clone() else {
        return Ok(None);
    };
    let ns = ns.clone();
    let saver = writer.saver().clone();
    let read = async move {
        if writer.durability() != Durability::Exit {
            // The rows it may be in, and the path to them, can still be on their way.
            writer.flush().await?;
        }
        // What was asked inside where the run begins is copied when the branch of the run is opened.
        writer.open_copy().await?;
        let slot = writer.slot().await;
        let query = Query {
            tree: slot.tree,
            thread: slot.thread,
            ns,
            at: at(slot.branch),
            values: true,
        };
        Ok::<_, Error>((slot, writer.saver().load(query).await?))
    };
    let (slot, stored) = apart_in_this_run(read).await?;
    let Some(mut stored) = stored else {
        return Ok(None);
    };
    stored.writes.retain(|write| write.branch == slot.branch);
    // The run goes on with what it has, so it does not wait for more.
    let bytes = stored.weight().saturating_mul(IN_MEMORY);
    let memory = context.charge(usize::try_from(bytes).unwrap_or(usize::MAX));
    let loaded = Loaded {
        decoded: frame::decode(&stored)?,
        memory,
    };
    if loaded.decoded.references.is_empty() {
        return Ok(Some(loaded));
    }
    let (tree, ns) = (slot.tree, stored.row.ns.clone());
    // On the heap, since every task's future would have room for it.
    let resolve = Box::pin(async move { resolve(&saver, tree, &ns, loaded).await });
    apart_in_this_run(resolve).await.map(Some)
}

/// Reads the values to which the pending writes of a state refer, once there is memory for them as well.
async fn resolve(
    saver: &Arc<dyn Saver>,
    tree: TreeId,
    ns: &Arc<str>,
    mut loaded: Loaded,
) -> Result<Loaded, Error> {
    let page = slice::from_mut(&mut loaded.decoded);
    let references = References::of(saver, tree, ns, page).await?;
    let bytes = references.weight().saturating_mul(IN_MEMORY);
    if let Some(memory) = &mut loaded.memory {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        memory.charge(memory.bytes().saturating_add(bytes));
    }
    references.resolve(page).await?;
    Ok(loaded)
}
