//! A bound on the memory for supersteps that have ended and are not durable yet, over all runs of a process.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of supersteps that wait for their transactions, of all runs. While there are as many as this allows, a run has
/// one superstep of its own there, and waits with the next one: a storage that is slow costs as much memory with many
/// runs as with few.
#[derive(Debug)]
pub struct AheadMemory {
    most: usize,
    taken: AtomicUsize,
}

impl AheadMemory {
    /// A bound of so many bytes, besides one superstep of each run.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            taken: AtomicUsize::new(0),
        }
    }

    /// Whether a superstep of so many bytes may wait besides another one of its run.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.taken.load(Ordering::Relaxed).saturating_add(bytes) <= self.most
    }

    /// Counts the bytes of a superstep that waits from now on.
    pub fn take(&self, bytes: usize) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes no more, of supersteps that are durable or will never be.
    pub fn release(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Default for AheadMemory {
    /// Without a limit, for runs of which there are few.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}
