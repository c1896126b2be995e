//! Whether a message is on a path, which the chain of messages decides. Checkpoints cannot decide
//! it: the one that added the message may be pruned, or may be on the path while the message was cut
//! off.

use crate::{
    checkpoint::Source,
    id::{CheckpointId, NodeId, TreeId},
    tree::{
        chain,
        error::Result,
        store::{MessageChange, MessageNode, Point, Position, Read, ThreadRow},
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
    node: &MessageNode,
) -> Result<bool> {
    let end = read.point(tree, head).await?;
    let Some(end) = end.and_then(|point| point.last_node) else {
        return Ok(false);
    };
    is_before(read, tree, end, node).await
}

/// Whether a thread sees a message.
///
/// # Errors
/// The storage failed.
pub async fn sees(read: &mut dyn Read, thread: &ThreadRow, node: &MessageNode) -> Result<bool> {
    if node.thread == thread.id {
        return Ok(true);
    }
    if node.change != MessageChange::Add {
        return Ok(read
            .visible(thread.tree, thread.id, node.checkpoint)
            .await?);
    }
    match last_inherited(read, thread).await? {
        Some(end) => is_before(read, thread.tree, end, node).await,
        None => Ok(false),
    }
}

/// The last message that a thread inherits. The checkpoint it was forked at may have more, when the
/// thread was forked at a message that one checkpoint added together with later ones.
///
/// # Errors
/// The storage failed.
pub async fn last_inherited(read: &mut dyn Read, thread: &ThreadRow) -> Result<Option<NodeId>> {
    let Some(base) = thread.fork_checkpoint else {
        return Ok(None);
    };
    let Some(point) = read.point(thread.tree, base).await? else {
        return Ok(None);
    };
    if point.last_node.is_none() {
        return Ok(None);
    }
    let Some(anchor) = &thread.fork_anchor else {
        let cut = trimmed_start(read, thread, &point).await?;
        return Ok(cut.map_or(point.last_node, |cut| cut.last_node));
    };
    let anchored = chain::find(read, thread.tree, point.last_node, |node| {
        node.checkpoint != base || node.message_id == *anchor
    });
    Ok(match anchored.await? {
        Some(node) if node.checkpoint == base => match thread.fork_position {
            Some(Position::Before) => node.parent,
            _ => Some(node.id),
        },
        _ => point.last_node,
    })
}

/// The trim checkpoint that a fork at no named message begins with, if its base was trimmed: the
/// first one that its first branch wrote.
async fn trimmed_start(
    read: &mut dyn Read,
    thread: &ThreadRow,
    base: &Point,
) -> Result<Option<Point>> {
    let (tree, id) = (thread.tree, thread.id);
    let own = read.own_points(tree, id, base.depth, 1).await?;
    let is_cut = |point: &Point| {
        point.parent == Some(base.id) && point.source == Source::Fork && point.run.is_none()
    };
    let Some(first) = own.into_iter().find(is_cut) else {
        return Ok(None);
    };
    let created = read.events(tree, id, thread.fork_event_number, 1).await?;
    let main = created.first().and_then(|event| event.branch);
    Ok(Some(first).filter(|first| main == Some(first.branch)))
}

/// Whether a message is one of those that end with `end`.
pub(crate) async fn is_before(
    read: &mut dyn Read,
    tree: TreeId,
    end: NodeId,
    node: &MessageNode,
) -> Result<bool> {
    let there = read.segment(tree, end, node.ordinal - 1, 1).await?;
    Ok(there.first().is_some_and(|there| there.id == node.id))
}
