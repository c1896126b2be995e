//! What operations on the tree need of a storage: rows to read, and a transaction to change them
//! in. The rules live in this room, once for every storage; a storage only knows rows.

use std::sync::Arc;

use async_trait::async_trait;

use super::members::{Level, Members};
use super::rows::{Branch, Event, NewEvent, Node, OpenRun, Point, Position, Tag, ThreadRow};
use crate::{
    checkpoint::{Commit, Error},
    id::{BranchId, CheckpointId, NodeId, RunId, ThreadId, TreeId},
    value::Map,
};

/// Reads rows. Nothing here loads channel values: see [`Saver`](crate::checkpoint::Saver).
#[async_trait]
pub trait Read: Send {
    /// A thread, also one that is deleted and leaves a tombstone.
    async fn thread_row(&mut self, id: ThreadId) -> Result<Option<ThreadRow>, Error>;
    /// Every thread of a tree, tombstones too, oldest first.
    async fn relatives(&mut self, tree: TreeId) -> Result<Vec<ThreadRow>, Error>;

    /// Branches of a thread, oldest first.
    async fn branches(&mut self, tree: TreeId, thread: ThreadId) -> Result<Vec<Branch>, Error>;
    /// One branch of the tree.
    async fn branch(&mut self, tree: TreeId, id: BranchId) -> Result<Option<Branch>, Error>;

    /// Tags of a thread by name.
    async fn tags(&mut self, tree: TreeId, thread: ThreadId) -> Result<Vec<Tag>, Error>;
    /// One tag.
    async fn tag(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        name: Arc<str>,
    ) -> Result<Option<Tag>, Error>;

    /// One checkpoint of the root namespace.
    async fn point(&mut self, tree: TreeId, id: CheckpointId) -> Result<Option<Point>, Error>;
    /// The path from `start` towards the root: newest first, at most `limit` rows (reference Q1).
    async fn path(
        &mut self,
        tree: TreeId,
        start: CheckpointId,
        limit: usize,
    ) -> Result<Vec<Point>, Error>;
    /// Whether a thread sees a checkpoint: its own, or on the path of its fork base (Q2).
    async fn visible(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        id: CheckpointId,
    ) -> Result<bool, Error>;
    /// Whether `ancestor` lies on the path of `start` (itself included). The walk stops at the
    /// ancestor's depth.
    async fn on_path(
        &mut self,
        tree: TreeId,
        start: CheckpointId,
        ancestor: CheckpointId,
    ) -> Result<bool, Error>;
    /// Whether the branch has an unanswered question among its writes at a checkpoint.
    async fn is_interrupted(
        &mut self,
        tree: TreeId,
        branch: BranchId,
        at: CheckpointId,
    ) -> Result<bool, Error>;

    /// One node of the message index.
    async fn node(&mut self, tree: TreeId, id: NodeId) -> Result<Option<Node>, Error>;
    /// Every node of the tree about these messages, newest checkpoint first.
    async fn nodes_of(&mut self, tree: TreeId, ids: Vec<Arc<str>>) -> Result<Vec<Node>, Error>;
    /// The chain of `add` nodes from `start` towards the first message: newest first, at most
    /// `limit` rows.
    async fn chain(
        &mut self,
        tree: TreeId,
        start: NodeId,
        limit: usize,
    ) -> Result<Vec<Node>, Error>;
    /// The `add` nodes that follow `parent` (the first messages without one) in the tree, oldest
    /// first.
    async fn children(&mut self, tree: TreeId, parent: Option<NodeId>) -> Result<Vec<Node>, Error>;

    /// Events of a thread after a number, in order.
    async fn events(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Event>, Error>;

    /// Events that say how these branches are called from then on, or were called until then:
    /// `BranchCreated`, `BranchRenamed` and `BranchDeleted`, of each branch in order.
    async fn naming_events(
        &mut self,
        tree: TreeId,
        branches: Vec<BranchId>,
    ) -> Result<Vec<Event>, Error>;

    /// Pending and running runs of a thread, in order of creation.
    async fn open_runs(&mut self, tree: TreeId, thread: ThreadId) -> Result<Vec<OpenRun>, Error>;

    // For outlines.

    /// The root checkpoints that a thread wrote itself, deeper than `below`, by depth, then age.
    async fn own_points(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        below: i32,
        limit: usize,
    ) -> Result<Vec<Point>, Error>;
    /// The `add` nodes that a thread wrote itself, with ordinals above `after`, by ordinal, then
    /// age.
    async fn own_nodes(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        after: i32,
        limit: usize,
    ) -> Result<Vec<Node>, Error>;

    /// Everybody with a level on a tree.
    async fn members(&mut self, tree: TreeId) -> Result<Members, Error>;

    // For pages of messages.

    /// Of the chain of `add` nodes that ends with `end` those whose ordinals follow `after`:
    /// oldest first, at most `limit` rows. Of the others only ids are read.
    async fn segment(
        &mut self,
        tree: TreeId,
        end: NodeId,
        after: i32,
        limit: usize,
    ) -> Result<Vec<Node>, Error>;
    /// The `add` nodes that follow any of these in the tree, oldest first.
    async fn followers(&mut self, tree: TreeId, parents: Vec<NodeId>) -> Result<Vec<Node>, Error>;
}

/// A branch to insert as it is given: no name is made up, no epoch is checked.
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
    /// How it counts as left: `Interrupted` when its head has nodes that wait.
    pub outcome: super::Outcome,
    /// `branches.origin`.
    pub origin: &'static str,
    /// The branch it is made from.
    pub source: Option<BranchId>,
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
    /// The anchor as sent.
    pub anchor: Option<Arc<str>>,
    /// Its position as sent.
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

/// Changes rows in one transaction. Dropping it undoes everything.
///
/// [`Store::begin`](super::Store::begin) locks the tree's row first, so operations on one tree
/// follow each other; supersteps of runs do not take that lock and are kept out by the locks of
/// branches. Lock order everywhere: tree, branches, runs, threads.
#[async_trait]
pub trait Tx: Read {
    /// Locks a branch against claims and commits, and reads it as it is then.
    async fn lock_branch(&mut self, tree: TreeId, id: BranchId) -> Result<Option<Branch>, Error>;
    /// Inserts a branch with epoch 0. The name must be free.
    async fn insert_branch(&mut self, new: InsertBranch) -> Result<(), Error>;
    /// Copies the pending writes of `from` at `base`, and of subgraphs stopped below it, to
    /// `to`, as interrupted (Q7), and sets the copy's `creation_id`.
    async fn copy_writes(
        &mut self,
        tree: TreeId,
        base: CheckpointId,
        from: BranchId,
        to: BranchId,
    ) -> Result<(), Error>;
    /// Renames a branch. The name must be free.
    async fn rename_branch(
        &mut self,
        tree: TreeId,
        id: BranchId,
        name: Arc<str>,
    ) -> Result<(), Error>;
    /// Deletes the row of a branch; nothing else goes.
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

    /// Ends runs from outside as `interrupted`: their branches' epochs rise, so that a worker of
    /// theirs writes nothing more.
    async fn cancel_runs(&mut self, thread: ThreadId, runs: Vec<RunId>) -> Result<(), Error>;
    /// Pins floating runs to a branch.
    async fn pin_runs(&mut self, runs: Vec<RunId>, branch: BranchId) -> Result<(), Error>;

    /// Inserts a fork. The id must be free.
    async fn insert_fork(&mut self, new: InsertFork) -> Result<(), Error>;

    /// Writes a superstep as [`Saver::commit`](crate::checkpoint::Saver::commit) does, inside
    /// this transaction. `Fenced` when the slot's epoch or head is no longer true.
    async fn put(&mut self, commit: Commit) -> Result<i32, Error>;
    /// Notes how a branch is left.
    async fn set_outcome(
        &mut self,
        tree: TreeId,
        branch: BranchId,
        outcome: super::Outcome,
    ) -> Result<(), Error>;

    /// Appends events to a thread's log; answers the number of the last one. The thread's
    /// `updated_at` moves.
    async fn append(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        events: Vec<NewEvent>,
    ) -> Result<i64, Error>;

    /// Gives somebody a level on a tree, or takes it away. What `trees.owner` says stays.
    async fn put_member(
        &mut self,
        tree: TreeId,
        principal: Arc<str>,
        level: Option<Level>,
    ) -> Result<(), Error>;
    /// Makes somebody the owner of a tree.
    async fn set_owner(&mut self, tree: TreeId, principal: Arc<str>) -> Result<(), Error>;

    /// Makes everything durable.
    async fn commit(self: Box<Self>) -> Result<(), Error>;
}
