//! Chooses the branch for a message that a run takes as its input.

use std::sync::Arc;

use super::{
    content::MessageContents,
    destination::{TargetGraph, branch_end, branch_off, id_exists, other_branch_ends},
    existing::ExistingMessages,
    placement::{MessagePlacement, PlacementRequest, choose_placement},
};
use crate::{
    id::BranchId,
    tree::{
        branch::{self, SwitchPolicy},
        dangling::has_open_calls,
        error::Result,
        resolve,
        store::{Branch, Position, ThreadRow, Tx},
    },
};

/// Where a submitted message should go.
#[derive(Clone, Debug, Default)]
pub struct SendTarget {
    /// The id of the message, which must be new to the thread.
    pub id: Option<Arc<str>>,
    /// The message it follows, or replaces with [`Position::Before`].
    pub parent: Option<(Arc<str>, Position)>,
    /// The branch it goes to.
    pub branch: Option<Arc<str>>,
}

/// The branch that the message's run starts from.
#[derive(Clone, Debug)]
pub struct SendPlacement {
    /// The branch.
    pub branch: Branch,
    /// The run is pinned to it; otherwise the run takes the branch that is active when it is claimed.
    pub pinned: bool,
    /// The conversation there ends in tool calls without results.
    pub dangling: bool,
}

/// Finds the branch for a message, or creates it.
///
/// # Errors
/// 400 `invalid_id`, 404, 409 `message_exists`, or the storage failed.
pub async fn choose_branch(
    tx: &mut dyn Tx,
    values: &MessageContents<'_>,
    target: &TargetGraph<'_>,
    thread: &ThreadRow,
    to: &SendTarget,
) -> Result<SendPlacement> {
    if let Some(id) = &to.id
        && ExistingMessages::contains(tx, thread, id).await?
    {
        return Err(id_exists(id));
    }
    let main = match &to.branch {
        Some(name) => resolve::branch(tx, thread, name).await?,
        None => resolve::active(tx, thread).await?,
    };
    // Before anything is written to the thread's log: runs lock branch and thread in this order.
    let main = lock_branch(tx, thread, main.id).await?;
    let Some((parent, position)) = &to.parent else {
        return Ok(SendPlacement {
            dangling: has_open_tool_calls(values, &main).await?,
            pinned: to.branch.is_some(),
            branch: main,
        });
    };
    let node = super::message(tx, thread, parent, main.head).await?;
    let line = branch_end(tx, &main).await?;
    let after = match position {
        Position::At => Some(node.id),
        Position::Before => node.parent,
    };
    let others = if line.last == after {
        vec![]
    } else {
        other_branch_ends(tx, thread, &main).await?
    };
    let request = PlacementRequest {
        after: Some(after),
        ..PlacementRequest::default()
    };
    let branch = match choose_placement(request, &[], line, &others) {
        MessagePlacement::Append(id) if id == main.id => {
            return Ok(SendPlacement {
                dangling: has_open_tool_calls(values, &main).await?,
                pinned: to.branch.is_some(),
                branch: main,
            });
        }
        MessagePlacement::Append(id) => {
            let branch = lock_branch(tx, thread, id).await?;
            branch::activate(tx, thread, &branch, SwitchPolicy::FLOAT).await?;
            branch
        }
        _ => {
            let base = match position {
                Position::At => resolve::at_message(tx, thread, &node).await?,
                Position::Before => resolve::before_message(tx, thread, &node).await?,
            };
            let how = ("message", true);
            let (branch, ..) = branch_off(tx, values, target, thread, &main, base, how).await?;
            let made = tx.branch(thread.tree, branch.id).await?;
            made.ok_or(crate::checkpoint::Error::Fenced)?
        }
    };
    Ok(SendPlacement {
        // A head trimmed in this transaction has no open calls: they were cut off.
        dangling: has_open_tool_calls(values, &branch).await?,
        branch,
        pinned: true,
    })
}

async fn lock_branch(tx: &mut dyn Tx, thread: &ThreadRow, id: BranchId) -> Result<Branch> {
    let branch = tx.lock_branch(thread.tree, id).await?;
    Ok(branch.ok_or(crate::checkpoint::Error::Fenced)?)
}

/// Whether the conversation of a branch ends in tool calls without results.
///
/// # Errors
/// The storage failed.
pub async fn has_open_tool_calls(values: &MessageContents<'_>, branch: &Branch) -> Result<bool> {
    let messages = match branch.head {
        Some(head) => values.messages(head).await?,
        None => None,
    };
    Ok(messages.is_some_and(|messages| has_open_calls(messages.all())))
}
