//! Threads and branches as a storage keeps them, and the operations it offers on whole threads.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    read::Read,
    rows::{NewEvent, Outcome},
    tx::Tx,
};
use crate::{
    checkpoint::{Error, Slot},
    id::{BranchId, CheckpointId, ThreadId, TreeId},
    time::Timestamp,
    tree::{members::level::Level, search},
    value::{Map, Value},
};

/// A row of `threads` with what its active branch says.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Key.
    pub id: ThreadId,
    /// The tree it belongs to.
    pub tree: TreeId,
    /// Client's metadata; `graph_id` and `assistant_id` come with the first run.
    pub metadata: Map,
    /// Collected run config.
    pub config: Map,
    /// When it was created.
    pub created_at: Timestamp,
    /// When metadata or state last changed.
    pub updated_at: Timestamp,
    /// When the state last changed.
    pub state_updated_at: Timestamp,
    /// The active branch.
    pub active_branch: BranchId,
    /// Head of the active branch.
    pub head: Option<CheckpointId>,
    /// Depth of that head, -1 without one.
    pub head_depth: i32,
    /// `branches.writer_epoch` of the active branch.
    pub epoch: i64,
    /// How the active branch was left.
    pub outcome: Outcome,
    /// Error of the last run of the active branch, `{"error", "message"}`.
    pub error: Option<Value>,
    /// A run is pending or running in the active branch's slot.
    pub busy: bool,
}

/// What to do when a thread id is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IfExists {
    /// Refuse.
    #[default]
    Raise,
    /// Answer the thread that is there.
    DoNothing,
}

/// A thread to create, with its tree and its branch `main`.
#[derive(Clone, Debug)]
pub struct NewThread {
    /// Its id.
    pub id: ThreadId,
    /// Client's metadata.
    pub metadata: Map,
    /// Owner of the new tree.
    pub owner: String,
    /// What to do when the id is taken.
    pub if_exists: IfExists,
}

/// A thread to make as a copy.
#[derive(Clone, Debug)]
pub struct NewCopy {
    /// Its id, which is also that of its tree.
    pub id: ThreadId,
    /// Owner of the new tree.
    pub owner: String,
    /// At most so many root checkpoints are copied.
    pub limit: usize,
    /// What its log begins with.
    pub events: Vec<NewEvent>,
}

/// What became of a thread to copy.
#[derive(Clone, Debug)]
pub enum Copied {
    /// It is there.
    Done(Box<Thread>),
    /// There is no thread to copy.
    Missing,
    /// The new id is taken.
    Taken,
    /// The thread sees more checkpoints than may be copied. Nothing was written.
    TooLarge,
}

/// Keeps threads and branches. Implemented by `storage::sqlite` and `storage::postgres`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Creates a thread; `None` when the id is taken and `if_exists` is `Raise`.
    async fn create_thread(&self, new: NewThread) -> Result<Option<Thread>, Error>;

    /// One thread.
    async fn thread(&self, id: ThreadId) -> Result<Option<Thread>, Error>;

    /// Merges `metadata` into the thread's (top level keys, later wins).
    async fn patch_thread(&self, id: ThreadId, metadata: Map) -> Result<Option<Thread>, Error>;

    /// Deletes a thread with its branches, runs and everything no other thread needs, a
    /// tombstone's rows too. What others inherit stays as it is. False when there is none.
    ///
    /// A tombstone without content is left for a while; a thread may be created in its place
    /// once nothing refers to it.
    async fn delete_thread(&self, id: ThreadId) -> Result<bool, Error>;

    /// Takes over the active branch of a thread for a writer that has no run row (a state edit,
    /// a library call): raises its epoch. `None` when the thread does not exist.
    async fn take_slot(&self, id: ThreadId) -> Result<Option<Slot>, Error>;

    /// The active branch without raising its epoch: the writer is refused if somebody claims
    /// the branch in between.
    async fn slot(&self, id: ThreadId) -> Result<Option<Slot>, Error>;

    /// Notes how a writer without a run row left the branch. `Fenced` when the epoch or the
    /// head moved: then the one who moved it tells.
    async fn record_outcome(
        &self,
        slot: Slot,
        outcome: Outcome,
        error: Option<Value>,
    ) -> Result<(), Error>;

    /// What somebody may do with a thread; `None` too when there is none.
    async fn level(&self, id: ThreadId, principal: Arc<str>) -> Result<Option<Level>, Error>;

    /// A page of living threads.
    async fn search(&self, page: search::ThreadPage) -> Result<Vec<Thread>, Error>;

    /// How many living threads there are.
    async fn count(&self, filter: search::ThreadFilter) -> Result<u64, Error>;

    /// Rows of the tree to read, outside of any transaction.
    async fn reader(&self) -> Result<Box<dyn Read>, Error>;

    /// A transaction on a tree, whose row it locks first.
    async fn begin(&self, tree: TreeId) -> Result<Box<dyn Tx>, Error>;

    /// Deletes every thread of the tree that `id` belongs to, with all they hold. Answers those
    /// that lived, oldest first; none when there is no such thread. Of each a tombstone without
    /// content is left for a while.
    async fn delete_tree(&self, id: ThreadId) -> Result<Vec<ThreadId>, Error>;

    /// Copies a thread into a tree of its own, without lineage: every checkpoint it sees with its
    /// writes, values and states of graphs inside, its branches, tags and messages. Checkpoints
    /// and branches keep their ids; runs and events stay behind.
    async fn copy_thread(&self, from: ThreadId, copy: NewCopy) -> Result<Copied, Error>;

    /// Removes the checkpoints of a thread that nobody stands on: what stays are the heads of
    /// branches, tags, bases of forks and of open runs, and checkpoints with open questions. One
    /// that stays follows the nearest one above that does. Messages stay in the index. Answers
    /// how many went; `None` when there is no such thread.
    async fn prune_thread(&self, id: ThreadId) -> Result<Option<usize>, Error>;
}
