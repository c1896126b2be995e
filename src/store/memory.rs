//! The memory that searches of items take.

use std::{fmt, sync::Arc};

/// What a statement of a search may read at once, in what values weigh: more is read as soon as it is known how much
/// that is.
pub const BATCH: usize = 1 << 20;

/// The memory for what a search has read and is about to read.
pub trait ItemMemory: fmt::Debug + Send + Sync {
    /// Has values of this weight from now on, in place of those that there were; false when there is not enough for
    /// more.
    fn resize(&self, weight: u64) -> bool;
}

/// Where a search takes its memory; without it none is counted.
pub type SearchMemory = Option<Arc<dyn ItemMemory>>;

/// Has values of this weight from now on; false when there is not enough memory.
pub(super) fn reserve(memory: &SearchMemory, weight: usize) -> bool {
    memory
        .as_ref()
        .is_none_or(|memory| memory.resize(weight as u64))
}
