//! How much is stored of a thread.

use std::{collections::BTreeMap, sync::Arc};

/// Rows, and the bytes of what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many rows.
    pub rows: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl Amount {
    /// Adds one row.
    pub fn add(&mut self, bytes: u64) {
        self.rows += 1;
        self.bytes += bytes;
    }
}

/// What is stored of the checkpoints that a thread has written. What a fork inherits is its parent's; a value that
/// checkpoints of both name counts for both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Checkpoints with their metadata.
    pub checkpoints: Amount,
    /// Versions of values by their channel, of all namespaces.
    pub channels: BTreeMap<Arc<str>, Amount>,
    /// Results of tasks and what they wait for.
    pub writes: Amount,
}

impl Usage {
    /// All versions of values.
    pub fn values(&self) -> Amount {
        let mut sum = Amount::default();
        for channel in self.channels.values() {
            sum.rows += channel.rows;
            sum.bytes += channel.bytes;
        }
        sum
    }
}
