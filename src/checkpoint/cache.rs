//! Decoded checkpoints by id, in memory: what is stored of one besides its row and its pending writes never
//! changes. Of the checkpoint at which the last run on a branch ended it is known, too, that nothing is pending
//! there until somebody else claims the branch.

use std::sync::Arc;

use super::{Slot, frame::Decoded};
use crate::{
    cache::ByteCache,
    id::{BranchId, CheckpointId, TreeId},
};

/// What the end of a run takes in memory, and which part of the cache ends may take.
const END_BYTES: usize = 128;
const SHARE_OF_ENDS: usize = 16;

/// Recently used checkpoints without their pending writes, bounded by an estimate of their bytes.
pub struct DecodedCheckpoints {
    entries: ByteCache<(TreeId, CheckpointId), Arc<Decoded>>,
    ends: ByteCache<(TreeId, BranchId), End>,
}

/// The checkpoint at which a run ended with nothing pending, and the epoch that the run had.
#[derive(Clone, Copy)]
struct End {
    checkpoint: CheckpointId,
    epoch: i64,
}

impl DecodedCheckpoints {
    /// An empty cache for about `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let ends = limit / SHARE_OF_ENDS;
        Self {
            entries: ByteCache::new(limit - ends),
            ends: ByteCache::new(ends),
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
        let (id, bytes) = (decoded.checkpoint.id, decoded.memory());
        self.entries
            .insert((tree, id), Arc::new(decoded), bytes, None);
    }

    /// Stores the checkpoint at which the run that had `slot` ended, with nothing pending there.
    pub fn insert_end(&self, slot: Slot, decoded: Decoded) {
        let end = End {
            checkpoint: decoded.checkpoint.id,
            epoch: slot.epoch,
        };
        self.insert(slot.tree, decoded);
        self.ends
            .insert((slot.tree, slot.branch), end, END_BYTES, None);
    }

    /// The head of a branch for a run that has just claimed it, if nothing is pending there: the run before it
    /// ended there, and nobody has had the right to write to the branch since.
    pub fn claimed_head(&self, slot: Slot) -> Option<Arc<Decoded>> {
        let end = self.ends.get(&(slot.tree, slot.branch))?;
        let is_next = slot.head == Some(end.checkpoint) && slot.epoch == end.epoch + 1;
        if is_next {
            self.get(slot.tree, end.checkpoint)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        checkpoint::frame::{Frame, tests::checkpoint},
        id::ThreadId,
    };

    fn decoded() -> Decoded {
        Decoded {
            checkpoint: checkpoint(&[]),
            frame: Frame::default(),
            writes: vec![],
            references: vec![],
        }
    }

    #[test]
    fn a_head_is_known_to_the_next_run_alone() {
        let cache = DecodedCheckpoints::new(1 << 20);
        let (left, other) = (decoded(), decoded());
        let thread = ThreadId::mint();
        let slot = |epoch, head: &Decoded| Slot {
            tree: TreeId::of_root(thread),
            thread,
            branch: left.checkpoint.branch,
            epoch,
            head: Some(head.checkpoint.id),
            head_depth: 0,
        };
        assert!(cache.claimed_head(slot(4, &left)).is_none());
        cache.insert_end(slot(3, &left), left.clone());
        let found = cache.claimed_head(slot(4, &left)).unwrap();
        assert_eq!(found.checkpoint.id, left.checkpoint.id);
        // Somebody else had the right to write in between, and may have left something pending.
        assert!(cache.claimed_head(slot(5, &left)).is_none());
        assert!(cache.claimed_head(slot(3, &left)).is_none());
        // The head has moved, as it does when a message is posted.
        assert!(cache.claimed_head(slot(4, &other)).is_none());
        let elsewhere = Slot {
            branch: other.checkpoint.branch,
            ..slot(4, &left)
        };
        assert!(cache.claimed_head(elsewhere).is_none());
        let foreign = Slot {
            tree: TreeId::of_root(ThreadId::mint()),
            ..slot(4, &left)
        };
        assert!(cache.claimed_head(foreign).is_none());
    }
}
