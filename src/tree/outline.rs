//! The outline of a thread: the checkpoints and messages it sees on all its branches, by depth,
//! then age.

use std::collections::{HashMap, HashSet};

use super::{
    chain,
    error::{Error, Result},
    resolve,
    store::{Branch, MessageNode, Point, Read, ThreadRow},
};
use crate::id::NodeId;

/// A page of a thread's outline.
#[derive(Clone, Debug)]
pub struct OutlinePage<T> {
    /// The rows, by depth, then age.
    pub rows: Vec<T>,
    /// More rows follow.
    pub truncated: bool,
}

/// Checkpoints of a thread deeper than `below`: its own and those of its fork base's path.
///
/// # Errors
/// 409 `path_too_deep`, or the storage failed.
pub async fn checkpoints(
    read: &mut dyn Read,
    thread: &ThreadRow,
    below: i32,
    limit: usize,
) -> Result<OutlinePage<Point>> {
    let mut rows = read
        .own_points(thread.tree, thread.id, below, limit + 1)
        .await?;
    if let Some(base) = thread.fork_checkpoint
        && thread.fork_depth > below
    {
        refuse_far(thread.fork_depth, below)?;
        let path = read
            .inherited_points(thread.tree, base, below, limit + 1)
            .await?;
        rows.extend(path.into_iter().filter(|point| point.thread != thread.id));
        rows.sort_by_key(|point| (point.depth, point.id));
    }
    Ok(page_of(rows, limit))
}

/// Messages of a thread whose ordinals are greater than `after`: its own and those it inherits.
///
/// # Errors
/// 409 `path_too_deep`, or the storage failed.
pub async fn messages(
    read: &mut dyn Read,
    thread: &ThreadRow,
    after: i32,
    limit: usize,
) -> Result<OutlinePage<MessageNode>> {
    let mut rows = read
        .own_nodes(thread.tree, thread.id, after, limit + 1)
        .await?;
    let last = match resolve::last_inherited(read, thread).await? {
        Some(node) => read.node(thread.tree, node).await?,
        None => None,
    };
    if let Some(last) = last.filter(|node| node.ordinal > after) {
        refuse_far(last.ordinal, after)?;
        let segment = read
            .segment(thread.tree, last.id, after, limit.saturating_add(1))
            .await?;
        let inherited = segment.into_iter().filter(|node| node.thread != thread.id);
        rows.extend(inherited);
        rows.sort_by_key(|node| (node.ordinal, node.checkpoint, node.seq));
    }
    Ok(page_of(rows, limit))
}

/// What a fork inherits is walked from its end: a walk that stopped in between would show a page that does
/// not follow the one before.
fn refuse_far(end: i32, below: i32) -> Result<()> {
    let most = i32::try_from(resolve::WALK_MAX).unwrap_or(i32::MAX);
    let nearest = end.saturating_sub(most);
    if below >= nearest {
        return Ok(());
    }
    Err(Error::conflict(
        "path_too_deep",
        format!(
            "The fork inherits a path whose end is at the depth {end}, and at most {} of it are walked: read it \
             with `after_depth` {nearest} or more, or read its beginning in the thread that wrote it",
            resolve::WALK_MAX
        ),
    ))
}

fn page_of<T>(mut rows: Vec<T>, limit: usize) -> OutlinePage<T> {
    let truncated = rows.len() > limit;
    rows.truncate(limit);
    OutlinePage { rows, truncated }
}

/// Message ids of the parents of nodes, by the parents' keys.
///
/// # Errors
/// The storage failed.
pub async fn parents(
    read: &mut dyn Read,
    thread: &ThreadRow,
    nodes: &[MessageNode],
) -> Result<HashMap<NodeId, std::sync::Arc<str>>> {
    let mut ids: HashMap<_, _> = nodes
        .iter()
        .map(|node| (node.id, node.message_id.clone()))
        .collect();
    let parents: HashSet<NodeId> = nodes.iter().filter_map(|node| node.parent).collect();
    for parent in parents {
        if !ids.contains_key(&parent)
            && let Some(node) = read.node(thread.tree, parent).await?
        {
            ids.insert(parent, node.message_id);
        }
    }
    Ok(ids)
}

/// The newest message of a model on the path of a branch.
///
/// # Errors
/// The storage failed.
pub async fn last_model_message(
    read: &mut dyn Read,
    thread: &ThreadRow,
    branch: &Branch,
) -> Result<Option<MessageNode>> {
    let last = chain::last_node(read, branch).await?;
    let is_model = |node: &MessageNode| matches!(node.role.as_deref(), Some("ai" | "assistant"));
    Ok(chain::find(read, thread.tree, last, is_model).await?)
}
