//! Lines at trees and threads that many requests change at once: they wait here, not each with a
//! connection in hand for the lock of a row.

use std::sync::Arc;

use crate::{
    cache::ByteCache,
    checkpoint::Error,
    contention::{Lines, Patience, Turn},
    id::{ThreadId, TreeId},
};

/// Bytes of a thread that is remembered with its tree, and of all of them: about a hundred thousand.
const KNOWN_BYTES: usize = 100;
const ALL_BYTES: usize = 10 << 20;

/// The lines of one process. Processes still meet at the rows.
#[derive(Clone)]
pub(crate) struct Hot(Arc<Inner>);

struct Inner {
    trees: Lines<TreeId>,
    threads: Lines<ThreadId>,
    /// Of trees whose derived rows are written.
    derived: Lines<TreeId>,
    /// The trees of threads, of forks above all: that of any other thread has its own id.
    known: ByteCache<ThreadId, TreeId>,
}

/// The right to change one thread.
pub(crate) struct ThreadTurn {
    thread: Turn<ThreadId>,
    tree: Turn<TreeId>,
}

/// The right to write what is derived of one tree: of all that do, one waits with a connection for its row.
pub(crate) struct DerivedTurn {
    _tree: Turn<TreeId>,
    _derived: Turn<TreeId>,
}

impl Hot {
    pub(crate) fn new(patience: Patience) -> Self {
        Self(Arc::new(Inner {
            trees: Lines::new(patience),
            threads: Lines::new(patience),
            derived: Lines::new(patience),
            known: ByteCache::new(ALL_BYTES),
        }))
    }

    /// A turn at a whole tree, for a transaction that locks its row.
    pub(crate) async fn tree(&self, tree: TreeId) -> Result<Turn<TreeId>, Error> {
        Ok(self.0.trees.alone(tree).await?)
    }

    /// The same for what a run writes: however many wait, it goes on when its turn comes, and is tried again where that
    /// takes too long.
    pub(crate) async fn tree_for_run(&self, tree: TreeId) -> Result<Turn<TreeId>, Error> {
        let turn = self.0.trees.alone_among_any(tree).await;
        turn.map_err(|_| Error::Unavailable("others change the tree for too long".to_owned()))
    }

    /// A turn at what is derived of a tree, for a transaction that shares the lock of the tree's row.
    pub(crate) async fn derived(&self, tree: TreeId) -> Result<DerivedTurn, Error> {
        let derived = self.0.derived.alone(tree).await?;
        let tree = self.0.trees.shared(tree).await?;
        Ok(DerivedTurn {
            _tree: tree,
            _derived: derived,
        })
    }

    /// The same if nobody changes the tree or what is derived of it, or waits to do so.
    pub(crate) fn try_derived(&self, tree: TreeId) -> Option<DerivedTurn> {
        let derived = self.0.derived.try_alone(tree)?;
        Some(DerivedTurn {
            _tree: self.0.trees.try_shared(tree)?,
            _derived: derived,
        })
    }

    /// A turn at one thread, for statements that lock its branches, while nobody has one at its tree.
    pub(crate) async fn thread(&self, thread: ThreadId) -> Result<ThreadTurn, Error> {
        let turn = self.0.threads.alone(thread).await?;
        let tree = self.known_tree(thread).unwrap_or(TreeId(thread.0));
        let tree = self.0.trees.shared(tree).await?;
        Ok(ThreadTurn { thread: turn, tree })
    }

    /// A turn at one thread for statements that wait for the row of its tree: of all that would, one has a connection
    /// at a time.
    pub(crate) async fn thread_and_tree(
        &self,
        thread: ThreadId,
        tree: TreeId,
    ) -> Result<ThreadTurn, Error> {
        Ok(ThreadTurn {
            thread: self.0.threads.alone(thread).await?,
            tree: self.tree(tree).await?,
        })
    }

    /// Makes a turn at one thread such a one.
    pub(crate) async fn with_tree(
        &self,
        turn: ThreadTurn,
        tree: TreeId,
    ) -> Result<ThreadTurn, Error> {
        let ThreadTurn {
            thread,
            tree: shared,
        } = turn;
        drop(shared);
        let tree = self.tree(tree).await?;
        Ok(ThreadTurn { thread, tree })
    }

    /// Remembers the tree of a fork. Until then its line is not that of its relatives, which
    /// costs a wait at a row and nothing else.
    pub(crate) fn remember_fork(&self, thread: ThreadId, tree: TreeId) {
        if thread.0 != tree.0 {
            self.remember(thread, tree);
        }
    }

    /// Remembers the tree of any thread.
    pub(crate) fn remember(&self, thread: ThreadId, tree: TreeId) {
        self.0.known.insert(thread, tree, KNOWN_BYTES, None);
    }

    /// The tree of a thread, if it is remembered.
    pub(crate) fn known_tree(&self, thread: ThreadId) -> Option<TreeId> {
        self.0.known.get(&thread)
    }
}
