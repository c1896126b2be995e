//! Plain rows: what goes into and comes out of the tables, values already encoded.

use std::{borrow::Cow, sync::Arc};

use super::{Slot, Source, Version, results};
use crate::{
    id::{BranchId, CheckpointId, NodeId, RunId, TaskId, ThreadId},
    time::Timestamp,
    value::Map,
};

/// A row of `checkpoints`.
#[derive(Clone, Debug)]
pub struct CheckpointRow {
    /// Namespace; empty for the root graph.
    pub ns: Arc<str>,
    /// Key.
    pub id: CheckpointId,
    /// The checkpoint it follows in its namespace.
    pub parent: Option<CheckpointId>,
    /// For subgraphs the root checkpoint they ran under.
    pub root: Option<CheckpointId>,
    /// Parent's depth plus one. Computed by the storage from the branch for root rows.
    pub depth: i32,
    /// The thread that wrote it.
    pub thread: ThreadId,
    /// The branch that wrote it.
    pub branch: BranchId,
    /// The run that wrote it.
    pub run: Option<RunId>,
    /// What wrote it.
    pub source: Source,
    /// Superstep number.
    pub step: i64,
    /// Newest message node on the path.
    pub last_node: Option<NodeId>,
    /// Newest event on the path. On writing the least it may be: the storage writes the
    /// thread's newest event instead if that is greater.
    pub event_number: i64,
    /// An encoded envelope: versions, what nodes consumed, and
    /// short values. Checkpoints of earlier versions have JSON text here.
    pub envelope: Vec<u8>,
    /// JSON text: the versions of the values that are rows of their own, by channel.
    pub blob_versions: String,
    /// JSON text: metadata without source, step and run id.
    pub metadata: String,
    /// When it was written.
    pub created_at: Timestamp,
    /// Supersteps of nodes that its graph had done in the run when the checkpoint was made.
    pub run_supersteps: i32,
}

impl CheckpointRow {
    /// About how many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        self.envelope.len() + self.blob_versions.len() + self.metadata.len()
    }

    /// What it [weighs](super::codec::weight).
    pub(crate) fn weight(&self) -> u64 {
        let binary = self.envelope.len() + self.blob_versions.len();
        binary as u64 + super::codec::JSON_TEXT * self.metadata.len() as u64
    }
}

/// A row of `checkpoint_blobs`: a channel value, whole or as a delta. Never changed.
#[derive(Clone, Debug)]
pub struct BlobRow {
    /// Namespace.
    pub ns: Arc<str>,
    /// Channel.
    pub channel: Arc<str>,
    /// Version of the value.
    pub version: Version,
    /// The version a delta builds on; `None` for a full value.
    pub base: Option<Version>,
    /// Bytes of deltas since the last full value, this row included.
    pub chain_bytes: i32,
    /// Codec of `bytes`.
    pub tag: Arc<str>,
    /// The encoded value or delta.
    pub bytes: Vec<u8>,
}

impl BlobRow {
    /// What it [weighs](super::codec::weight).
    pub(crate) fn weight(&self) -> u64 {
        super::codec::weight(&self.tag, self.bytes.len())
    }
}

/// A row of `checkpoint_writes`: all output of one finished task (`idx` 0), or one control
/// channel of a task (`idx` < 0).
#[derive(Clone, Debug)]
pub struct WriteRow {
    /// Namespace of the checkpoint.
    pub ns: Arc<str>,
    /// The checkpoint the task runs from.
    pub checkpoint: CheckpointId,
    /// The branch the row belongs to; on writing always that of the slot.
    pub branch: BranchId,
    /// The task.
    pub task: TaskId,
    /// 0 for output; -1 `__error__`, -2 `__scheduled__`, -3 `__interrupt__`, -4 `__resume__`,
    /// -5 `__step__`.
    pub idx: i32,
    /// Path of the task in string form.
    pub path: Arc<str>,
    /// Named for control rows only.
    pub channel: Option<Arc<str>>,
    /// Codec of `bytes`.
    pub tag: Arc<str>,
    /// Encoded list of `[idx, channel, value]`.
    pub bytes: Vec<u8>,
    /// Replace an existing row (control-only batches, and the client's own output, which each
    /// command stores whole); otherwise the first writer wins.
    pub upsert: bool,
}

impl WriteRow {
    /// What the row of its checkpoint says of it if it stands there: how it is encoded, and the path of its task, of
    /// which `shortened` is the form that is stored.
    pub(crate) fn header(&self, shortened: &str) -> String {
        format!("{} {shortened}", self.tag)
    }

    /// What it [weighs](super::codec::weight).
    pub(crate) fn weight(&self) -> u64 {
        super::codec::weight(&self.tag, self.bytes.len())
    }
}

/// A row of `message_nodes`.
#[derive(Clone, Debug)]
pub struct NodeRow {
    /// Key.
    pub id: NodeId,
    /// Previous `add` node on the path.
    pub parent: Option<NodeId>,
    /// How many `add` nodes of this commit there are up to this row, itself included. The storage
    /// adds the ordinal of the first row's parent.
    pub ordinal: i32,
    /// `add`, `edit` or `remove`.
    pub kind: &'static str,
    /// The message's id.
    pub message_id: Arc<str>,
    /// The id this one replaces (edits through the message API).
    pub edit_of: Option<Arc<str>>,
    /// Position in its checkpoint.
    pub seq: i32,
    /// Role of the message.
    pub role: Option<Arc<str>>,
    /// Number of an event that exists already.
    pub event_number: Option<i64>,
    /// The event of the same commit that reports it, counted from 1.
    pub event_offset: Option<i32>,
}

/// The ids and numbers of a row of the message index or of the events.
const SMALL_ROW: usize = 64;

impl NodeRow {
    /// About how many bytes it has.
    fn bytes(&self) -> usize {
        let texts = [&self.edit_of, &self.role].into_iter().flatten();
        SMALL_ROW + self.message_id.len() + texts.map(|text| text.len()).sum::<usize>()
    }
}

impl EventRow {
    /// About how many bytes it has.
    fn bytes(&self) -> usize {
        let message = self.message_id.as_ref().map_or(0, |id| id.len());
        SMALL_ROW + message + self.payload.memory()
    }
}

/// A row of `events`; the storage assigns its number and its id. Branch and
/// checkpoint are those of its commit.
#[derive(Clone, Debug, Default)]
pub struct EventRow {
    /// Type name, for example `MessageAdded`.
    pub kind: &'static str,
    /// Ids and small facts that no other field has, never content.
    pub payload: Map,
    /// The message it is about.
    pub message_id: Option<Arc<str>>,
}

/// A branch that comes into being with the first durable write of a run.
#[derive(Clone, Debug)]
pub struct NewBranch {
    /// Its id. Its epoch is 1 and its head `base`.
    pub id: BranchId,
    /// The checkpoint it starts from.
    pub base: Option<CheckpointId>,
    /// Depth of `base`, -1 without one.
    pub base_depth: i32,
    /// The slot of the branch that the run writes to: its epoch is checked, and the branch's name
    /// is the base of the new automatic name (`main` gives `main-v2`).
    pub source: Slot,
    /// `branches.origin`: `checkpoint`, `rewind`, `btw`, ...
    pub origin: &'static str,
    /// Make it the thread's active branch.
    pub activate: bool,
    /// Copy the pending writes of `source` at `base` (a resume of an interrupted checkpoint).
    pub copy_writes: bool,
    /// Another branch of the thread from which the new one is made: its writes are copied, and it
    /// is recorded as the source.
    pub writes_of: Option<BranchId>,
    /// The name, if it is free; otherwise and without one the storage makes one up.
    pub name: Option<Arc<str>>,
    /// The run whose `branch_id` is set to the new branch.
    pub run: Option<RunId>,
}

impl NewBranch {
    /// The branch whose pending writes are copied, and that the new one names as its source.
    pub(crate) fn copied_from(&self) -> BranchId {
        self.writes_of.unwrap_or(self.source.branch)
    }
}

impl Commit {
    /// The results of the tasks that ran from this superstep's checkpoint as one row, if `next` brings them, and
    /// nothing else of them: where one transaction writes both, the row of the checkpoint has them.
    pub(crate) fn results_in<'a>(&self, next: &'a Self) -> Option<Cow<'a, WriteRow>> {
        let (row, after) = (&self.checkpoint, &next.checkpoint);
        let follows = after.parent == Some(row.id)
            && (next.slot.tree, next.slot.branch) == (self.slot.tree, self.slot.branch)
            && next.slot.epoch == self.slot.epoch
            && row.ns.is_empty()
            && after.ns.is_empty()
            && row.run.is_some()
            && row.run == after.run;
        let is_result = |write: &WriteRow| {
            let is_here = write.ns.is_empty() && write.checkpoint == row.id;
            is_here && write.idx == 0 && !write.upsert
        };
        if !follows || !next.writes.iter().all(is_result) {
            return None;
        }
        match &*next.writes {
            [only] => Some(Cow::Borrowed(only)),
            several => results::join(several).map(Cow::Owned),
        }
    }

    /// About how many bytes its rows have.
    pub(crate) fn bytes(&self) -> usize {
        let row = self.checkpoint.bytes();
        let blobs = self.blobs.iter().map(|blob| blob.bytes.len());
        let writes = self.writes.iter().map(|write| write.bytes.len());
        let nodes = self.nodes.iter().map(NodeRow::bytes);
        let events = self.events.iter().map(EventRow::bytes);
        let small = nodes.sum::<usize>() + events.sum::<usize>();
        row + blobs.sum::<usize>() + writes.sum::<usize>() + small
    }
}

/// One superstep, to be written in one transaction. Gated by the slot's epoch and, for root
/// rows, by the slot's head being the row's parent.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Fence. With `open` it is the new branch's slot (epoch 1, head = base).
    pub slot: Slot,
    /// A branch to create first.
    pub open: Option<NewBranch>,
    /// The new checkpoint; in the root namespace it becomes the head.
    pub checkpoint: CheckpointRow,
    /// New channel values.
    pub blobs: Vec<BlobRow>,
    /// Results of the tasks that finished last, at the parent checkpoint.
    pub writes: Vec<WriteRow>,
    /// Changes of the message index.
    pub nodes: Vec<NodeRow>,
    /// Business events.
    pub events: Vec<EventRow>,
}

/// Writes of tasks that finished while others still run, and control values.
/// Gated by the slot's epoch.
#[derive(Clone, Debug)]
pub struct Flush {
    /// Fence. With `open` it is the new branch's slot.
    pub slot: Slot,
    /// A branch to create first.
    pub open: Option<NewBranch>,
    /// The rows. No key twice in one call.
    pub writes: Vec<WriteRow>,
}

impl Flush {
    /// About how many bytes its rows have.
    pub(crate) fn bytes(&self) -> usize {
        self.writes.iter().map(|write| write.bytes.len()).sum()
    }
}
