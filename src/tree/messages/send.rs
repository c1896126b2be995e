//! Which branch a message goes to that waits for its run.

use std::sync::Arc;

use super::{
    content::MessageContents,
    existing::ExistingMessages,
    placement::{MessagePlacement, PlacementRequest, choose_placement},
    post::{TargetGraph, branch_off, id_exists, line, others},
};
use crate::{
    id::BranchId,
    tree::{
        branch::{self, SwitchPolicy},
        dangling::has_open_calls,
        error::Error,
        resolve,
        store::{
            rows::{Branch, Position, ThreadRow},
            tx::Tx,
        },
    },
};

/// Where a message is sent.
#[derive(Clone, Debug, Default)]
pub struct SendTarget {
    /// The id of the message, which must be new to the thread.
    pub id: Option<Arc<str>>,
    /// The message it answers, or the one in whose place it comes.
    pub parent: Option<(Arc<str>, Position)>,
    /// The branch it goes to.
    pub branch: Option<Arc<str>>,
}

/// What the message's run starts from.
#[derive(Clone, Debug)]
pub struct SendPlacement {
    /// The branch.
    pub branch: Branch,
    /// The run belongs to it; otherwise it takes whatever branch is active when it is claimed.
    pub pinned: bool,
    /// The conversation there ends in tool calls that are not answered.
    pub dangling: bool,
}

/// Finds the branch, or makes one.
///
/// # Errors
/// 400 `invalid_id`, 404, 409 `message_exists`, or the storage failed.
pub async fn place_message(
    tx: &mut dyn Tx,
    values: &MessageContents<'_>,
    target: &TargetGraph<'_>,
    thread: &ThreadRow,
    to: &SendTarget,
) -> Result<SendPlacement, Error> {
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
    let main = held(tx, thread, main.id).await?;
    let Some((parent, position)) = &to.parent else {
        return Ok(SendPlacement {
            dangling: has_open_tool_calls(values, &main).await?,
            pinned: to.branch.is_some(),
            branch: main,
        });
    };
    let node = super::message(tx, thread, parent, main.head).await?;
    let line = line(tx, thread, &main).await?;
    let after = match position {
        Position::At => Some(node.id),
        Position::Before => node.parent,
    };
    let others = match line.last == after {
        true => vec![],
        false => others(tx, thread, &main).await?,
    };
    let ask = PlacementRequest {
        after: Some(after),
        ..PlacementRequest::default()
    };
    let branch = match choose_placement(ask, &[], line, &others) {
        MessagePlacement::Append(id) if id == main.id => {
            return Ok(SendPlacement {
                dangling: has_open_tool_calls(values, &main).await?,
                pinned: to.branch.is_some(),
                branch: main,
            });
        }
        MessagePlacement::Append(id) => {
            let branch = held(tx, thread, id).await?;
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
        // A head made in this transaction has no open calls: what waited there was cut off.
        dangling: has_open_tool_calls(values, &branch).await?,
        branch,
        pinned: true,
    })
}

async fn held(tx: &mut dyn Tx, thread: &ThreadRow, id: BranchId) -> Result<Branch, Error> {
    let branch = tx.lock_branch(thread.tree, id).await?;
    Ok(branch.ok_or(crate::checkpoint::Error::Fenced)?)
}

/// Whether the conversation of a branch ends in tool calls that are not answered.
///
/// # Errors
/// The storage failed.
pub async fn has_open_tool_calls(
    values: &MessageContents<'_>,
    branch: &Branch,
) -> Result<bool, Error> {
    let messages = match branch.head {
        Some(head) => values.messages(head).await?,
        None => None,
    };
    Ok(messages.is_some_and(|messages| has_open_calls(messages.all())))
}
