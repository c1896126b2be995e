//! The checkpoint to build on: at a head, at a message or before it.

use std::sync::Arc;

use crate::{
    checkpoint::Source,
    id::CheckpointId,
    tree::{
        chain,
        error::{Error, Result},
        store::{Branch, MessageNode, Point, Read, ThreadRow},
    },
};

/// Rows of a path that are read at once.
pub(super) const PAGE: usize = 256;

/// Rows of a path that a request may walk.
pub(in crate::tree) const WALK_MAX: usize = 100_000;

/// The checkpoint to build on.
#[derive(Clone, Debug)]
pub enum Base {
    /// Nothing: before the first checkpoint.
    Empty,
    /// A checkpoint.
    At(Point),
    /// A checkpoint whose newest messages must be cut off first. What is built follows a child of
    /// it without them, in which no node waits to run.
    Trim {
        /// The checkpoint.
        of: Point,
        /// Ids of the messages to remove, oldest first.
        drop: Vec<Arc<str>>,
    },
}

impl Base {
    /// The checkpoint, if there is one, even if it must be trimmed.
    pub fn point(&self) -> Option<&Point> {
        match self {
            Self::Empty => None,
            Self::At(point) | Self::Trim { of: point, .. } => Some(point),
        }
    }

    /// Its id.
    pub fn id(&self) -> Option<CheckpointId> {
        self.point().map(|point| point.id)
    }
}

pub(super) async fn at_head(
    read: &mut dyn Read,
    thread: &ThreadRow,
    branch: &Branch,
) -> Result<Base> {
    match branch.head {
        Some(head) => Ok(Base::At(existing_checkpoint(read, thread, head).await?)),
        None => Ok(Base::Empty),
    }
}

/// Finds a checkpoint that a row of the thread names. Pruning may have removed it, or rolling back
/// its run.
pub(super) async fn existing_checkpoint(
    read: &mut dyn Read,
    thread: &ThreadRow,
    id: CheckpointId,
) -> Result<Point> {
    let point = read.point(thread.tree, id).await?;
    point.ok_or_else(|| pruned(format!("Checkpoint {id} is gone")))
}

/// The parent of a checkpoint; `None` for the first one.
pub(super) async fn parent_of(
    read: &mut dyn Read,
    thread: &ThreadRow,
    point: &Point,
) -> Result<Option<Point>> {
    let parent = match point.parent {
        Some(id) => Some(existing_checkpoint(read, thread, id).await?),
        None => None,
    };
    if follows_directly(point, parent.as_ref()) {
        Ok(parent)
    } else {
        Err(pruned(format!("What was before {} is gone", point.id)))
    }
}

/// Whether nothing was pruned between a checkpoint and its parent. Pruning makes the nearest
/// remaining ancestor the parent, and then the depths of the two differ by more than one.
pub(super) fn follows_directly(point: &Point, parent: Option<&Point>) -> bool {
    parent.map_or(-1, |parent| parent.depth) + 1 == point.depth
}

pub(super) fn pruned(what: String) -> Error {
    Error::conflict(
        "checkpoint_pruned",
        format!("{what}: nothing can be built on it any more"),
    )
}

/// The checkpoint at the end of the turn that a message ends, or else the first one with the
/// message.
pub async fn at_message(
    read: &mut dyn Read,
    thread: &ThreadRow,
    node: &MessageNode,
) -> Result<Base> {
    if let Some(turn_end) = node.turn_end
        && let Some(point) = read.point(thread.tree, turn_end).await?
        && (point.thread == thread.id || read.visible(thread.tree, thread.id, turn_end).await?)
    {
        return Ok(Base::At(point));
    }
    let first = existing_checkpoint(read, thread, node.checkpoint).await?;
    let beside = messages_beside(read, thread, node, &first).await?;
    let drop: Vec<_> = beside
        .into_iter()
        .filter(|other| other.seq > node.seq)
        .map(|other| other.message_id)
        .collect();
    Ok(if drop.is_empty() {
        Base::At(first)
    } else {
        Base::Trim { of: first, drop }
    })
}

/// The state before a message was added. A checkpoint that has just the input of a run does not
/// count: it contains the message already, and a run without input would replay it.
pub async fn before_message(
    read: &mut dyn Read,
    thread: &ThreadRow,
    node: &MessageNode,
) -> Result<Base> {
    let first = existing_checkpoint(read, thread, node.checkpoint).await?;
    let beside = messages_beside(read, thread, node, &first).await?;
    if beside.iter().any(|other| other.seq < node.seq) {
        let drop = beside
            .into_iter()
            .filter(|other| other.seq >= node.seq)
            .map(|other| other.message_id)
            .collect();
        return Ok(Base::Trim { of: first, drop });
    }
    let mut below = first;
    for _ in 0..WALK_MAX {
        match parent_of(read, thread, &below).await? {
            None => return Ok(Base::Empty),
            Some(point) if point.source != Source::Input => return Ok(Base::At(point)),
            Some(point) => below = point,
        }
    }
    Err(too_deep())
}

/// The messages that were added by the checkpoint of a message, itself included, oldest first.
async fn messages_beside(
    read: &mut dyn Read,
    thread: &ThreadRow,
    node: &MessageNode,
    first: &Point,
) -> Result<Vec<MessageNode>> {
    let mut found = chain::take_while(read, thread.tree, first.last_node, |other| {
        other.checkpoint == node.checkpoint
    })
    .await?;
    found.reverse();
    Ok(found)
}

pub(super) fn too_deep() -> Error {
    Error::conflict(
        "path_too_deep",
        format!("The path is longer than {WALK_MAX} checkpoints: copy the thread to go on"),
    )
}
