//! The transaction in which an operation changes rows of a tree.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    read::Read,
    rows::{Branch, NewEvent, Outcome, Position, Tag},
};
use crate::{
    checkpoint::{Commit, Error},
    id::{BranchId, CheckpointId, RunId, ThreadId, TreeId},
    tree::{
        members::level::Level,
        ttl::{Ttl, TtlStrategy},
    },
    value::Map,
};

/// A branch to insert as it is, with a name and without a check of epochs.
#[derive(Clone, Debug)]
pub struct InsertBranch {
    /// Key.
    pub id: BranchId,
    /// Tree.
    pub tree: TreeId,
    /// The thread it belongs to.
    pub thread: ThreadId,
    /// Unique in the thread.
    pub name: Arc<str>,
    /// Its head.
    pub head: Option<CheckpointId>,
    /// Depth of the head, -1 without one.
    pub head_depth: i32,
    /// Its outcome: `Interrupted` when its head has nodes that wait to run.
    pub outcome: Outcome,
    /// `branches.origin`.
    pub origin: &'static str,
    /// The branch it is made from.
    pub source: Option<BranchId>,
}

/// States of graphs inside that a new branch shares with the one it goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedInside {
    /// The branch that stored them, or shares them itself.
    pub source: BranchId,
    /// They have smaller ids than this.
    pub creation: CheckpointId,
}

/// A thread to insert into a tree that exists.
#[derive(Clone, Debug)]
pub struct InsertFork {
    /// Key.
    pub id: ThreadId,
    /// The tree.
    pub tree: TreeId,
    /// The thread it is forked from.
    pub parent: ThreadId,
    /// Last inherited checkpoint; `None` for a blank slate.
    pub checkpoint: Option<CheckpointId>,
    /// Depth of that checkpoint, -1 without one.
    pub depth: i32,
    /// The anchor as submitted.
    pub anchor: Option<Arc<str>>,
    /// The position of the anchor as submitted.
    pub position: Option<Position>,
    /// Events of the parent up to this number are inherited; the fork's own follow it.
    pub event_number: i64,
    /// Number of forks above.
    pub level: i32,
    /// Its branch `main`, inserted separately.
    pub active_branch: BranchId,
    /// Its metadata.
    pub metadata: Map,
}

/// Changes rows in one transaction. Dropping it rolls everything back.
///
/// [`Store::begin`](super::threads::Store::begin) locks the tree's row first, so operations on one tree
/// follow each other; supersteps of runs do not take that lock and are kept out by the locks of
/// branches. Lock order everywhere: tree, branches, runs, threads.
#[async_trait]
pub trait Tx: Read {
    /// Locks a branch against claims and commits, and reads it as it is then.
    async fn lock_branch(&mut self, tree: TreeId, id: BranchId) -> Result<Option<Branch>, Error>;
    /// Inserts a branch with epoch 0. The name must be free.
    async fn insert_branch(&mut self, new: InsertBranch) -> Result<(), Error>;
    /// Copies the pending writes of `from` at `base`, and of subgraphs stopped below it, to
    /// `to`, so that the interrupts are open there too, and sets the copy's `creation_id`.
    async fn copy_writes(
        &mut self,
        tree: TreeId,
        base: CheckpointId,
        from: BranchId,
        to: BranchId,
    ) -> Result<(), Error>;
    /// The states of graphs inside that `from` has stored at `base`, which is its head, or shares there itself: what a new
    /// branch at `base` may [share](Self::share_inside). `None` where there are none.
    async fn inside(
        &mut self,
        tree: TreeId,
        base: CheckpointId,
        from: BranchId,
    ) -> Result<Option<SharedInside>, Error>;
    /// Sets `source` and `creation_id` of the new branch `to`, so that its runs and reads find these states.
    async fn share_inside(
        &mut self,
        tree: TreeId,
        to: BranchId,
        shared: SharedInside,
    ) -> Result<(), Error>;
    /// Renames a branch. The name must be free.
    async fn rename_branch(
        &mut self,
        tree: TreeId,
        id: BranchId,
        name: Arc<str>,
    ) -> Result<(), Error>;
    /// Deletes the row of a branch and nothing else.
    async fn delete_branch(&mut self, tree: TreeId, id: BranchId) -> Result<(), Error>;
    /// Makes a branch the active one of its thread.
    async fn activate(&mut self, thread: ThreadId, branch: BranchId) -> Result<(), Error>;

    /// Sets a tag; true when it is new.
    async fn put_tag(&mut self, tree: TreeId, thread: ThreadId, tag: Tag) -> Result<bool, Error>;
    /// Deletes a tag; false when there is none.
    async fn delete_tag(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        name: Arc<str>,
    ) -> Result<bool, Error>;

    /// Finishes runs from outside as `interrupted`. The epochs of their branches rise, so that
    /// workers that execute them are fenced.
    async fn cancel_runs(&mut self, thread: ThreadId, runs: Vec<RunId>) -> Result<(), Error>;
    /// Pins floating runs to a branch.
    async fn pin_runs(&mut self, runs: Vec<RunId>, branch: BranchId) -> Result<(), Error>;

    /// Inserts a fork. The id must be free.
    async fn insert_fork(&mut self, new: InsertFork) -> Result<(), Error>;

    /// Writes a superstep as [`Saver::commit`](crate::checkpoint::Saver::commit) does, inside
    /// this transaction. `Fenced` when the slot's epoch or head is no longer true.
    async fn put(&mut self, commit: Commit) -> Result<i32, Error>;
    /// Stores the outcome of a branch.
    async fn set_outcome(
        &mut self,
        tree: TreeId,
        branch: BranchId,
        outcome: Outcome,
    ) -> Result<(), Error>;

    /// Appends events to a thread's log and updates the thread's `updated_at`. Returns the number
    /// of the last event.
    async fn append(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        events: Vec<NewEvent>,
    ) -> Result<i64, Error>;

    /// Stores or deletes the level of a principal on a tree. `trees.owner` stays as it is.
    async fn put_member(
        &mut self,
        tree: TreeId,
        principal: Arc<str>,
        level: Option<Level>,
    ) -> Result<(), Error>;
    /// Makes a principal the owner of a tree.
    async fn set_owner(&mut self, tree: TreeId, principal: Arc<str>) -> Result<(), Error>;

    /// Merges `metadata` into the thread's (top level keys, later wins).
    async fn patch_thread(&mut self, thread: ThreadId, metadata: Map) -> Result<(), Error>;
    /// Sets how long a thread lives after its last change.
    async fn set_ttl(&mut self, thread: ThreadId, ttl: Ttl) -> Result<(), Error>;
    /// What is to become of a thread that has expired: its last change is long enough ago, and no run of it waits or is
    /// executed, nor can be created before the end of the transaction. Otherwise it is to be taken later.
    async fn expired(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
    ) -> Result<Option<TtlStrategy>, Error>;
    /// [`Store::delete_thread`](super::threads::Store::delete_thread) inside this transaction.
    async fn delete_thread(&mut self, tree: TreeId, thread: ThreadId) -> Result<(), Error>;
    /// [`Store::delete_tree`](super::threads::Store::delete_tree) inside this transaction.
    async fn delete_tree(&mut self, tree: TreeId) -> Result<Vec<ThreadId>, Error>;
    /// [`Store::prune_thread`](super::threads::Store::prune_thread) inside this transaction.
    async fn prune_thread(&mut self, tree: TreeId, thread: ThreadId) -> Result<usize, Error>;

    /// Commits the transaction.
    async fn commit(self: Box<Self>) -> Result<(), Error>;
}
