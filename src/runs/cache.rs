//! Decoded checkpoints by id. They never change, so a warm turn reads only what is pending.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{
    checkpoint::frame::Decoded,
    id::{CheckpointId, TreeId},
    tree::messages::values::Warm,
};

/// The most recently used checkpoints, bounded by an estimate of their bytes.
pub struct Cache {
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    entries: HashMap<(TreeId, CheckpointId), (Arc<Decoded>, usize)>,
    order: VecDeque<(TreeId, CheckpointId)>,
    bytes: usize,
}

impl Cache {
    /// Holds about `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            inner: Mutex::default(),
        }
    }

    /// A checkpoint without its pending writes.
    pub fn get(&self, tree: TreeId, id: CheckpointId) -> Option<Arc<Decoded>> {
        let inner = self.inner.lock();
        inner
            .entries
            .get(&(tree, id))
            .map(|(found, _)| found.clone())
    }

    /// Keeps a checkpoint. Its pending writes are dropped: those change.
    pub fn put(&self, tree: TreeId, mut decoded: Decoded) {
        decoded.writes.clear();
        decoded.references.clear();
        let size = decoded.weight();
        if size > self.limit / 4 {
            return;
        }
        let key = (tree, decoded.checkpoint.id);
        let mut inner = self.inner.lock();
        if let Some((_, old)) = inner.entries.insert(key, (Arc::new(decoded), size)) {
            inner.bytes -= old;
        } else {
            inner.order.push_back(key);
        }
        inner.bytes += size;
        while inner.bytes > self.limit {
            let Some(oldest) = inner.order.pop_front() else {
                break;
            };
            if let Some((_, size)) = inner.entries.remove(&oldest) {
                inner.bytes -= size;
            }
        }
    }
}

impl Warm for Cache {
    fn get(&self, tree: TreeId, id: CheckpointId) -> Option<Arc<Decoded>> {
        Cache::get(self, tree, id)
    }

    fn put(&self, tree: TreeId, decoded: Decoded) {
        Cache::put(self, tree, decoded);
    }
}
