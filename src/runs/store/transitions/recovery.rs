//! What becomes of a run that no process executes any more.

use crate::id::CheckpointId;
use crate::runs::DEATHS;

/// A run that is `running` and that no process executes, as its row and its branch describe it.
#[derive(Clone, Copy, Debug)]
pub struct LostRun {
    /// Its process died. One that handed its runs over at shutdown did not, and neither did one
    /// that lost the response to a claim.
    pub died: bool,
    /// How often its processes had died before, while the branch stood at `lost_at`.
    pub losses: i32,
    /// Head of its branch when a process of it died last.
    pub lost_at: Option<CheckpointId>,
    /// Head of its branch now.
    pub head: Option<CheckpointId>,
}

/// What becomes of a lost run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Another worker executes it. Its row is to remember these.
    TakeOver {
        /// How often its processes have died by now.
        losses: i32,
        /// Head of its branch when that happened last.
        lost_at: Option<CheckpointId>,
    },
    /// It ends with an error: [`DEATHS`] processes died over it while it did not move.
    End,
}

impl LostRun {
    /// Decides. A run that has moved since a process of it died starts anew with its losses.
    pub fn recovery(&self) -> Recovery {
        let before = if self.lost_at == self.head {
            self.losses
        } else {
            0
        };
        let losses = before + i32::from(self.died);
        if losses >= DEATHS {
            return Recovery::End;
        }
        Recovery::TakeOver {
            losses,
            lost_at: if self.died { self.head } else { self.lost_at },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LostRun, Recovery};
    use crate::{id::CheckpointId, runs::DEATHS};

    #[test]
    fn a_run_is_ended_when_its_processes_die_while_it_does_not_move() {
        let head = Some(CheckpointId::mint(0, []));
        let mut run = LostRun {
            died: true,
            losses: 0,
            lost_at: None,
            head,
        };
        for expected in 1..DEATHS {
            let Recovery::TakeOver { losses, lost_at } = run.recovery() else {
                panic!("ended after {expected} deaths");
            };
            assert_eq!((losses, lost_at), (expected, head));
            (run.losses, run.lost_at) = (losses, lost_at);
        }
        assert_eq!(run.recovery(), Recovery::End);
        run.head = Some(CheckpointId::mint(1, []));
        let (losses, lost_at) = (1, run.head);
        assert_eq!(run.recovery(), Recovery::TakeOver { losses, lost_at });
    }

    #[test]
    fn a_run_that_was_handed_over_loses_nothing() {
        let run = LostRun {
            died: false,
            losses: DEATHS - 1,
            lost_at: None,
            head: None,
        };
        let (losses, lost_at) = (DEATHS - 1, None);
        assert_eq!(run.recovery(), Recovery::TakeOver { losses, lost_at });
    }
}
