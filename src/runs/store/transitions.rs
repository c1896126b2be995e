//! Decisions that every storage takes alike when the row of a run changes: which events the log
//! gets, what becomes of a run that its process lost, and of what a deleted run wrote.

use std::str::FromStr;

use super::Strategy;

pub mod recovery;
pub mod removal;
pub mod run_events;

impl FromStr for Strategy {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Reject, Self::Enqueue, Self::Interrupt, Self::Rollback]
            .into_iter()
            .find(|strategy| strategy.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not a multitask strategy"))
    }
}
