//! Resolves an address to the checkpoint to build on, among those that a thread sees.

use std::sync::Arc;

use super::{
    address::{Address, AddressTarget},
    error::Error,
    messages,
    store::{
        read::Read,
        rows::{Branch, MessageChange, MessageNode, Point, Position, Tag, ThreadRow},
    },
};
use crate::{
    checkpoint::Source,
    id::{CheckpointId, ThreadId},
};

mod events;
mod nodes;

use events::{base_at_event, event_row, node_of};
pub use nodes::{is_on_path, last_inherited, sees};

/// Rows of a path that are read at once.
const PAGE: usize = 256;
/// Rows of a path that a request may walk.
const WALK_MAX: usize = 100_000;

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

/// The meaning of an address in a thread.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The checkpoint to build on.
    pub base: Base,
    /// The branch that the address names; the active one without an address.
    pub named: Option<Branch>,
    /// The message that the address names.
    pub message: Option<MessageNode>,
    /// The position in the address. With [`Position::Before`] and a message of a user, clients may
    /// offer that message for editing.
    pub position: Position,
}

impl Resolved {
    /// The message of a user that follows the base.
    pub fn prefill(&self) -> Option<&MessageNode> {
        let message = self.message.as_ref()?;
        let user = matches!(message.role.as_deref(), Some("human" | "user"));
        (self.position == Position::Before && user).then_some(message)
    }
}

/// Finds a thread that is not deleted.
///
/// # Errors
/// 404 `thread_not_found`, or the storage failed.
pub async fn thread(read: &mut dyn Read, id: ThreadId) -> Result<ThreadRow, Error> {
    let row = read.thread_row(id).await?;
    row.filter(|row| row.deleted_at.is_none())
        .ok_or_else(|| Error::missing("thread_not_found", format!("Thread with ID {id} not found")))
}

/// Finds the active branch of a thread.
///
/// # Errors
/// 404 for a thread that is being deleted, or the storage failed.
pub async fn active(read: &mut dyn Read, thread: &ThreadRow) -> Result<Branch, Error> {
    let found = match thread.active_branch {
        Some(id) => read.branch(thread.tree, id).await?,
        None => None,
    };
    found.ok_or_else(|| {
        Error::missing(
            "thread_not_found",
            format!("Thread with ID {} not found", thread.id),
        )
    })
}

/// Finds a branch by its name.
///
/// # Errors
/// 404 `branch_not_found`, or the storage failed.
pub async fn branch(read: &mut dyn Read, thread: &ThreadRow, name: &str) -> Result<Branch, Error> {
    let branches = read.branches(thread.tree, thread.id).await?;
    let found = branches.into_iter().find(|branch| &*branch.name == name);
    found.ok_or_else(|| {
        Error::missing(
            "branch_not_found",
            format!("The thread has no branch `{name}`"),
        )
    })
}

/// Finds a tag by its name.
///
/// # Errors
/// 404 `tag_not_found`, or the storage failed.
pub async fn tag(read: &mut dyn Read, thread: &ThreadRow, name: &str) -> Result<Tag, Error> {
    let found = read.tag(thread.tree, thread.id, name.into()).await?;
    found.ok_or_else(|| Error::missing("tag_not_found", format!("The thread has no tag `{name}`")))
}

/// Finds a checkpoint that the thread sees.
///
/// # Errors
/// 404 `checkpoint_not_found`, or the storage failed.
pub async fn checkpoint(
    read: &mut dyn Read,
    thread: &ThreadRow,
    id: CheckpointId,
) -> Result<Point, Error> {
    let point = read.point(thread.tree, id).await?;
    match point {
        Some(point)
            if point.thread == thread.id || read.visible(thread.tree, thread.id, id).await? =>
        {
            Ok(point)
        }
        _ => Err(checkpoint_not_found(id)),
    }
}

fn checkpoint_not_found(id: CheckpointId) -> Error {
    Error::missing("checkpoint_not_found", format!("Checkpoint {id} not found"))
}

/// Finds the node of a message that the thread sees. Of several messages with one id, the one on
/// the path of `head` counts, or else the newest.
///
/// # Errors
/// 404 `message_not_found`, or the storage failed.
pub async fn message(
    read: &mut dyn Read,
    thread: &ThreadRow,
    id: &Arc<str>,
    head: Option<CheckpointId>,
) -> Result<MessageNode, Error> {
    let nodes = read.nodes_of(thread.tree, vec![id.clone()]).await?;
    let mut newest = None;
    for node in nodes {
        if node.change != MessageChange::Add {
            continue;
        }
        if !sees(read, thread, &node).await? {
            continue;
        }
        let Some(head) = head else { return Ok(node) };
        if is_on_path(read, thread.tree, head, &node).await? {
            return Ok(node);
        }
        newest.get_or_insert(node);
    }
    newest.ok_or_else(|| {
        Error::missing(
            "message_not_found",
            format!("The thread has no message `{id}`"),
        )
    })
}

/// Resolves an address in a thread.
///
/// # Errors
/// 404: there is no such thing, or the thread does not see it. 400 `invalid_id`: a parent that is
/// not found has an id that is no UUID. 409 `not_checkpointed`: the message of an event is still
/// queued; `head_conflict`: the checkpoint is not the head of the branch named with it. Or the
/// storage failed.
pub async fn resolve(
    read: &mut dyn Read,
    thread: &ThreadRow,
    address: &Address,
) -> Result<Resolved, Error> {
    let mut named = None;
    let at = match &address.target {
        AddressTarget::Active => {
            let branch = active(read, thread).await?;
            let base = at_head(read, thread, &branch).await?;
            named = Some(branch);
            base
        }
        AddressTarget::Branch(name) => {
            let branch = branch(read, thread, name).await?;
            let base = at_head(read, thread, &branch).await?;
            named = Some(branch);
            base
        }
        AddressTarget::Tag(name) => {
            let tag = tag(read, thread, name).await?;
            Base::At(existing_checkpoint(read, thread, tag.checkpoint).await?)
        }
        AddressTarget::Checkpoint(id) => {
            let point = checkpoint(read, thread, *id).await?;
            if let Some(name) = &address.head_of {
                let branch = branch(read, thread, name).await?;
                if branch.head != Some(*id) {
                    return Err(Error::conflict(
                        "head_conflict",
                        format!(
                            "Checkpoint {id} is not the head of branch `{name}`. Name only one \
                             of them, or read the branch's head and try again."
                        ),
                    ));
                }
                named = Some(branch);
            }
            Base::At(point)
        }
        AddressTarget::Message(id) => {
            let head = active(read, thread).await?.head;
            let node = match address.as_parent {
                true => messages::message(read, thread, id, head).await?,
                false => self::message(read, thread, id, head).await?,
            };
            let base = match address.position {
                Position::At => at_message(read, thread, &node).await?,
                Position::Before => before_message(read, thread, &node).await?,
            };
            return Ok(Resolved {
                base,
                named: None,
                message: Some(node),
                position: address.position,
            });
        }
        AddressTarget::Event(number) => {
            let (base, node) = match address.position {
                Position::At => base_at_event(read, thread, *number).await?,
                Position::Before => {
                    let (_, row) = event_row(read, thread, *number).await?;
                    let node = node_of(read, thread, &row).await?;
                    let (base, _) = match number {
                        ..=1 => (Base::Empty, None),
                        number => base_at_event(read, thread, number - 1).await?,
                    };
                    (base, node)
                }
            };
            return Ok(Resolved {
                base,
                named: None,
                message: node,
                position: address.position,
            });
        }
    };
    let base = match (address.position, at) {
        (Position::At, base) => base,
        (Position::Before, base) => match base.point() {
            Some(point) => match parent_of(read, thread, point).await? {
                Some(parent) => Base::At(parent),
                None => Base::Empty,
            },
            None => Base::Empty,
        },
    };
    Ok(Resolved {
        base,
        named,
        message: None,
        position: address.position,
    })
}

async fn at_head(read: &mut dyn Read, thread: &ThreadRow, branch: &Branch) -> Result<Base, Error> {
    match branch.head {
        Some(head) => Ok(Base::At(existing_checkpoint(read, thread, head).await?)),
        None => Ok(Base::Empty),
    }
}

/// Finds a checkpoint that a row of the thread names. Pruning may have removed it, or rolling back
/// its run.
async fn existing_checkpoint(
    read: &mut dyn Read,
    thread: &ThreadRow,
    id: CheckpointId,
) -> Result<Point, Error> {
    let point = read.point(thread.tree, id).await?;
    point.ok_or_else(|| pruned(format!("Checkpoint {id} is gone")))
}

/// The parent of a checkpoint; `None` for the first one.
async fn parent_of(
    read: &mut dyn Read,
    thread: &ThreadRow,
    point: &Point,
) -> Result<Option<Point>, Error> {
    let parent = match point.parent {
        Some(id) => Some(existing_checkpoint(read, thread, id).await?),
        None => None,
    };
    match follows_directly(point, parent.as_ref()) {
        true => Ok(parent),
        false => Err(pruned(format!("What was before {} is gone", point.id))),
    }
}

/// Whether nothing was pruned between a checkpoint and its parent. Pruning makes the nearest
/// remaining ancestor the parent, and then the depths of the two differ by more than one.
fn follows_directly(point: &Point, parent: Option<&Point>) -> bool {
    parent.map_or(-1, |parent| parent.depth) + 1 == point.depth
}

fn pruned(what: String) -> Error {
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
) -> Result<Base, Error> {
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
    Ok(match drop.is_empty() {
        true => Base::At(first),
        false => Base::Trim { of: first, drop },
    })
}

/// The state before a message was added. A checkpoint that has just the input of a run does not
/// count: it contains the message already, and a run without input would replay it.
pub async fn before_message(
    read: &mut dyn Read,
    thread: &ThreadRow,
    node: &MessageNode,
) -> Result<Base, Error> {
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
) -> Result<Vec<MessageNode>, Error> {
    let mut found = Vec::new();
    let mut next = first.last_node;
    while let Some(start) = next.take() {
        let chain = read.chain(thread.tree, start, PAGE).await?;
        let whole = chain.len();
        for other in chain {
            if other.checkpoint != node.checkpoint {
                next = None;
                break;
            }
            next = other.parent;
            found.push(other);
        }
        if whole < PAGE {
            break;
        }
    }
    found.reverse();
    Ok(found)
}

fn too_deep() -> Error {
    Error::conflict(
        "path_too_deep",
        format!("The path is longer than {WALK_MAX} checkpoints: copy the thread to go on"),
    )
}
