//! What becomes of a cron when one of its due times is served.

use crate::runs::Created;

/// What becomes of the row of a cron.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CronChange {
    /// It waits for its next time. With `has_run` the run of this one is there, and is its last one.
    Advance {
        /// The run is there.
        has_run: bool,
    },
    /// It creates no more runs: its principal may not.
    Disable,
    /// It is deleted: its thread is gone.
    Delete,
}

impl CronChange {
    /// Decides by what became of the run; `None` for a due time without one.
    pub fn after(created: Option<&Created>) -> Self {
        match created {
            Some(Created::Started(..) | Created::Queued(_) | Created::Exists) => {
                Self::Advance { has_run: true }
            }
            Some(Created::Busy | Created::QueueFull(_) | Created::Changed) | None => {
                Self::Advance { has_run: false }
            }
            Some(Created::Denied(_)) => Self::Disable,
            Some(Created::NoThread) => Self::Delete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cron_goes_on_unless_it_can_never_create_a_run() {
        for (created, change) in [
            (Some(Created::Exists), CronChange::Advance { has_run: true }),
            (Some(Created::Busy), CronChange::Advance { has_run: false }),
            (
                Some(Created::QueueFull(1)),
                CronChange::Advance { has_run: false },
            ),
            (None, CronChange::Advance { has_run: false }),
            (Some(Created::NoThread), CronChange::Delete),
        ] {
            assert_eq!(CronChange::after(created.as_ref()), change);
        }
    }
}
