//! Plans what rolling back a run does to its branch.

use super::{event, store::NewEvent};
use crate::id::{BranchId, CheckpointId};

/// A branch that the run itself created, and the branch it was created from.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Name of the branch.
    pub name: String,
    /// The branch it was created from, which still exists.
    pub source: BranchId,
    /// Name of that branch.
    pub source_name: String,
    /// Whether the branch is the active one of its thread.
    pub is_active: bool,
}

/// The changes of the branch and of the thread's event log when a run is rolled back.
#[derive(Clone, Debug)]
pub struct Rollback {
    /// The branch to activate after the run's own branch is deleted, if that is active. Without one, the head of the
    /// branch moves back to where the run began.
    pub closes_for: Option<BranchId>,
    /// Events to append to the log.
    pub events: Vec<NewEvent>,
    /// The branch that shows why the run ended: none if it worked on one that goes and was not the active one.
    pub shown_on: Option<BranchId>,
}

/// Plans the rollback of a run that began at `base` of a branch, or that `opened` the branch there.
pub fn plan(branch: BranchId, base: Option<CheckpointId>, opened: Option<Opened>) -> Rollback {
    let at_base = |kind| NewEvent {
        kind,
        branch: Some(branch),
        checkpoint: base,
        ..NewEvent::default()
    };
    let Some(opened) = opened else {
        return Rollback {
            closes_for: None,
            events: vec![at_base(event::BRANCH_HEAD_RESET)],
            shown_on: Some(branch),
        };
    };
    let deleted = NewEvent {
        payload: event::about_branch(&opened.name),
        ..at_base(event::BRANCH_DELETED)
    };
    let activated = event::branch_activated(opened.source, &opened.source_name);
    Rollback {
        closes_for: Some(opened.source),
        events: std::iter::once(deleted)
            .chain(opened.is_active.then_some(activated))
            .collect(),
        shown_on: opened.is_active.then_some(opened.source),
    }
}
