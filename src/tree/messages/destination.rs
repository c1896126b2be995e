//! The branch that messages are written to: the ends of branches, and a new branch at a base.

use std::sync::Arc;

use super::{
    content::MessageContents,
    placement::BranchEnd,
    trim::{pruned, trim},
};
use crate::{
    checkpoint::{Slot, frame::Decoded},
    graph::Compiled,
    id::CheckpointId,
    tree::{
        branch::{self, CreateBranch, SwitchPolicy},
        chain,
        error::{Error, Result},
        resolve::Base,
        store::{Branch, Read, ThreadRow, Tx},
    },
};

/// The graph that stored messages wait for.
pub struct TargetGraph<'a> {
    /// The thread's graph, or one that has just a messages channel.
    pub graph: &'a Arc<Compiled>,
    /// The thread has a graph.
    pub assigned: bool,
}

pub(super) async fn branch_end(read: &mut dyn Read, branch: &Branch) -> Result<BranchEnd> {
    Ok(BranchEnd {
        branch: branch.id,
        last: chain::last_node(read, branch).await?,
        updated_at: branch.updated_at,
    })
}

pub(super) async fn other_branch_ends(
    read: &mut dyn Read,
    thread: &ThreadRow,
    main: &Branch,
) -> Result<Vec<BranchEnd>> {
    let mut lines = vec![];
    for branch in read.branches(thread.tree, thread.id).await? {
        if branch.id != main.id {
            lines.push(branch_end(read, &branch).await?);
        }
    }
    Ok(lines)
}

pub(super) async fn load_state(values: &MessageContents<'_>, id: CheckpointId) -> Result<Decoded> {
    let found = values.decoded(id).await?.ok_or_else(|| pruned(id))?;
    Ok((*found).clone())
}

/// Creates a branch at `base`. Returns it with the slot to write to it and the state there.
///
/// # Errors
/// 409 `checkpoint_pruned` or `too_many`, or the storage failed.
pub async fn branch_off(
    tx: &mut dyn Tx,
    values: &MessageContents<'_>,
    target: &TargetGraph<'_>,
    thread: &ThreadRow,
    from: &Branch,
    base: Base,
    how: (&'static str, bool),
) -> Result<(Branch, Slot, Option<Decoded>)> {
    let (origin, activate) = how;
    let new = CreateBranch {
        base: base.point().cloned(),
        name: None,
        from: from.clone(),
        origin,
        activate: activate.then_some(SwitchPolicy::FLOAT),
        waits: false,
    };
    let made = branch::create(tx, thread, new).await?.branch;
    let (slot, state) = match &base {
        Base::Empty => (made.slot(), None),
        Base::At(point) => (made.slot(), Some(load_state(values, point.id).await?)),
        Base::Trim { of, drop } => {
            let (slot, state) = trim(tx, values, target.graph, &made, of, drop).await?;
            (slot, Some(state))
        }
    };
    Ok((made, slot, state))
}

/// 409: the thread has a message with this id.
pub fn id_exists(id: &str) -> Error {
    Error::conflict(
        "message_exists",
        format!("The thread has a message `{id}` already"),
    )
}
