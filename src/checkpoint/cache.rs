//! Decoded checkpoints by id, in memory: what is stored of one besides its row and its pending writes never
//! changes. Of the checkpoint at which the last run on a branch ended it is known, too, that nothing is pending
//! there until somebody else claims the branch, and what its row has.

use std::sync::Arc;

use super::{Slot, frame::Decoded};
use crate::{
    cache::ByteCache,
    id::{BranchId, CheckpointId, ThreadId, TreeId},
};

/// What the end of a run takes in memory, and which part of the cache ends may take.
const END_BYTES: usize = 128;
const SHARE_OF_ENDS: usize = 16;
/// What the last end on a thread takes. They may have half as much as ends.
const LAST_BYTES: usize = 160;

/// Recently used checkpoints without their pending writes, bounded by an estimate of their bytes.
pub struct DecodedCheckpoints {
    entries: ByteCache<(TreeId, CheckpointId), Arc<Decoded>>,
    /// Where the last run on a branch ended, for the next run there.
    ends: ByteCache<(TreeId, BranchId), End>,
    /// Where the last run on a thread ended, for those who read the thread.
    last: ByteCache<ThreadId, LastEnd>,
}

/// The checkpoint at which a run ended with nothing pending, and the epoch that the run had.
#[derive(Clone, Copy)]
struct End {
    checkpoint: CheckpointId,
    epoch: i64,
}

/// The end of the last run on a thread, on whichever of its branches that was.
#[derive(Clone, Copy)]
struct LastEnd {
    tree: TreeId,
    branch: BranchId,
    end: End,
    row_weight: u64,
}

/// The checkpoint at which a run ended with nothing pending, as it would be read.
#[derive(Debug)]
pub struct LastCheckpoint {
    /// All of it, with the parent that it was stored with: pruning may change that later.
    pub decoded: Decoded,
    /// What its row weighs.
    pub row_weight: u64,
}

/// A checkpoint at which the last run of this process on a thread ended. While it is the head, under the epoch of that
/// run, it is what would be read, unless pruning has marked it:
///
/// - Rows of checkpoints are only inserted and removed, and a head is not removed. Pruning alone changes one: it gives a
///   checkpoint whose parent it removes another parent, and marks its branch if that is the head.
/// - Runs write what is pending at a head on their branch, under an epoch of their own; the run of this one has ended.
///   Edits of states do under an epoch that they find, in the commit that moves the head. What takes a head back or
///   deletes what is pending there raises the epoch first.
/// - A thread that is created with the id of a deleted one has another branch.
#[derive(Clone)]
pub struct CachedHead {
    /// All of it, as it was written.
    pub decoded: Arc<Decoded>,
    /// What it weighs, with its row.
    pub weight: u64,
    of: LastEnd,
}

impl CachedHead {
    /// Whether this is the head of a branch, still under the epoch of the run that left it.
    pub fn is_at(&self, slot: &Slot) -> bool {
        let LastEnd {
            tree, branch, end, ..
        } = self.of;
        (slot.tree, slot.branch) == (tree, branch)
            && slot.head == Some(end.checkpoint)
            && slot.epoch == end.epoch
    }
}

impl DecodedCheckpoints {
    /// An empty cache for about `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let ends = limit / SHARE_OF_ENDS;
        Self {
            entries: ByteCache::new(limit - ends - ends / 2),
            ends: ByteCache::new(ends),
            last: ByteCache::new(ends / 2),
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
    pub fn insert_end(&self, slot: Slot, last: LastCheckpoint) {
        let end = End {
            checkpoint: last.decoded.checkpoint.id,
            epoch: slot.epoch,
        };
        let (tree, branch) = (slot.tree, slot.branch);
        self.insert(tree, last.decoded);
        self.ends.insert((tree, branch), end, END_BYTES, None);
        let last = LastEnd {
            tree,
            branch,
            end,
            row_weight: last.row_weight,
        };
        self.last.insert(slot.thread, last, LAST_BYTES, None);
    }

    /// The head of a branch for a run that has just claimed it, if nothing is pending there: the run before it
    /// ended there, and nobody has had the right to write to the branch since. From here on the branch has another
    /// epoch: whoever reads the thread need not compare the end of the run before.
    pub fn claimed_head(&self, slot: Slot) -> Option<Arc<Decoded>> {
        self.last
            .remove_if(&slot.thread, |last| last.branch == slot.branch);
        let end = self.ends.get(&(slot.tree, slot.branch))?;
        let is_next = slot.head == Some(end.checkpoint) && slot.epoch == end.epoch + 1;
        if is_next {
            self.get(slot.tree, end.checkpoint)
        } else {
            None
        }
    }

    /// Where the last run of this process on a thread ended.
    pub fn last_head(&self, thread: ThreadId) -> Option<CachedHead> {
        let of = self.last.get(&thread)?;
        let decoded = self.get(of.tree, of.end.checkpoint)?;
        let weight = decoded.weight() + of.row_weight;
        Some(CachedHead {
            decoded,
            weight,
            of,
        })
    }

    /// Forgets the last end of a thread that is no longer the head of its active branch, unless a later run has
    /// ended here meanwhile.
    pub fn forget_last(&self, thread: ThreadId, head: &CachedHead) {
        let checkpoint = head.of.end.checkpoint;
        self.last
            .remove_if(&thread, |last| last.end.checkpoint == checkpoint);
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

    fn last(decoded: &Decoded) -> LastCheckpoint {
        LastCheckpoint {
            decoded: decoded.clone(),
            row_weight: 7,
        }
    }

    /// The branch of `left`, which has `head` under an epoch.
    fn slot(thread: ThreadId, left: &Decoded, epoch: i64, head: &Decoded) -> Slot {
        Slot {
            tree: TreeId::of_root(thread),
            thread,
            branch: left.checkpoint.branch,
            epoch,
            head: Some(head.checkpoint.id),
            head_depth: 0,
        }
    }

    #[test]
    fn a_head_is_known_to_the_next_run_alone() {
        let cache = DecodedCheckpoints::new(1 << 20);
        let (left, other) = (decoded(), decoded());
        let thread = ThreadId::mint();
        let slot = |epoch, head| slot(thread, &left, epoch, head);
        assert!(cache.claimed_head(slot(4, &left)).is_none());
        cache.insert_end(slot(3, &left), last(&left));
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

    #[test]
    fn the_last_head_of_a_thread_is_known_until_it_is_forgotten() {
        let cache = DecodedCheckpoints::new(1 << 20);
        let (left, next) = (decoded(), decoded());
        let thread = ThreadId::mint();
        let slot = |epoch, head| slot(thread, &left, epoch, head);
        assert!(cache.last_head(thread).is_none());
        cache.insert_end(slot(3, &left), last(&left));
        let found = cache.last_head(thread).unwrap();
        assert_eq!(found.decoded.checkpoint.id, left.checkpoint.id);
        assert_eq!(found.weight, left.weight() + 7);
        let here = slot(3, &left);
        assert!(found.is_at(&here));
        // Somebody else has the right to write, or had it.
        assert!(!found.is_at(&slot(4, &left)));
        assert!(!found.is_at(&slot(3, &next)));
        let elsewhere = Slot {
            branch: next.checkpoint.branch,
            ..here
        };
        assert!(!found.is_at(&elsewhere));
        let foreign = Slot {
            tree: TreeId::of_root(ThreadId::mint()),
            ..here
        };
        assert!(!found.is_at(&foreign));
        // What a later run left is not forgotten for what an earlier one did.
        cache.insert_end(slot(4, &next), last(&next));
        cache.forget_last(thread, &found);
        let found = cache.last_head(thread).unwrap();
        assert_eq!(found.decoded.checkpoint.id, next.checkpoint.id);
        cache.forget_last(thread, &found);
        assert!(cache.last_head(thread).is_none());
        // The next run begins there all the same, and from then on the thread has gone on.
        cache.insert_end(slot(4, &next), last(&next));
        assert!(cache.claimed_head(slot(5, &next)).is_some());
        assert!(cache.last_head(thread).is_none());
    }
}
