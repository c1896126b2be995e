//! From an address to the checkpoint to build on, as far as the thread sees it.

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

use events::{event, event_row, node_of};
pub use nodes::{is_on_path, last_inherited, sees};

/// Rows of a path read at once.
const PAGE: usize = 256;
/// Rows of a path that a request may walk.
const WALK_MAX: usize = 100_000;

/// What to build on.
#[derive(Clone, Debug)]
pub enum Base {
    /// Nothing: before the first checkpoint.
    Empty,
    /// A checkpoint.
    At(Point),
    /// A checkpoint whose newest messages must go first: what follows is a child of it without
    /// them, in which nothing waits to run.
    Trim {
        /// The checkpoint.
        of: Point,
        /// Ids of the messages to remove, oldest first.
        drop: Vec<Arc<str>>,
    },
}

impl Base {
    /// The checkpoint, if there is one; that to trim too.
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

/// What an address means in a thread.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// What to build on.
    pub base: Base,
    /// The branch that the address names; the active one without an address.
    pub named: Option<Branch>,
    /// The message that the address names.
    pub message: Option<MessageNode>,
    /// The position asked for: with [`Position::Before`] and a message of a user, that message
    /// is what a client may offer to write anew.
    pub position: Position,
}

impl Resolved {
    /// The message of a user which the base comes before.
    pub fn prefill(&self) -> Option<&MessageNode> {
        let message = self.message.as_ref()?;
        let user = matches!(message.role.as_deref(), Some("human" | "user"));
        (self.position == Position::Before && user).then_some(message)
    }
}

/// A thread that is not deleted.
///
/// # Errors
/// 404 `thread_not_found`, or the storage failed.
pub async fn thread(read: &mut dyn Read, id: ThreadId) -> Result<ThreadRow, Error> {
    let row = read.thread_row(id).await?;
    row.filter(|row| row.deleted_at.is_none())
        .ok_or_else(|| Error::missing("thread_not_found", format!("Thread with ID {id} not found")))
}

/// The active branch of a thread.
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

/// A branch by its name.
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

/// A tag by its name.
///
/// # Errors
/// 404 `tag_not_found`, or the storage failed.
pub async fn tag(read: &mut dyn Read, thread: &ThreadRow, name: &str) -> Result<Tag, Error> {
    let found = read.tag(thread.tree, thread.id, name.into()).await?;
    found.ok_or_else(|| Error::missing("tag_not_found", format!("The thread has no tag `{name}`")))
}

/// A checkpoint that the thread sees.
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
        _ => Err(no_checkpoint(id)),
    }
}

fn no_checkpoint(id: CheckpointId) -> Error {
    Error::missing("checkpoint_not_found", format!("Checkpoint {id} not found"))
}

/// The place in the message index of a message that the thread sees. Of several with one id the
/// one on the path of `head` counts, else the newest.
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

/// What an address means in a thread.
///
/// # Errors
/// 404: no such thing, or the thread does not see it; 400 `invalid_id` for a parent whose id is no
/// UUID either. 409 `not_checkpointed`: the message of an
/// event waits in the queue; `head_conflict`: the checkpoint is not the head of the branch named
/// with it. Or the storage failed.
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
                Position::At => event(read, thread, *number).await?,
                Position::Before => {
                    let (_, row) = event_row(read, thread, *number).await?;
                    let node = node_of(read, thread, &row).await?;
                    let (base, _) = match number {
                        ..=1 => (Base::Empty, None),
                        number => event(read, thread, number - 1).await?,
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
            Some(point) => match above(read, thread, point).await? {
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

/// A checkpoint that a row of the thread names. Pruning may have taken it, or undoing its run.
async fn existing_checkpoint(
    read: &mut dyn Read,
    thread: &ThreadRow,
    id: CheckpointId,
) -> Result<Point, Error> {
    let point = read.point(thread.tree, id).await?;
    point.ok_or_else(|| pruned(format!("Checkpoint {id} is gone")))
}

/// The checkpoint before another one; none before the first.
async fn above(
    read: &mut dyn Read,
    thread: &ThreadRow,
    point: &Point,
) -> Result<Option<Point>, Error> {
    let parent = match point.parent {
        Some(id) => Some(existing_checkpoint(read, thread, id).await?),
        None => None,
    };
    match follows(point, parent.as_ref()) {
        true => Ok(parent),
        false => Err(pruned(format!("What was before {} is gone", point.id))),
    }
}

/// Whether nothing was pruned above a checkpoint. After pruning it follows the nearest one that
/// was kept, which lacks what came in between: depths tell.
fn follows(point: &Point, parent: Option<&Point>) -> bool {
    parent.map_or(-1, |parent| parent.depth) + 1 == point.depth
}

fn pruned(what: String) -> Error {
    Error::conflict(
        "checkpoint_pruned",
        format!("{what}: nothing can be built on it any more"),
    )
}

/// The end of the turn that a message ends, else the first checkpoint with it.
pub async fn at_message(
    read: &mut dyn Read,
    thread: &ThreadRow,
    node: &MessageNode,
) -> Result<Base, Error> {
    if let Some(settled) = node.turn_end
        && let Some(point) = read.point(thread.tree, settled).await?
        && (point.thread == thread.id || read.visible(thread.tree, thread.id, settled).await?)
    {
        return Ok(Base::At(point));
    }
    let first = existing_checkpoint(read, thread, node.checkpoint).await?;
    let beside = beside(read, thread, node, &first).await?;
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

/// The state before a message came. A checkpoint that only holds the input of a run is not it:
/// it still carries the message, and a run without input would replay it.
pub async fn before_message(
    read: &mut dyn Read,
    thread: &ThreadRow,
    node: &MessageNode,
) -> Result<Base, Error> {
    let first = existing_checkpoint(read, thread, node.checkpoint).await?;
    let beside = beside(read, thread, node, &first).await?;
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
        match above(read, thread, &below).await? {
            None => return Ok(Base::Empty),
            Some(point) if point.source != Source::Input => return Ok(Base::At(point)),
            Some(point) => below = point,
        }
    }
    Err(too_deep())
}

/// The messages that came with a message, in its checkpoint, itself included, oldest first.
async fn beside(
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
