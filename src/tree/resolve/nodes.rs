//! Whether a message is on a path: the chain of messages tells. Checkpoints do not, as the one a
//! message came with may be pruned, or be on the path while the message was cut off.

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
    let end = read.point(tree, head).await?;
    let Some(end) = end.and_then(|point| point.last_node) else {
        return Ok(false);
    };
    let there = read.segment(tree, end, node.ordinal - 1, 1).await?;
    Ok(there.first().is_some_and(|there| there.id == node.id))
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
        // Pruned, so that no checkpoint tells.
        Some(base) if read.point(thread.tree, node.checkpoint).await?.is_none() => {
            is_on_path(read, thread.tree, base, node).await
        }
        _ => Ok(false),
    }
}
