//! The name and the events of a branch that a run creates with its first durable write.

use std::sync::Arc;

use super::{
    address::auto_name,
    event,
    store::{NewEvent, SharedInside},
};
use crate::{
    checkpoint::NewBranch,
    id::{BranchId, CheckpointId},
};

/// The name and the events of a branch that a run creates.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Its name.
    pub name: Arc<str>,
    /// Events to append to the thread's log.
    pub events: Vec<NewEvent>,
}

impl Opening {
    /// Chooses the name of a branch created from the branch `source` in a thread whose branches have
    /// these `names`, and computes its events. The name that the run requests is used if it is free.
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

/// An id above every checkpoint of a subgraph that a new branch shares with the branch whose pending
/// writes it copies at `base`. If that branch has `resumed` a copied interrupt and may go on meanwhile, it is the
/// first checkpoint after that; otherwise it is the next id above the `newest` checkpoint, whatever the clock shows: what
/// that branch stores later has a greater one.
pub fn creation_id(
    base: CheckpointId,
    resumed: Option<CheckpointId>,
    newest: Option<CheckpointId>,
) -> CheckpointId {
    let newest = newest.map_or(base, |newest| newest.max(base));
    resumed.unwrap_or_else(|| next(newest))
}

/// The next id above another one.
fn next(id: CheckpointId) -> CheckpointId {
    CheckpointId(uuid::Uuid::from_u128(id.0.as_u128().saturating_add(1)))
}

/// States of graphs inside that a new branch at the head of `from` shares: those that `from` has stored there, of which
/// `newest` is the newest, and those below its own `creation` id that it shares itself.
pub fn shared_inside(
    source: BranchId,
    newest: Option<CheckpointId>,
    creation: Option<CheckpointId>,
) -> Option<SharedInside> {
    let creation = newest.map(next).max(creation)?;
    Some(SharedInside { source, creation })
}
