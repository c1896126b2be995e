//! Decoded checkpoints by id, in memory. They never change, so that a warm turn reads from the
//! storage only their pending writes.

use std::sync::Arc;

use super::frame::Decoded;
use crate::{
    cache::ByteCache,
    id::{CheckpointId, TreeId},
};

/// Recently used checkpoints without their pending writes, bounded by an estimate of their bytes.
pub struct DecodedCheckpoints {
    entries: ByteCache<(TreeId, CheckpointId), Arc<Decoded>>,
}

impl DecodedCheckpoints {
    /// An empty cache for about `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            entries: ByteCache::new(limit),
        }
    }

    /// A checkpoint without its pending writes.
    pub fn get(&self, tree: TreeId, id: CheckpointId) -> Option<Arc<Decoded>> {
        self.entries.get(&(tree, id))
    }

    /// Stores a checkpoint. Its pending writes are dropped, because those change.
    pub fn insert(&self, tree: TreeId, mut decoded: Decoded) {
        decoded.writes.clear();
        decoded.references.clear();
        let (id, bytes) = (decoded.checkpoint.id, decoded.weight());
        self.entries
            .insert((tree, id), Arc::new(decoded), bytes, None);
    }
}
