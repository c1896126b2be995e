//! Storing what a level has: task results, checkpoints, and the rest at the end of a run.

use std::sync::Arc;

use super::{
    error::Error,
    index::{self, By},
    journal::{Late, Waiting},
    level::Level,
};
use crate::{
    channel::{Kind, Shape},
    checkpoint::{Checkpoint, Commit, Pending, Slot, Source, frame},
    graph::Compiled,
    id::{BranchId, ThreadId, TreeId},
};

/// Keeps the writes of a finished task for the next commit; while its siblings run they are
/// written within a moment. A failure to store shows at the next commit.
pub async fn keep(level: &Level, writes: Vec<Pending>, others_run: bool) {
    keep_with(level, writes, None, others_run).await;
}

/// [`keep`] with something of another level that must not be stored without it.
pub async fn keep_with(
    level: &Level,
    writes: Vec<Pending>,
    also: Option<Waiting>,
    others_run: bool,
) {
    let Some(journal) = level.scope.journal.as_ref().filter(|_| level.stores) else {
        return;
    };
    let waiting = Waiting {
        ns: level.ns.clone(),
        checkpoint: level.current.id,
        writes,
    };
    journal
        .keep([waiting].into_iter().chain(also), others_run)
        .await;
}

/// Makes everything that waits durable: tasks ask or failed, and no commit follows.
///
/// # Errors
/// The storage failed, or another writer took over.
pub async fn flush(level: &Level) -> Result<(), Error> {
    match &level.scope.journal {
        Some(journal) if !level.exits_late() => Ok(journal.flush().await?),
        _ => Ok(()),
    }
}

/// Stands on a new checkpoint and stores it, with the results of the tasks that led to it.
///
/// # Errors
/// An earlier write failed, or another writer took over.
pub async fn checkpoint(level: &mut Level, source: Source) -> Result<(), Error> {
    let before = level.current.id;
    let checkpoint = level.stand_on(source);
    if level.ns.is_empty() && !level.exits_late() {
        *level.scope.root.lock() = Some(checkpoint.id);
    }
    let Some(journal) = level.scope.journal.clone().filter(|_| level.stores) else {
        return Ok(());
    };
    if level.exits_late() {
        journal.forget(&level.ns, before).await;
        return Ok(());
    }
    let waiting = journal.take_waiting().await;
    store(level, checkpoint, waiting).await
}

async fn store(
    level: &mut Level,
    mut checkpoint: Checkpoint,
    waiting: Vec<Waiting>,
) -> Result<(), Error> {
    let Some(journal) = level.scope.journal.clone() else {
        return Ok(());
    };
    let id = checkpoint.id;
    let commit = encode(level, &mut checkpoint, waiting);
    journal.commit(commit).await?;
    level.current.stored = Some(id);
    level.saved = true;
    Ok(())
}

fn encode(level: &mut Level, checkpoint: &mut Checkpoint, waiting: Vec<Waiting>) -> Commit {
    let graph = level.graph().clone();
    let indexed = match &level.scope.index {
        Some(index) if level.ns.is_empty() => {
            index::index(&**index, &graph, &level.frame, checkpoint, By::Run)
        }
        _ => index::Rows::default(),
    };
    level.current.last_node = checkpoint.last_node;
    let encoded = level
        .frame
        .encode(&level.ns, checkpoint, |name| shape(&graph, name));
    let branch = level.scope.branch;
    let writes = waiting
        .iter()
        .flat_map(|waiting| {
            let own = waiting.ns == level.ns && Some(waiting.checkpoint) == checkpoint.parent;
            frame::encode_writes(
                &waiting.ns,
                waiting.checkpoint,
                branch,
                &waiting.writes,
                own.then_some(&encoded.appended),
            )
        })
        .collect();
    Commit {
        slot: nobody(),
        open: None,
        checkpoint: encoded.row,
        blobs: encoded.blobs,
        writes,
        nodes: indexed.nodes,
        events: indexed.events,
    }
}

/// How a channel of `graph` grows.
pub(super) fn shape(graph: &Compiled, name: &str) -> Shape {
    match graph.channel(name).map(|spec| &spec.kind) {
        Some(Kind::Aggregate(reducer)) => reducer.shape(),
        Some(Kind::Topic { accumulate: true }) => Shape::Append,
        _ => Shape::Plain,
    }
}

/// In `Exit` durability: stores the last state of a level that ends, and what is pending. A
/// graph inside is stored with the root, which may yet go on: its rows lie below the root's.
///
/// # Errors
/// The storage failed, or another writer took over.
pub async fn at_exit(level: &mut Level) -> Result<(), Error> {
    let Some(journal) = level.scope.journal.clone().filter(|_| level.stores) else {
        return Ok(());
    };
    if !level.exits_late() {
        return Ok(());
    }
    let new = level.current.exists && level.current.stored != Some(level.current.id);
    let mut checkpoint = new.then(|| level.checkpoint(level.current.stored));
    if !level.ns.is_empty() {
        let commit = checkpoint
            .as_mut()
            .map(|checkpoint| encode(level, checkpoint, vec![]));
        let checkpoint = match checkpoint {
            Some(checkpoint) => checkpoint,
            // Nothing to be found that is not stored.
            None if level.pending.is_empty() => return Ok(()),
            None if level.current.exists => level.checkpoint(level.current.parent),
            None => return Ok(()),
        };
        let decoded = frame::Decoded {
            checkpoint,
            frame: level.frame.clone(),
            writes: level
                .pending
                .iter()
                .map(|write| (level.scope.branch, write.clone()))
                .collect(),
            references: vec![],
        };
        level.current.stored = Some(level.current.id);
        level.saved = true;
        let ns = level.ns.clone();
        let late = Late {
            ns,
            commit,
            decoded,
        };
        journal.keep_late(late).await;
        return Ok(());
    }
    if let Some(checkpoint) = checkpoint {
        store(level, checkpoint, vec![]).await?;
    }
    journal.commit_late(level.current.id).await?;
    if level.scope.answer.lock().is_none() {
        journal.forget_answer().await;
    }
    Ok(journal.flush().await?)
}

/// A placeholder that the journal replaces with the slot as it is then.
fn nobody() -> Slot {
    Slot {
        tree: TreeId(uuid::Uuid::nil()),
        thread: ThreadId(uuid::Uuid::nil()),
        branch: BranchId(uuid::Uuid::nil()),
        epoch: 0,
        head: None,
        head_depth: -1,
    }
}

/// Results of a task's steps, durable when this returns.
///
/// # Errors
/// The storage failed, or another writer took over.
pub async fn steps(journal: &Arc<super::journal::Journal>, waiting: Waiting) -> Result<(), Error> {
    journal.keep([waiting], false).await;
    Ok(journal.flush().await?)
}
