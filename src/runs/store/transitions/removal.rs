//! What deleting a run does to what the run wrote.

use crate::{id::CheckpointId, runs::Status};

/// A run that is to be deleted, as its row and its branch describe it.
#[derive(Clone, Copy, Debug)]
pub struct DeletedRun {
    /// Its status before anything is done to it.
    pub status: Status,
    /// The head of its branch when it began.
    pub base: Option<CheckpointId>,
    /// The head of its branch when it ended.
    pub last: Option<CheckpointId>,
    /// The head of its branch now; `None` as well when the branch is gone.
    pub head: Option<CheckpointId>,
    /// It began before the first checkpoint, or the one it began at is still stored.
    pub base_is_stored: bool,
    /// Another run is executed on its branch.
    pub branch_is_busy: bool,
}

/// What becomes of what a deleted run wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It never started and has written nothing.
    Nothing,
    /// Its branch goes back to where the run began, and what nothing else needs is deleted.
    RollBack,
    /// Its checkpoints stay, since others build on them; lists leave them out.
    Hide,
}

impl DeletedRun {
    /// Decides. What an executed run has written is rolled back; and what an ended one has, while
    /// nothing came after it and its branch can go back to where it began.
    pub fn removal(&self) -> Removal {
        let is_newest = self.head.is_some() && self.last == self.head && self.base != self.head;
        match self.status {
            Status::Pending => Removal::Nothing,
            Status::Running => Removal::RollBack,
            _ if is_newest && self.base_is_stored && !self.branch_is_busy => Removal::RollBack,
            _ => Removal::Hide,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DeletedRun, Removal};
    use crate::{id::CheckpointId, runs::Status};

    #[test]
    fn an_ended_run_is_rolled_back_only_while_its_branch_can_go_back() {
        let head = Some(CheckpointId::mint(1, []));
        let newest = DeletedRun {
            status: Status::Success,
            base: None,
            last: head,
            head,
            base_is_stored: true,
            branch_is_busy: false,
        };
        assert_eq!(newest.removal(), Removal::RollBack);
        let later = Some(CheckpointId::mint(2, []));
        for run in [
            DeletedRun {
                head: later,
                ..newest
            },
            DeletedRun {
                head: None,
                last: None,
                ..newest
            },
            DeletedRun {
                base: head,
                ..newest
            },
            DeletedRun {
                base_is_stored: false,
                ..newest
            },
            DeletedRun {
                branch_is_busy: true,
                ..newest
            },
        ] {
            assert_eq!(run.removal(), Removal::Hide, "{run:?}");
        }
        let status = Status::Running;
        let running = DeletedRun {
            status,
            last: None,
            ..newest
        };
        assert_eq!(running.removal(), Removal::RollBack);
        let status = Status::Pending;
        let pending = DeletedRun { status, ..running };
        assert_eq!(pending.removal(), Removal::Nothing);
    }
}
