//! How many runs wait, and for how long.

use tokio::time::Instant;

use crate::runs::OpenRunState;

/// The open runs of all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waiting {
    /// How many wait, also for their time.
    pub pending: usize,
    /// How many are executed.
    pub running: usize,
    /// Seconds that the one waits whose time came first.
    pub longest: Option<f64>,
    /// Seconds that the one in the middle waits.
    pub median: Option<f64>,
}

impl Waiting {
    pub(super) fn of(states: &[OpenRunState]) -> Self {
        let mut waits = vec![];
        let mut found = Self::default();
        for state in states {
            match state {
                OpenRunState::Executed => found.running += 1,
                OpenRunState::Waits(seconds) => {
                    found.pending += 1;
                    waits.extend((*seconds >= 0.0).then_some(*seconds));
                }
            }
        }
        waits.sort_unstable_by(f64::total_cmp);
        found.longest = waits.last().copied();
        found.median = waits.get(waits.len() / 2).copied();
        found
    }
}

/// What was read last, and when.
#[derive(Default)]
pub(in crate::runs) struct LastRead(pub(super) tokio::sync::Mutex<Option<(Instant, Waiting)>>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_whose_time_has_not_come_are_pending_and_wait_for_nobody() {
        use OpenRunState::{Executed, Waits};
        assert_eq!(Waiting::of(&[]), Waiting::default());
        let states = [Waits(3.0), Executed, Waits(-60.0), Waits(1.0), Waits(9.0)];
        let expected = Waiting {
            pending: 4,
            running: 1,
            longest: Some(9.0),
            median: Some(3.0),
        };
        assert_eq!(Waiting::of(&states), expected);
    }
}
