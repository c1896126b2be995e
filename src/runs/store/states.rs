//! What operators are shown of open runs and of the connections of a storage.

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
