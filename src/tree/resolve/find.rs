//! Finds threads, branches, tags, checkpoints and messages that a thread sees.

use std::sync::Arc;

use super::nodes::{is_on_path, sees};
use crate::{
    id::{CheckpointId, ThreadId},
    tree::{
        error::{Error, Result},
        store::{Branch, MessageChange, MessageNode, Point, Read, Tag, ThreadRow},
    },
};

/// How often the active branch is looked for. Each look after the first one follows a rollback that
/// ended within the moment between two reads.
const ATTEMPTS: usize = 5;

/// Finds a thread that is not deleted.
///
/// # Errors
/// 404 `thread_not_found`, or the storage failed.
pub async fn thread(read: &mut dyn Read, id: ThreadId) -> Result<ThreadRow> {
    let row = read.thread_row(id).await?;
    row.filter(|row| row.deleted_at.is_none())
        .ok_or_else(|| thread_not_found(id))
}

/// 404: there is no such thread.
pub(crate) fn thread_not_found(id: ThreadId) -> Error {
    Error::missing("thread_not_found", format!("Thread with ID {id} not found"))
}

/// Finds the active branch of a thread.
///
/// A rollback may make another branch the active one and remove this one after the row of the
/// thread was read; then the row is read anew.
///
/// # Errors
/// 404 for a thread that is being deleted, or the storage failed.
pub async fn active(read: &mut dyn Read, thread: &ThreadRow) -> Result<Branch> {
    let mut id = thread.active_branch;
    for _ in 0..ATTEMPTS {
        let Some(branch) = id else { break };
        if let Some(found) = read.branch(thread.tree, branch).await? {
            return Ok(found);
        }
        id = self::thread(read, thread.id).await?.active_branch;
    }
    Err(thread_not_found(thread.id))
}

/// Finds a branch by its name.
///
/// # Errors
/// 404 `branch_not_found`, or the storage failed.
pub async fn branch(read: &mut dyn Read, thread: &ThreadRow, name: &str) -> Result<Branch> {
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
pub async fn tag(read: &mut dyn Read, thread: &ThreadRow, name: &str) -> Result<Tag> {
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
) -> Result<Point> {
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
) -> Result<MessageNode> {
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
