//! Events that a thread's log gets when one of its runs is created, starts or ends. A run whose
//! thread is deleted with it logs none.

use crate::{
    id::{BranchId, CheckpointId, RunId},
    runs::Status,
    tree::{event, store::rows::NewEvent},
};

/// A run was created, on a branch or for the one that is active when it starts.
pub fn enqueued(run: RunId, branch: Option<BranchId>) -> NewEvent {
    about(event::RUN_ENQUEUED, run, branch)
}

/// A worker started to execute a run.
pub fn started(run: RunId, branch: BranchId) -> NewEvent {
    about(event::RUN_STARTED, run, Some(branch))
}

fn about(kind: &'static str, run: RunId, branch: Option<BranchId>) -> NewEvent {
    NewEvent {
        kind,
        payload: event::about_run(run),
        branch,
        ..NewEvent::default()
    }
}

/// A run that ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedRun {
    /// The run.
    pub id: RunId,
    /// The branch it worked on, or waited for.
    pub branch: BranchId,
    /// The head of the branch when the run began.
    pub base: Option<CheckpointId>,
    /// The head of the branch now; `None` when the run never started, or when what it wrote is
    /// rolled back.
    pub head: Option<CheckpointId>,
    /// Its final status.
    pub status: Status,
}

impl EndedRun {
    /// The checkpoint that the run left, if it moved its branch. The last message up to there,
    /// when it is the run's, is marked as final.
    pub fn left(&self) -> Option<CheckpointId> {
        self.head.filter(|_| self.head != self.base)
    }

    /// The checkpoint that the run left, and its end.
    pub fn events(&self) -> Vec<NewEvent> {
        let mut events = Vec::with_capacity(2);
        if self.left().is_some() {
            events.push(NewEvent {
                kind: event::CHECKPOINT_CREATED,
                branch: Some(self.branch),
                checkpoint: self.head,
                ..NewEvent::default()
            });
        }
        events.push(NewEvent {
            kind: event::RUN_FINISHED,
            payload: event::end_of_run(self.id, self.status.as_str()),
            branch: Some(self.branch),
            checkpoint: self.head,
            ..NewEvent::default()
        });
        events
    }
}
