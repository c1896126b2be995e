//! Finds the path that a request reads: up to the head of a branch, a checkpoint or a message.

use std::sync::Arc;

use crate::{
    id::{CheckpointId, NodeId},
    tree::{
        chain,
        error::{Error, Result},
        resolve::{self, Base},
        store::{Branch, MessageNode, Point, Read, ThreadRow},
    },
};

/// Selects a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PathSelector {
    /// The path of the active branch.
    #[default]
    Active,
    /// The path of a branch.
    Branch(Arc<str>),
    /// The path of a checkpoint.
    Checkpoint(CheckpointId),
    /// The path that ends with a message.
    Leaf(Arc<str>),
    /// The path that ends with the newest message that no other one follows.
    Latest,
}

/// A path and the state at its end.
#[derive(Default)]
pub struct MessagePath {
    /// A branch with that path.
    pub branch: Option<Arc<str>>,
    /// The checkpoint at its end; `None` if that was pruned.
    pub checkpoint: Option<CheckpointId>,
    /// The checkpoint whose state is shown: the one at its end, or a later one that was not pruned.
    pub point: Option<Point>,
    /// Its last message.
    pub last: Option<MessageNode>,
    /// Messages of that state that are not on the path.
    pub trimmed: Vec<Arc<str>>,
}

/// Finds a path.
///
/// # Errors
/// 400 `invalid_id`, 404, or the storage failed.
pub async fn find_path(
    read: &mut dyn Read,
    thread: &ThreadRow,
    at: &PathSelector,
) -> Result<MessagePath> {
    let active = resolve::active(read, thread).await?;
    match at {
        PathSelector::Active => path_of_branch(read, thread, active).await,
        PathSelector::Branch(name) => {
            let branch = resolve::branch(read, thread, name).await?;
            path_of_branch(read, thread, branch).await
        }
        PathSelector::Checkpoint(id) => {
            let point = resolve::checkpoint(read, thread, *id).await?;
            let last = last_message(read, thread, &point).await?;
            let branch = branch_containing(read, thread, &active, &point).await?;
            Ok(MessagePath {
                branch,
                last,
                checkpoint: Some(point.id),
                point: Some(point),
                trimmed: vec![],
            })
        }
        PathSelector::Leaf(id) => {
            let node = super::message(read, thread, id, active.head).await?;
            let base = resolve::at_message(read, thread, &node).await;
            let (point, cut) = match base {
                Ok(Base::Empty) => (None, vec![]),
                Ok(Base::At(point)) => (Some(point), vec![]),
                Ok(Base::Trim { of, drop }) => (Some(of), drop),
                Err(Error::Refused {
                    code: "checkpoint_pruned",
                    ..
                }) => return path_of_pruned(read, thread, &active, node).await,
                Err(error) => return Err(error),
            };
            let branch = match &point {
                Some(point) => branch_containing(read, thread, &active, point).await?,
                None => None,
            };
            Ok(MessagePath {
                branch,
                checkpoint: point.as_ref().map(|point| point.id),
                point,
                last: Some(node),
                trimmed: cut,
            })
        }
        PathSelector::Latest => {
            let mut newest: Option<MessagePath> = None;
            for branch in read.branches(thread.tree, thread.id).await? {
                let path = path_of_branch(read, thread, branch).await?;
                let age = |path: &MessagePath| {
                    let last = path.last.as_ref();
                    last.map(|node| (node.created_at, node.ordinal))
                };
                if newest
                    .as_ref()
                    .is_none_or(|newest| age(newest) < age(&path))
                {
                    newest = Some(path);
                }
            }
            match newest {
                Some(path) => Ok(path),
                None => path_of_branch(read, thread, active).await,
            }
        }
    }
}

async fn path_of_branch(
    read: &mut dyn Read,
    thread: &ThreadRow,
    branch: Branch,
) -> Result<MessagePath> {
    let point = chain::head(read, &branch).await?;
    let last = match &point {
        Some(point) => last_message(read, thread, point).await?,
        None => None,
    };
    Ok(MessagePath {
        branch: Some(branch.name),
        checkpoint: branch.head,
        point,
        last,
        trimmed: vec![],
    })
}

/// The path that ends with a message whose checkpoint was pruned. Its messages are read from the
/// state of a branch or a tag behind it, as far as they are there.
async fn path_of_pruned(
    read: &mut dyn Read,
    thread: &ThreadRow,
    active: &Branch,
    node: MessageNode,
) -> Result<MessagePath> {
    let mut branches = read.branches(thread.tree, thread.id).await?;
    branches.sort_by_key(|branch| branch.id != active.id);
    let heads = branches
        .into_iter()
        .filter_map(|branch| Some((Some(branch.name), branch.head?)));
    let tags = read.tags(thread.tree, thread.id).await?;
    let tags = tags.into_iter().map(|tag| (None, tag.checkpoint));
    let mut path = MessagePath::default();
    for (branch, id) in heads.chain(tags) {
        if !resolve::is_on_path(read, thread.tree, id, &node).await? {
            continue;
        }
        path.point = read.point(thread.tree, id).await?;
        path.branch = branch;
        let end = path.point.as_ref().and_then(|point| point.last_node);
        path.trimmed = messages_after(read, thread, end, &node).await?;
        break;
    }
    path.last = Some(node);
    Ok(path)
}

/// The messages that follow `node` on the chain that ends with `end`.
async fn messages_after(
    read: &mut dyn Read,
    thread: &ThreadRow,
    end: Option<NodeId>,
    node: &MessageNode,
) -> Result<Vec<Arc<str>>> {
    let after = chain::take_while(read, thread.tree, end, |other| other.id != node.id).await?;
    Ok(after.into_iter().map(|node| node.message_id).collect())
}

async fn last_message(
    read: &mut dyn Read,
    thread: &ThreadRow,
    point: &Point,
) -> Result<Option<MessageNode>> {
    match point.last_node {
        Some(id) => Ok(read.node(thread.tree, id).await?),
        None => Ok(None),
    }
}

/// A branch whose path contains a checkpoint: the active one, the one that wrote it, or any.
async fn branch_containing(
    read: &mut dyn Read,
    thread: &ThreadRow,
    active: &Branch,
    point: &Point,
) -> Result<Option<Arc<str>>> {
    let mut branches = read.branches(thread.tree, thread.id).await?;
    branches.sort_by_key(|branch| (branch.id != active.id, branch.id != point.branch));
    for branch in branches {
        if let Some(head) = branch.head
            && read.on_path(thread.tree, head, point.id).await?
        {
            return Ok(Some(branch.name));
        }
    }
    Ok(None)
}
