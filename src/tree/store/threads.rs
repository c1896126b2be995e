//! Threads as a storage keeps them, and the operations that it offers on whole threads.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    read::Read,
    rows::{NewEvent, Outcome, PendingInterrupts},
    tx::Tx,
};
use crate::{
    checkpoint::{Error, Slot, Stored},
    id::{BranchId, CheckpointId, ThreadId, TreeId},
    time::Timestamp,
    tree::{
        members::level::Level,
        search,
        ttl::{Expiry, Ttl},
        usage::Usage,
    },
    value::{Map, Value},
    words::words,
};

/// A row of `threads` with columns of its active branch.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Key.
    pub id: ThreadId,
    /// The tree it belongs to.
    pub tree: TreeId,
    /// Client's metadata; the first run adds `graph_id` and `assistant_id`.
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
    /// The outcome of the active branch.
    pub outcome: Outcome,
    /// Error of the last run of the active branch, `{"error", "message"}`.
    pub error: Option<Value>,
    /// A run is pending or running in the active branch's slot.
    pub busy: bool,
}

/// A thread without any of its checkpoints, as of one moment.
#[derive(Clone, Debug)]
pub struct ThreadWithLevel {
    /// The thread.
    pub thread: Thread,
    /// The level of the principal that was named.
    pub level: Option<Level>,
    /// Pruning has given another parent to the head of the active branch since that was written.
    pub is_head_reparented: bool,
}

/// A thread with one of its checkpoints, as of one moment.
#[derive(Clone, Debug)]
pub struct ThreadWithCheckpoint {
    /// The thread.
    pub thread: Thread,
    /// The level of the principal that was named.
    pub level: Option<Level>,
    /// The row of the checkpoint and what is pending at it, without the values that are rows of their own. `None` if
    /// there is no such checkpoint in the tree, or if more is pending at it than is read at once.
    pub checkpoint: Option<Stored>,
}

words! {
    /// What to do when a thread id is taken.
    #[derive(Default)]
    pub enum IfExists, "treatment of a thread that exists" {
        /// Refuse.
        #[default]
        Raise = "raise",
        /// Return the thread that exists.
        DoNothing = "do_nothing",
    }
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
    /// How long it lives after its last change.
    pub ttl: Option<Ttl>,
}

/// A thread to create as a copy.
#[derive(Clone, Debug)]
pub struct NewCopy {
    /// Its id, which is also that of its tree.
    pub id: ThreadId,
    /// Owner of the new tree.
    pub owner: String,
    /// The principal who must have a level on the thread to copy; nobody without one.
    pub reader: Option<Arc<str>>,
    /// Most root checkpoints that may be copied.
    pub limit: usize,
    /// The first events of its log.
    pub events: Vec<NewEvent>,
}

/// The result of copying a thread.
#[derive(Clone, Debug)]
pub enum Copied {
    /// The copy was created.
    Done(Box<Thread>),
    /// The thread to copy does not exist, or the reader has no level on it.
    Missing,
    /// The new id is taken.
    Taken,
    /// The thread sees more checkpoints than may be copied. Nothing was written.
    TooLarge,
}

/// Stores threads and branches. Implemented by `storage::sqlite` and `storage::postgres`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Creates a thread; `None` when the id is taken and `if_exists` is `Raise`.
    async fn create_thread(&self, new: NewThread) -> Result<Option<Thread>, Error>;

    /// One thread.
    async fn thread(&self, id: ThreadId) -> Result<Option<Thread>, Error>;

    /// One thread and the level of a principal on it (nobody's without one), as of one moment.
    async fn thread_with_level(
        &self,
        id: ThreadId,
        principal: Option<Arc<str>>,
    ) -> Result<Option<ThreadWithLevel>, Error>;

    /// One thread, the level of a principal on it (nobody's without one), and a checkpoint of its root graph: the one
    /// with an id, or else the head of the active branch. All of it is read in one round trip, as of one moment.
    async fn thread_with_checkpoint(
        &self,
        id: ThreadId,
        principal: Option<Arc<str>>,
        at: Option<CheckpointId>,
    ) -> Result<Option<ThreadWithCheckpoint>, Error>;

    /// Merges `metadata` into the thread's (top level keys, later wins).
    async fn patch_thread(&self, id: ThreadId, metadata: Map) -> Result<Option<Thread>, Error>;

    /// Deletes a thread with its branches, runs and everything that no other thread needs, or what
    /// is left of a tombstone. Checkpoints that other threads inherit stay. False when there is no
    /// such thread.
    ///
    /// A tombstone without content stays for a while; a thread may be created with its id once
    /// nothing refers to it.
    async fn delete_thread(&self, id: ThreadId) -> Result<bool, Error>;

    /// Claims the active branch of a thread for a writer without a run row (a state update or a
    /// library call) by raising its epoch. `None` when the thread does not exist.
    async fn take_slot(&self, id: ThreadId) -> Result<Option<Slot>, Error>;

    /// The slot of the active branch without raising its epoch: the writer is fenced if another
    /// one claims the branch in between.
    async fn slot(&self, id: ThreadId) -> Result<Option<Slot>, Error>;

    /// Stores the outcome of a writer without a run row. `Fenced` when the epoch or the head
    /// changed: then the writer that changed it stores its own outcome.
    async fn record_outcome(
        &self,
        slot: Slot,
        outcome: Outcome,
        error: Option<Value>,
    ) -> Result<(), Error>;

    /// The level of a principal on a thread; `None` also when there is no such thread.
    async fn level_on_thread(
        &self,
        id: ThreadId,
        principal: Arc<str>,
    ) -> Result<Option<Level>, Error>;

    /// Of pairs of a living thread and a principal those without a level, by their index. A thread
    /// that is gone counts for nobody.
    async fn withdrawn(
        &self,
        threads: Vec<ThreadId>,
        principals: Vec<Arc<str>>,
    ) -> Result<Vec<usize>, Error>;

    /// What the tasks of a branch wait for at a checkpoint of its root graph, if that weighs at most `most`, else its
    /// weight; nothing else of the state is read.
    async fn pending_interrupts(
        &self,
        tree: TreeId,
        branch: BranchId,
        at: CheckpointId,
        most: u64,
    ) -> Result<PendingInterrupts, Error>;

    /// A page of living threads.
    async fn search(&self, page: search::ThreadPage) -> Result<Vec<search::Listed>, Error>;

    /// How many living threads there are.
    async fn count(&self, filter: search::ThreadFilter) -> Result<u64, Error>;

    /// When a thread expires; `None` for one that does not, and without such a thread.
    async fn expiry(&self, id: ThreadId) -> Result<Option<Expiry>, Error>;

    /// Takes threads that may have expired, those first that wait longest. For some minutes nobody else gets them.
    async fn take_expired(&self, limit: usize) -> Result<Vec<(TreeId, ThreadId)>, Error>;

    /// How much is stored of the checkpoints that a thread has written.
    async fn usage(&self, tree: TreeId, thread: ThreadId) -> Result<Usage, Error>;

    /// Reads rows of trees outside of any transaction.
    async fn reader(&self) -> Result<Box<dyn Read>, Error>;

    /// Begins a transaction on a tree and locks the tree's row.
    async fn begin(&self, tree: TreeId) -> Result<Box<dyn Tx>, Error>;

    /// Deletes every thread of the tree that `id` belongs to, with all their rows. Returns those
    /// that were not deleted before, oldest first; none when there is no such thread. A tombstone
    /// without content stays of each for a while.
    async fn delete_tree(&self, id: ThreadId) -> Result<Vec<ThreadId>, Error>;

    /// Copies a thread into a tree of its own, without lineage: every checkpoint it sees with its
    /// writes, values and states of graphs inside, its branches, tags and messages. Checkpoints
    /// and branches keep their ids; runs and events stay behind.
    async fn copy_thread(&self, from: ThreadId, copy: NewCopy) -> Result<Copied, Error>;

    /// Removes the checkpoints of a thread that are not in use. The heads of branches, tags, bases
    /// of forks and of open runs, and checkpoints with open interrupts stay; the parent of each
    /// becomes the nearest ancestor that stays. Messages stay in the index. Returns the number of
    /// removed checkpoints; `None` when there is no such thread.
    async fn prune_thread(&self, id: ThreadId) -> Result<Option<usize>, Error>;
}
