//! What is shown of runs that have ended or have not, and of the connections of a storage.

use super::Run;
use crate::time::Timestamp;

/// A run that has not ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OpenRunState {
    /// A worker executes it.
    Executed,
    /// Its time has come so many seconds ago, or comes later if that is negative.
    Waits(f64),
}

/// Some of the connections of a process to its database.
#[derive(Clone, Debug)]
pub struct PoolState {
    /// What they are for.
    pub name: &'static str,
    /// How many there are at most.
    pub max: usize,
    /// How many are open.
    pub open: usize,
    /// How many of them nobody uses.
    pub free: usize,
    /// How many wait for one.
    pub waiting: usize,
}

/// A run that has ended, with what its webhook reports beside its row.
#[derive(Clone, Debug)]
pub struct EndedRun {
    /// The row.
    pub run: Run,
    /// When it was first executed; `None` if it never was.
    pub started_at: Option<Timestamp>,
}
