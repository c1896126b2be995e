//! Whether a message is on a path. Its checkpoint tells, unless it was pruned: the message stays
//! then, and the chain of messages tells.

use crate::{
    id::{CheckpointId, TreeId},
    tree::{
        Error, Read,
        rows::{Node, ThreadRow},
    },
};

/// Whether a message is on the path that ends at `head`.
///
/// # Errors
/// The storage failed.
pub async fn is_on_path(
    read: &mut dyn Read,
    tree: TreeId,
    head: CheckpointId,
    node: &Node,
) -> Result<bool, Error> {
    if read.on_path(tree, head, node.checkpoint).await? {
        return Ok(true);
    }
    is_told_at(read, tree, head, node).await
}

/// Whether a thread sees a message.
///
/// # Errors
/// The storage failed.
pub async fn sees(read: &mut dyn Read, thread: &ThreadRow, node: &Node) -> Result<bool, Error> {
    if node.thread == thread.id
        || read
            .visible(thread.tree, thread.id, node.checkpoint)
            .await?
    {
        return Ok(true);
    }
    match thread.fork_checkpoint {
        Some(base) => is_told_at(read, thread.tree, base, node).await,
        None => Ok(false),
    }
}

/// Whether a message whose checkpoint was pruned is one of those up to a checkpoint.
async fn is_told_at(
    read: &mut dyn Read,
    tree: TreeId,
    at: CheckpointId,
    node: &Node,
) -> Result<bool, Error> {
    if read.point(tree, node.checkpoint).await?.is_some() {
        return Ok(false);
    }
    let end = read.point(tree, at).await?;
    let Some(end) = end.and_then(|point| point.last_node) else {
        return Ok(false);
    };
    let there = read.segment(tree, end, node.ordinal - 1, 1).await?;
    Ok(there.first().is_some_and(|there| there.id == node.id))
}
