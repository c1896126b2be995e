//! Rows of the tree's tables, without channel values.

use std::sync::Arc;

use crate::{
    checkpoint::{Slot, Source, WriteRow},
    id::{BranchId, CheckpointId, NodeId, RunId, ThreadId, TreeId},
    time::Timestamp,
    value::{Map, Value},
    words::words,
};

words! {
    /// The outcome of the last finished run or state update on a branch. `busy` is computed from runs.
    pub enum Outcome, "branch outcome" {
        /// No node waits to run.
        Idle = "idle",
        /// The head has nodes that wait to run.
        Interrupted = "interrupted",
        /// The last run failed.
        Error = "error",
    }
}

impl Outcome {
    /// What a head leaves at which these nodes wait to run.
    pub fn left_with(next: &[Arc<str>]) -> Self {
        if next.is_empty() {
            Self::Idle
        } else {
            Self::Interrupted
        }
    }
}

/// What the tasks of a branch wait for at one checkpoint.
#[derive(Clone, Debug)]
pub struct PendingInterrupts {
    /// What the rows weigh.
    pub weight: u64,
    /// The pending writes of the branch that have interrupts, in the order of their tasks, and without their values those
    /// that say which tasks have finished or failed. `None` where they are more than was to be read.
    pub rows: Option<Vec<WriteRow>>,
}

words! {
    /// Whether an address means a thing itself or the point before it.
    pub enum Position, "position" {
        /// Inclusive.
        At = "at",
        /// Exclusive.
        Before = "before",
    }
}

/// A row of `threads`, of a tombstone too.
#[derive(Clone, Debug)]
pub struct ThreadRow {
    /// Key.
    pub id: ThreadId,
    /// Its tree; a root thread's equals its id.
    pub tree: TreeId,
    /// Direct fork parent; `None` for a root.
    pub parent: Option<ThreadId>,
    /// Last inherited checkpoint; `None` for a root or a blank slate.
    pub fork_checkpoint: Option<CheckpointId>,
    /// Depth of that checkpoint, -1 without one.
    pub fork_depth: i32,
    /// The anchor as the client submitted it.
    pub fork_anchor: Option<Arc<str>>,
    /// The anchor's position as the client submitted it.
    pub fork_position: Option<Position>,
    /// Events of the parent up to this number are inherited.
    pub fork_event_number: i64,
    /// Number of forks above.
    pub fork_level: i32,
    /// The active branch; `None` for a tombstone.
    pub active_branch: Option<BranchId>,
    /// Number of the newest event.
    pub last_event_number: i64,
    /// Client's metadata.
    pub metadata: Map,
    /// When it was created.
    pub created_at: Timestamp,
    /// When metadata or branches last changed.
    pub updated_at: Timestamp,
    /// When it was deleted.
    pub deleted_at: Option<Timestamp>,
}

/// A fork in a list of forks.
#[derive(Clone, Debug)]
pub struct Relative {
    /// Its row.
    pub row: ThreadRow,
    /// The thread it was forked from was deleted.
    pub parent_deleted: bool,
}

/// Behind which fork a page begins: when that one was created, and its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkCursor {
    /// When it was created.
    pub created_at: Timestamp,
    /// Its id.
    pub thread: ThreadId,
}

impl ForkCursor {
    /// Before the first fork.
    pub const START: Self = Self {
        created_at: Timestamp(0),
        thread: ThreadId(uuid::Uuid::nil()),
    };

    /// Behind a fork.
    pub fn of(fork: &Relative) -> Self {
        Self {
            created_at: fork.row.created_at,
            thread: fork.row.id,
        }
    }
}

/// The end of the path of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchEnd {
    /// The thread that has the branch.
    pub thread: ThreadId,
    /// The branch.
    pub branch: BranchId,
    /// Its name.
    pub name: Arc<str>,
    /// The last message of its path.
    pub last: Option<NodeId>,
}

/// A message on a path, without what is known about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathNode {
    /// Key.
    pub id: NodeId,
    /// Previous `add` node on the path.
    pub parent: Option<NodeId>,
    /// 1-based position in the chain of adds.
    pub ordinal: i32,
    /// The thread that wrote it.
    pub thread: ThreadId,
}

/// A row of `branches`.
#[derive(Clone, Debug)]
pub struct Branch {
    /// Tree.
    pub tree: TreeId,
    /// Key within the tree.
    pub id: BranchId,
    /// The thread it belongs to.
    pub thread: ThreadId,
    /// Unique in the thread.
    pub name: Arc<str>,
    /// The newest checkpoint; `None` while it is empty.
    pub head: Option<CheckpointId>,
    /// Depth of the head, -1 without one.
    pub head_depth: i32,
    /// The epoch that writers must name; raising it fences them.
    pub epoch: i64,
    /// Raised by every head move.
    pub version: i64,
    /// The outcome of its last run or update.
    pub outcome: Outcome,
    /// Error of its last run.
    pub error: Option<Value>,
    /// What created it: `root`, `fork`, `rewind`, `btw`, `restore`, `message`, `edit`,
    /// `checkpoint` or `update`.
    pub origin: Arc<str>,
    /// The branch it was created from.
    pub source: Option<BranchId>,
    /// Set where writes were copied: above the subgraph rows that belong to the copy.
    pub creation: Option<CheckpointId>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row last changed.
    pub updated_at: Timestamp,
}

impl Branch {
    /// The slot to write to it under the epoch that was read.
    pub fn slot(&self) -> Slot {
        Slot {
            tree: self.tree,
            thread: self.thread,
            branch: self.id,
            epoch: self.epoch,
            head: self.head,
            head_depth: self.head_depth,
        }
    }
}

/// A row of `tags`.
#[derive(Clone, Debug)]
pub struct Tag {
    /// Unique in the thread.
    pub name: Arc<str>,
    /// The checkpoint it names.
    pub checkpoint: CheckpointId,
    /// Depth of that checkpoint.
    pub depth: i32,
    /// The newest message there.
    pub message_id: Option<Arc<str>>,
    /// When it was first set.
    pub created_at: Timestamp,
    /// When it was last set.
    pub updated_at: Timestamp,
}

/// A row of `checkpoints` in the root namespace, without state.
#[derive(Clone, Debug)]
pub struct Point {
    /// Key.
    pub id: CheckpointId,
    /// The checkpoint it follows.
    pub parent: Option<CheckpointId>,
    /// Distance from the root of its path.
    pub depth: i32,
    /// The thread that wrote it.
    pub thread: ThreadId,
    /// The branch that wrote it.
    pub branch: BranchId,
    /// Newest `add` node of the message index on the path.
    pub last_node: Option<NodeId>,
    /// Newest event on the path.
    pub event_number: i64,
    /// The run that wrote it.
    pub run: Option<RunId>,
    /// What created it.
    pub source: Source,
    /// Superstep number.
    pub step: i64,
    /// When it was created.
    pub created_at: Timestamp,
}

words! {
    /// The change of a message that a row of the message index records.
    pub enum MessageChange, "change of a message" {
        /// It appears on the path.
        Add = "add",
        /// Its content changes on the path.
        Edit = "edit",
        /// It leaves the state on the path.
        Remove = "remove",
    }
}

/// A row of `message_nodes`. Content is in the messages channel of its checkpoint.
#[derive(Clone, Debug)]
pub struct MessageNode {
    /// Key.
    pub id: NodeId,
    /// Previous `add` node on the path.
    pub parent: Option<NodeId>,
    /// 1-based position in the chain of adds.
    pub ordinal: i32,
    /// The change of the message.
    pub change: MessageChange,
    /// The message.
    pub message_id: Arc<str>,
    /// The id of the message it replaces, for edits through the message API.
    pub edit_of: Option<Arc<str>>,
    /// First checkpoint with it.
    pub checkpoint: CheckpointId,
    /// Depth of that checkpoint.
    pub depth: i32,
    /// Index among the nodes of that checkpoint.
    pub seq: i32,
    /// The checkpoint in which the turn it ends is complete.
    pub turn_end: Option<CheckpointId>,
    /// The thread that wrote it.
    pub thread: ThreadId,
    /// The branch that wrote it.
    pub branch: BranchId,
    /// The run that wrote it.
    pub run: Option<RunId>,
    /// Role of the message as stored (`human`, `ai`, ...).
    pub role: Option<Arc<str>>,
    /// The number of the event about it.
    pub event_number: Option<i64>,
    /// When it was written.
    pub created_at: Timestamp,
}

/// A row of `events`.
#[derive(Clone, Debug)]
pub struct ThreadEvent {
    /// Unique id.
    pub id: crate::id::EventId,
    /// The thread.
    pub thread: ThreadId,
    /// Gapless within the thread.
    pub number: i64,
    /// Type name, for example `BranchCreated`.
    pub kind: Arc<str>,
    /// Ids and small facts that are stored with the event itself;
    /// [`event::payload`](crate::tree::event::payload) adds the rest.
    pub payload: Map,
    /// The branch it is about.
    pub branch: Option<BranchId>,
    /// The checkpoint it is about.
    pub checkpoint: Option<CheckpointId>,
    /// The message it is about.
    pub message_id: Option<Arc<str>>,
    /// When it was written.
    pub created_at: Timestamp,
}

/// An event to append to a thread's log; the storage assigns its number.
#[derive(Clone, Debug, Default)]
pub struct NewEvent {
    /// Type name, one of [`event`](crate::tree::event)'s.
    pub kind: &'static str,
    /// Ids and small facts that no other field has.
    pub payload: Map,
    /// The branch it is about.
    pub branch: Option<BranchId>,
    /// The checkpoint it is about.
    pub checkpoint: Option<CheckpointId>,
    /// The message it is about.
    pub message_id: Option<Arc<str>>,
}

/// A run that is pending or running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRun {
    /// Key.
    pub id: RunId,
    /// The branch it is pinned to; `None` while it floats.
    pub branch: Option<BranchId>,
    /// It is executed now.
    pub running: bool,
}
