//! What rolling back a run does to its branch.

use super::{event, store::rows::NewEvent};
use crate::id::{BranchId, CheckpointId};

/// A branch that the run itself opened, and the branch that it was made from.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Name of the branch.
    pub name: String,
    /// The branch it was made from, which is still there.
    pub source: BranchId,
    /// Name of that one.
    pub source_name: String,
}

/// What the branch of a run that is rolled back becomes, and what its thread's log is to say.
#[derive(Clone, Debug)]
pub struct Rollback {
    /// The branch goes, and this one is active in its place. Without one its head goes back to
    /// where the run began.
    pub closes_for: Option<BranchId>,
    /// Events for the log.
    pub events: Vec<NewEvent>,
}

/// Decides for a run that began at `base` of a branch, or that `opened` this branch there.
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
        };
    };
    let deleted = NewEvent {
        payload: event::about_branch(&opened.name),
        ..at_base(event::BRANCH_DELETED)
    };
    Rollback {
        closes_for: Some(opened.source),
        events: vec![
            deleted,
            event::branch_activated(opened.source, &opened.source_name),
        ],
    }
}
