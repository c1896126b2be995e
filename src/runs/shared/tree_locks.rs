//! Locks of trees within this process.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::id::TreeId;

/// Lets posts to one tree follow each other without a connection each: the lock on the tree's row
/// would make them wait too, but with a connection in hand.
#[derive(Default)]
pub struct TreeLocks(Mutex<HashMap<TreeId, Arc<tokio::sync::Mutex<()>>>>);

impl TreeLocks {
    /// Waits for the lock of a tree.
    pub async fn lock(&self, tree: TreeId) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock();
            // Nobody owns or waits for those that only the map refers to.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(tree).or_default().clone()
        };
        lock.lock_owned().await
    }
}
