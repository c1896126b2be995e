//! Checkpoints: immutable states of a graph, what a commit carries, and the trait that every
//! storage implements. Nothing here does I/O.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use crate::value::{Map, Value};

pub(crate) mod buffered;
pub(crate) mod cache;
pub(crate) mod chain_sizes;
pub(crate) mod codec;
pub(crate) mod delta;
pub(crate) mod earlier;
pub(crate) mod filter;
pub(crate) mod frame;
pub(crate) mod labels;
pub(crate) mod metadata;
pub(crate) mod paths;
pub(crate) mod references;
pub(crate) mod results;
pub(crate) mod rows;
pub(crate) mod saver;

pub use crate::{
    id::{BranchId, CheckpointId, NodeId, RunId, TaskId, ThreadId, TreeId},
    time::Timestamp,
};
pub use codec::Format;
pub use rows::{BlobRow, CheckpointRow, Commit, EventRow, Flush, NewBranch, NodeRow, WriteRow};
pub(crate) use saver::Result;
pub use saver::{
    At, Blobs, Error, List, Page, PageScope, Query, Saver, SizedCheckpoint, Stored, StoredRows,
};

/// The version of one channel: `<counter>.<6 hex digits>`, compared by counter.
///
/// The random part keeps the blobs of sibling branches apart: two forks of one checkpoint both
/// reach counter N + 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// One counter per checkpoint: the greatest of all channels plus one.
    pub counter: u64,
    /// 24 random bits.
    pub salt: u32,
}

impl Version {
    /// The version after `greatest`, with a fresh random part.
    pub(crate) fn after(greatest: u64) -> Self {
        Self {
            counter: greatest + 1,
            salt: rand::random::<u32>() & 0x00ff_ffff,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06x}", self.counter, self.salt)
    }
}

/// Error: a text is no version.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a channel version")]
pub struct BadVersion(String);

impl FromStr for Version {
    type Err = BadVersion;
    fn from_str(text: &str) -> Result<Self, BadVersion> {
        text.split_once('.')
            .and_then(|(counter, salt)| {
                Some(Self {
                    counter: counter.parse().ok()?,
                    salt: u32::from_str_radix(salt, 16).ok()?,
                })
            })
            .ok_or_else(|| BadVersion(text.to_owned()))
    }
}

/// Versions by channel name.
pub type Versions = BTreeMap<Arc<str>, Version>;

/// What wrote a checkpoint (LangGraph's metadata `source`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The input of a run, before it is applied to the state.
    Input,
    /// A superstep.
    Loop,
    /// A state edit.
    Update,
    /// A copy made by replaying an older checkpoint.
    Fork,
}

impl Source {
    /// The word stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Loop => "loop",
            Self::Update => "update",
            Self::Fork => "fork",
        }
    }
}

impl FromStr for Source {
    type Err = UnknownSource;
    fn from_str(text: &str) -> Result<Self, UnknownSource> {
        Ok(match text {
            "input" => Self::Input,
            "loop" => Self::Loop,
            "update" => Self::Update,
            "fork" => Self::Fork,
            other => return Err(UnknownSource(other.to_owned())),
        })
    }
}

/// Error: a stored `source` is unknown to this version.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a checkpoint source")]
pub struct UnknownSource(String);

/// One state of a graph in one namespace, decoded.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Its id.
    pub id: CheckpointId,
    /// The checkpoint it follows.
    pub parent: Option<CheckpointId>,
    /// The number of the superstep that wrote it: -1 for the first input, growing over the life of
    /// a thread.
    pub step: i64,
    /// What wrote it.
    pub source: Source,
    /// When it was written.
    pub created_at: Timestamp,
    /// What each channel stores; channels without a value are absent.
    pub values: BTreeMap<Arc<str>, Value>,
    /// The version of every channel that was ever written.
    pub versions: Versions,
    /// For every node the versions of its triggers when it last ran.
    pub consumed_versions: BTreeMap<Arc<str>, Versions>,
    /// Channels the last superstep updated, sorted; `None` in fork and update checkpoints.
    pub updated: Option<Vec<Arc<str>>>,
    /// `parents` of a subgraph's checkpoint and what the run's metadata and configurable added.
    /// `source`, `step` and `run_id` are not repeated here.
    pub metadata: Map,
    /// The run that wrote it.
    pub run: Option<RunId>,
    /// The thread and branch that wrote it.
    pub thread: ThreadId,
    /// The branch that wrote it.
    pub branch: BranchId,
    /// Distance from the root of its path.
    pub depth: i32,
    /// For a subgraph's checkpoint the root checkpoint it ran under.
    pub root: Option<CheckpointId>,
    /// Newest message of the message index on the path.
    pub last_node: Option<crate::id::NodeId>,
    /// Newest event on the path.
    pub event_number: i64,
    /// Supersteps of nodes that its graph had done in the run when the checkpoint was made.
    pub run_supersteps: u32,
    /// Of a graph that stores its state per thread the task that ran it: several tasks may share its
    /// namespace.
    pub task: Option<TaskId>,
}

/// The right to write to one branch: every write names the epoch of the writer.
///
/// Lineage is linear by compare-and-swap on `head`. Once another writer has raised the epoch of
/// the branch, writes with the old epoch change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The tree of the thread.
    pub tree: TreeId,
    /// The thread.
    pub thread: ThreadId,
    /// The branch whose head moves.
    pub branch: BranchId,
    /// `branches.writer_epoch` at the time of the claim.
    pub epoch: i64,
    /// The branch's head at the time of the claim.
    pub head: Option<CheckpointId>,
    /// The head's depth, -1 for an empty branch.
    pub head_depth: i32,
}

impl Slot {
    /// A new active branch of the slot's thread that begins at `base` (`base_depth` is -1 without
    /// one), and the slot with which it can be written once it is stored. It begins with the epoch of
    /// the slot, which so stays that of the run: the log of its stream is written under it.
    pub(crate) fn branch_off(
        self,
        base: Option<CheckpointId>,
        base_depth: i32,
        origin: &'static str,
        run: Option<RunId>,
    ) -> (NewBranch, Self) {
        let id = BranchId::mint();
        let new = NewBranch {
            id,
            base,
            base_depth,
            source: self,
            origin,
            activate: true,
            copy_writes: false,
            writes_of: None,
            name: None,
            run,
        };
        let target = Self {
            branch: id,
            head: base,
            head_depth: base_depth,
            ..self
        };
        (new, target)
    }
}

/// One write of a task that is not part of a checkpoint yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    /// The task.
    pub task: TaskId,
    /// The task's path in string form, which orders writes.
    pub path: Arc<str>,
    /// Position among the task's writes; negative for control channels.
    pub idx: i32,
    /// The channel.
    pub channel: Arc<str>,
    /// The written value.
    pub value: Value,
}
