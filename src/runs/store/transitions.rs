//! Decisions that every storage takes alike when the row of a run changes: which events the log
//! gets, what becomes of a run that its process lost, of what a deleted run wrote, and of the cron that was due.

pub mod firing;
pub mod recovery;
pub mod removal;
pub mod run_events;
