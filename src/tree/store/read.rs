//! The rows of a tree that operations read from a storage.

use std::sync::Arc;

use async_trait::async_trait;

use super::rows::{
    Branch, BranchEnd, ForkCursor, MessageNode, OpenRun, PathNode, Point, Relative, Tag,
    ThreadEvent, ThreadRow,
};
use crate::{
    checkpoint::Error,
    id::{BranchId, CheckpointId, NodeId, ThreadId, TreeId},
    tree::members::level::{Level, Members},
};

/// Reads rows. Nothing here loads channel values: see [`Saver`](crate::checkpoint::Saver).
#[async_trait]
pub trait Read: Send {
    /// A thread, or the tombstone of a deleted one.
    async fn thread_row(&mut self, id: ThreadId) -> Result<Option<ThreadRow>, Error>;
    /// These threads and tombstones, in any order, without those that are not there. Of their metadata the graph alone
    /// is read.
    async fn thread_rows(&mut self, ids: Vec<ThreadId>) -> Result<Vec<ThreadRow>, Error>;
    /// The living forks of a tree behind a position, oldest first, at most `limit` of them. The first
    /// thread of the tree is no fork.
    async fn relatives(
        &mut self,
        tree: TreeId,
        after: ForkCursor,
        limit: usize,
    ) -> Result<Vec<Relative>, Error>;
    /// How many bytes clients put into each row of [`relatives`](Self::relatives), as JSON, without reading it.
    async fn relative_sizes(
        &mut self,
        tree: TreeId,
        after: ForkCursor,
        limit: usize,
    ) -> Result<Vec<u64>, Error>;
    /// The living forks of one thread, oldest first, at most `limit` of them. Their metadata is not read.
    async fn forks(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        limit: usize,
    ) -> Result<Vec<ThreadRow>, Error>;

    /// Branches of a thread, oldest first.
    async fn branches(&mut self, tree: TreeId, thread: ThreadId) -> Result<Vec<Branch>, Error>;
    /// The ends of all branches of these threads, oldest branch first.
    async fn ends(&mut self, tree: TreeId, threads: Vec<ThreadId>)
    -> Result<Vec<BranchEnd>, Error>;
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
    /// The path from `start` towards the root: newest first, at most `limit` rows.
    async fn path(
        &mut self,
        tree: TreeId,
        start: CheckpointId,
        limit: usize,
    ) -> Result<Vec<Point>, Error>;
    /// Whether a thread sees a checkpoint: its own, or on the path of its fork base.
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
    /// Whether the branch has an open interrupt among its pending writes at a checkpoint.
    async fn is_interrupted(
        &mut self,
        tree: TreeId,
        branch: BranchId,
        at: CheckpointId,
    ) -> Result<bool, Error>;

    /// One node of the message index.
    async fn node(&mut self, tree: TreeId, id: NodeId) -> Result<Option<MessageNode>, Error>;
    /// These nodes of the message index, in any order.
    async fn nodes(&mut self, tree: TreeId, ids: Vec<NodeId>) -> Result<Vec<MessageNode>, Error>;
    /// The nodes on all chains of `add` nodes that end with one of these, each once, in any order, at
    /// most `limit` of them.
    async fn paths_to(
        &mut self,
        tree: TreeId,
        ends: Vec<NodeId>,
        limit: usize,
    ) -> Result<Vec<PathNode>, Error>;
    /// Every node of the tree about these messages, newest checkpoint first.
    async fn nodes_of(
        &mut self,
        tree: TreeId,
        ids: Vec<Arc<str>>,
    ) -> Result<Vec<MessageNode>, Error>;
    /// [`nodes_of`](Self::nodes_of) for messages of several trees: each node with its tree, newest checkpoint first.
    async fn nodes_of_trees(
        &mut self,
        messages: Vec<(TreeId, Arc<str>)>,
    ) -> Result<Vec<(TreeId, MessageNode)>, Error>;
    /// The chain of `add` nodes from `start` towards the first message: newest first, at most
    /// `limit` rows.
    async fn chain(
        &mut self,
        tree: TreeId,
        start: NodeId,
        limit: usize,
    ) -> Result<Vec<MessageNode>, Error>;
    /// The `add` nodes that follow `parent` (the first messages without one) in the tree, oldest
    /// first.
    async fn children(
        &mut self,
        tree: TreeId,
        parent: Option<NodeId>,
    ) -> Result<Vec<MessageNode>, Error>;

    /// Events of a thread after a number, in order.
    async fn events(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<ThreadEvent>, Error>;

    /// Events of several threads, each after a number: those of a thread in order, at most `limit` of them, and none in
    /// a row before which there are rows of that thread that weigh `most` or more.
    async fn events_of_threads(
        &mut self,
        after: Vec<(TreeId, ThreadId, i64)>,
        limit: usize,
        most: u64,
    ) -> Result<Vec<ThreadEvent>, Error>;

    /// The numbers of the rows that have these events, and what their payloads weigh, without reading them: a row has up
    /// to two events, the last of which has its number.
    async fn event_weights(
        &mut self,
        tree: TreeId,
        thread: ThreadId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<(i64, u64)>, Error>;

    /// Events that name these branches: `BranchCreated`, `BranchRenamed` and `BranchDeleted`, of
    /// each branch in order.
    async fn naming_events(
        &mut self,
        tree: TreeId,
        branches: Vec<BranchId>,
    ) -> Result<Vec<ThreadEvent>, Error>;

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
    /// Of the path from `base` towards the root the points deeper than `below`: the least deep first, at
    /// most `limit` of them. Of the others only ids are read.
    async fn inherited_points(
        &mut self,
        tree: TreeId,
        base: CheckpointId,
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
    ) -> Result<Vec<MessageNode>, Error>;

    /// Everybody who has a level on a tree.
    async fn members(&mut self, tree: TreeId) -> Result<Members, Error>;
    /// The level of a principal on a tree.
    async fn level(&mut self, tree: TreeId, principal: Arc<str>) -> Result<Option<Level>, Error>;

    // For pages of messages.

    /// Of the chain of `add` nodes that ends with `end` those whose ordinals follow `after`:
    /// oldest first, at most `limit` rows. Of the others only ids are read.
    async fn segment(
        &mut self,
        tree: TreeId,
        end: NodeId,
        after: i32,
        limit: usize,
    ) -> Result<Vec<MessageNode>, Error>;
    /// The `add` nodes that follow any of these in the tree, oldest first.
    async fn followers(
        &mut self,
        tree: TreeId,
        parents: Vec<NodeId>,
    ) -> Result<Vec<MessageNode>, Error>;
}
