//! Trim checkpoints: states without the newest messages of their parent, so that a branch can go
//! on from a message that one checkpoint added together with later ones.

use std::sync::Arc;

use super::content::MessageContents;
use crate::{
    checkpoint::{Slot, buffered::BufferedSaver, frame::Decoded},
    engine::StateUpdater,
    graph::Compiled,
    id::{CheckpointId, NodeId, TreeId},
    tree::{
        error::{Error, Result},
        resolve::Base,
        store::{Branch, Outcome, Point, Tx},
    },
    value::Map,
};

/// Commits a new head of `branch` without the messages `drop`, in which no node waits to run. The
/// present head is `of`. Returns the slot behind the new head and the state there.
///
/// # Errors
/// 409 `checkpoint_pruned`, a state that does not fit the graph, or the storage failed.
pub async fn trim(
    tx: &mut dyn Tx,
    values: &MessageContents<'_>,
    graph: &Arc<Compiled>,
    branch: &Branch,
    of: &Point,
    drop: &[Arc<str>],
) -> Result<(Slot, Decoded)> {
    let base = values.decoded(of.id).await?;
    let base = base.ok_or_else(|| pruned(of.id))?;
    let last = newest_remaining(tx, values.tree, of, drop).await?;
    let buffer = BufferedSaver::new(values.saver.clone());
    let edit = StateUpdater {
        saver: buffer.clone(),
        slot: branch.slot(),
        ns: "".into(),
        graph: graph.clone(),
        base: Some((*base).clone()),
        superseded: false,
        // The messages cut off were never on this path, so the index records no removal.
        index: None,
        metadata: Map::new(),
        run: None,
    };
    let (slot, mut state) = edit.without_messages(&values.channel, drop).await?;
    state.checkpoint.last_node = last;
    for mut commit in buffer.take() {
        commit.checkpoint.last_node = last;
        tx.put(commit).await?;
    }
    tx.set_outcome(values.tree, branch.id, Outcome::Idle)
        .await?;
    // The rest of this transaction reads it from the cache, and nobody else can know its id yet.
    // After a rollback nobody will.
    values.cache.insert(values.tree, state.clone());
    Ok((slot, state))
}

/// The newest message that remains.
async fn newest_remaining(
    tx: &mut dyn Tx,
    tree: TreeId,
    of: &Point,
    drop: &[Arc<str>],
) -> Result<Option<NodeId>> {
    let Some(last) = of.last_node else {
        return Ok(None);
    };
    let chain = tx.chain(tree, last, drop.len() + 1).await?;
    let remaining = chain
        .iter()
        .find(|node| node.checkpoint != of.id || !drop.contains(&node.message_id));
    Ok(remaining.map(|node| node.id))
}

/// 409: the checkpoint was pruned.
pub(super) fn pruned(id: CheckpointId) -> Error {
    Error::conflict(
        "checkpoint_pruned",
        format!("Checkpoint {id} was pruned: nothing can be built on it any more"),
    )
}

/// Removes from the head of a branch that was just made the messages that its base has beyond the
/// requested position; returns the branch as it is then.
///
/// # Errors
/// As [`trim`].
pub async fn trim_branch(
    tx: &mut dyn Tx,
    values: &MessageContents<'_>,
    graph: &Arc<Compiled>,
    branch: Branch,
    base: &Base,
) -> Result<Branch> {
    let Base::Trim { of, drop } = base else {
        return Ok(branch);
    };
    trim(tx, values, graph, &branch, of, drop).await?;
    let trimmed = tx.branch(values.tree, branch.id).await?;
    Ok(trimmed.unwrap_or(branch))
}
