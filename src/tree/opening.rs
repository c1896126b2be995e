//! What a branch is that a run opens with its first durable write.

use std::sync::Arc;

use super::{address::auto_name, event, store::rows::NewEvent};
use crate::{checkpoint::NewBranch, id::CheckpointId};

/// Name and events of a branch that a run opens.
#[derive(Clone, Debug)]
pub struct Opening {
    /// What it is called.
    pub name: Arc<str>,
    /// What the thread's log records of it.
    pub events: Vec<NewEvent>,
}

impl Opening {
    /// Decides for a branch that is made from the branch called `source`, in a thread whose
    /// branches have these `names`. The name that the run wants is used while it is free.
    pub fn of(new: &NewBranch, source: &str, names: &[impl AsRef<str>]) -> Self {
        let mut taken = names.iter().map(AsRef::as_ref);
        let name = match &new.name {
            Some(name) if !taken.any(|other| *other == **name) => name.clone(),
            _ => auto_name(source, names.iter().map(AsRef::as_ref)),
        };
        let mut events = vec![event::branch_created(
            new.id, &name, new.origin, source, new.base,
        )];
        if new.activate {
            events.push(event::branch_activated(new.id, &name));
        }
        Self { name, events }
    }
}

/// An id above every checkpoint of a subgraph that a branch shares with the one whose pending
/// writes it copies at `base`: the first one after a copied interrupt that the other has
/// `resumed` already, else one minted above the `newest` of them.
pub fn creation_id(
    base: CheckpointId,
    resumed: Option<CheckpointId>,
    newest: Option<CheckpointId>,
) -> CheckpointId {
    resumed.unwrap_or_else(|| CheckpointId::mint(0, [base].into_iter().chain(newest)))
}
