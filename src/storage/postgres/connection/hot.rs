//! Lines at trees and threads that many requests change at once: they wait here, not each with a
//! connection in hand for the lock of a row.

use std::sync::Arc;

use crate::{
    cache::ByteCache,
    checkpoint::Error,
    contention::{Lines, Patience, Turn},
    id::{ThreadId, TreeId},
};

/// Bytes of a fork that is remembered with its tree, and of all of them: about a hundred thousand.
const FORK_BYTES: usize = 100;
const FORKS_BYTES: usize = 10 << 20;

/// The lines of one process. Processes still meet at the rows.
#[derive(Clone)]
pub(crate) struct Hot(Arc<Inner>);

struct Inner {
    trees: Lines<TreeId>,
    threads: Lines<ThreadId>,
    /// The trees of forks; that of any other thread has its own id.
    forks: ByteCache<ThreadId, TreeId>,
}

/// The right to change one thread.
pub(crate) struct ThreadTurn {
    _thread: Turn<ThreadId>,
    _tree: Turn<TreeId>,
}

impl Hot {
    pub(crate) fn new(patience: Patience) -> Self {
        Self(Arc::new(Inner {
            trees: Lines::new(patience),
            threads: Lines::new(patience),
            forks: ByteCache::new(FORKS_BYTES),
        }))
    }

    /// A turn at a whole tree, for a transaction that locks its row.
    pub(crate) async fn tree(&self, tree: TreeId) -> Result<Turn<TreeId>, Error> {
        Ok(self.0.trees.alone(tree).await?)
    }

    /// A turn at one thread, for statements that lock its branches, while nobody has one at its tree.
    pub(crate) async fn thread(&self, thread: ThreadId) -> Result<ThreadTurn, Error> {
        let _thread = self.0.threads.alone(thread).await?;
        let _tree = self.0.trees.shared(self.tree_of(thread)).await?;
        Ok(ThreadTurn { _thread, _tree })
    }

    /// Remembers the tree of a thread. Until then its line is not that of its relatives, which
    /// costs a wait at a row and nothing else.
    pub(crate) fn remember(&self, thread: ThreadId, tree: TreeId) {
        if thread.0 == tree.0 {
            return;
        }
        self.0.forks.insert(thread, tree, FORK_BYTES, None);
    }

    fn tree_of(&self, thread: ThreadId) -> TreeId {
        self.0.forks.get(&thread).unwrap_or(TreeId(thread.0))
    }
}
