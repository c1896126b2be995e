//! A storage under test, and the rows that cases write to it.

use std::{any::Any, collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use backstitch::{
    assistants,
    checkpoint::{
        At, BlobRow, Blobs, Commit, Flush, List, NewBranch, Query, Saver, Slot, Stored, Version,
        WriteRow,
    },
    crons,
    id::{BranchId, CheckpointId, RunId, TaskId, ThreadId, TreeId},
    runs::{self, Created, Finish, NewRun, Run, Status},
    stream::log::Log,
    tree::{self, Outcome, event, projection},
    value::{Map, Value},
    webhooks::outbox,
};
use uuid::Uuid;

pub use crate::rows::*;
use test_support::invariants::Tables;

/// A migrated, empty storage.
pub struct Backend {
    pub saver: Arc<dyn Saver>,
    pub trees: Arc<dyn tree::Store>,
    pub runs: Arc<dyn runs::Store>,
    pub outbox: Arc<dyn outbox::Store>,
    pub log: Arc<dyn Log>,
    pub assistants: Arc<dyn assistants::Store>,
    pub crons: Arc<dyn crons::Store>,
    pub projections: Arc<dyn projection::Store>,
    /// Looks into the tables where no trait method does.
    pub probe: Box<dyn Probe>,
    /// The same tables, for whoever reads all of them.
    pub tables: Tables,
    /// The database, dropped last.
    pub _keep: Box<dyn Any + Send + Sync>,
}

/// Looks at rows past the traits.
#[async_trait]
pub trait Probe: Send + Sync {
    /// How many rows of a tree each table has; tables without one are left out.
    async fn rows(&self, tree: TreeId) -> BTreeMap<String, i64>;
    /// Names of a thread's branches, oldest first.
    async fn branch_names(&self, thread: ThreadId) -> Vec<String>;
    /// Number and type of a thread's events, in order.
    async fn events(&self, thread: ThreadId) -> Vec<(i64, String)>;
    /// Message id, number of its event, depth and settled checkpoint of a tree's message nodes,
    /// by message id.
    async fn nodes(&self, tree: TreeId) -> Vec<(String, Option<i64>, i32, Option<CheckpointId>)>;
    /// From now on every change of the row of this run fails.
    async fn spoil(&self, run: RunId);
}

/// The map inside a value.
pub fn map(value: Value) -> Map {
    value.as_map().unwrap().clone()
}

/// An id that is nowhere in the storage.
pub fn unknown<T: From<Uuid>>() -> T {
    T::from(Uuid::now_v7())
}

impl Backend {
    /// Ends the open runs of a thread from outside, or one of them: those that it ended.
    pub async fn cancel(&self, thread: ThreadId, run: Option<RunId>) -> Vec<RunId> {
        let Some(row) = self.trees.thread(thread).await.unwrap() else {
            return vec![];
        };
        let mut tx = self.runs.begin(row.tree).await.unwrap();
        let open = tx.open_runs(row.tree, thread).await.unwrap();
        let mut ended = vec![];
        for one in run.map_or_else(|| open.iter().map(|run| run.id).collect(), |run| vec![run]) {
            if tx.end_run(thread, one, Value::Null).await.unwrap() {
                ended.push(one);
            }
        }
        tx.commit().await.unwrap();
        ended
    }

    /// A new thread, taken over by the caller.
    pub async fn slot(&self) -> Slot {
        let id = self.thread().await;
        self.trees.take_slot(id).await.unwrap().unwrap()
    }

    /// A new thread.
    pub async fn thread(&self) -> ThreadId {
        let id = ThreadId::mint();
        let new = new_thread(id);
        self.trees.create_thread(new).await.unwrap().unwrap();
        id
    }

    /// Commits one superstep that must succeed.
    pub async fn commit(&self, commit: Commit) -> i32 {
        self.try_commit(commit).await.unwrap()
    }

    pub async fn try_commit(&self, commit: Commit) -> Result<i32, backstitch::checkpoint::Error> {
        let mut results = self.saver.commit(vec![commit]).await;
        assert_eq!(results.len(), 1);
        results.pop().unwrap()
    }

    /// Commits `count` empty supersteps after `parent` and answers their ids.
    pub async fn line(
        &self,
        slot: &Slot,
        parent: Option<CheckpointId>,
        count: usize,
    ) -> Vec<CheckpointId> {
        let mut ids = Vec::new();
        let mut parent = parent;
        for step in 0..count {
            let commit = superstep(slot, parent, step as i64);
            parent = Some(commit.checkpoint.id);
            ids.extend(parent);
            self.commit(commit).await;
        }
        ids
    }

    pub async fn load(&self, slot: &Slot, ns: &str, at: At) -> Option<Stored> {
        let query = query(slot, ns, at);
        self.saver.load(query).await.unwrap()
    }

    pub async fn by_id(&self, slot: &Slot, id: CheckpointId) -> Option<Stored> {
        self.load(slot, "", At::Id(id)).await
    }

    /// Blobs by channel and version, whatever they weigh.
    pub async fn blobs(
        &self,
        slot: &Slot,
        ns: &str,
        wanted: Vec<(Arc<str>, Version)>,
    ) -> Vec<BlobRow> {
        let found = self.saver.blobs(slot.tree, ns.into(), wanted, u64::MAX);
        match found.await.unwrap() {
            Blobs::Rows(rows) => rows,
            Blobs::Weight(weight) => panic!("{weight}"),
        }
    }

    pub async fn list(&self, list: List) -> Vec<CheckpointId> {
        let found = self.saver.list(list).await.unwrap();
        found.iter().map(|stored| stored.row.id).collect()
    }

    pub async fn rows(&self, slot: &Slot) -> BTreeMap<String, i64> {
        self.probe.rows(slot.tree).await
    }

    /// Starts a run on a thread whose slot is free.
    pub async fn start(&self, new: NewRun) -> (Run, Slot) {
        match self.runs.create_run(new).await.unwrap() {
            Created::Started(run, slot) => (*run, slot),
            other => panic!("not started: {other:?}"),
        }
    }

    /// Creates a run that has to wait.
    pub async fn queue(&self, new: NewRun) -> Run {
        match self.runs.create_run(new).await.unwrap() {
            Created::Queued(run) => *run,
            other => panic!("not queued: {other:?}"),
        }
    }

    pub async fn run(&self, run: &Run) -> Run {
        let found = self.runs.run(run.thread, run.id).await.unwrap();
        found.unwrap()
    }

    /// Ends a run with success.
    pub async fn finish(&self, run: RunId, slot: Slot) {
        let finish = finish(run, slot);
        self.runs.finish(finish).await.unwrap();
    }
}

pub fn finish(run: RunId, slot: Slot) -> Finish {
    Finish {
        slot,
        run,
        status: Status::Success,
        outcome: Outcome::Idle,
        error: None,
        delete_thread: false,
        committing: Default::default(),
        left: None,
        frames: vec![],
    }
}

pub fn query(slot: &Slot, ns: &str, at: At) -> Query {
    Query {
        tree: slot.tree,
        thread: slot.thread,
        ns: ns.into(),
        at,
        values: true,
    }
}

/// Everything of a thread.
pub fn list_all(slot: &Slot) -> List {
    List {
        tree: slot.tree,
        thread: slot.thread,
        ns: None,
        before: None,
        id: None,
        metadata: None,
        limit: 1000,
    }
}

/// A commit of a subgraph's checkpoint below `root`.
pub fn substep(slot: &Slot, ns: &str, root: CheckpointId, parent: Option<CheckpointId>) -> Commit {
    let mut commit = superstep(slot, parent, 0);
    commit.checkpoint.ns = ns.into();
    commit.checkpoint.root = Some(root);
    commit
}

/// Versions as a row names them.
pub fn blob_versions(versions: &[(&str, Version)]) -> String {
    let versions: Map = versions
        .iter()
        .map(|(channel, version)| (Arc::from(*channel), Value::from(version.to_string())))
        .collect();
    Value::map(versions).to_json()
}

pub fn blob(channel: &str, version: Version, base: Option<Version>, bytes: &[u8]) -> BlobRow {
    BlobRow {
        ns: "".into(),
        channel: channel.into(),
        version,
        base,
        chain_bytes: if base.is_some() {
            bytes.len() as i32
        } else {
            0
        },
        tag: "bincode".into(),
        bytes: bytes.to_vec(),
    }
}

pub fn task(number: u128) -> TaskId {
    TaskId(Uuid::from_u128(number))
}

/// The output of a task at a root checkpoint.
pub fn result(checkpoint: CheckpointId, task_number: u128, bytes: &[u8]) -> WriteRow {
    WriteRow {
        ns: "".into(),
        checkpoint,
        branch: unknown::<BranchId>(),
        task: task(task_number),
        idx: 0,
        path: "a".into(),
        channel: None,
        tag: "bincode".into(),
        bytes: bytes.to_vec(),
        upsert: false,
    }
}

/// A control row of a task at a root checkpoint.
pub fn control(
    checkpoint: CheckpointId,
    task_number: u128,
    (idx, channel): (i32, &str),
    bytes: &[u8],
) -> WriteRow {
    WriteRow {
        idx,
        channel: Some(channel.into()),
        upsert: true,
        ..result(checkpoint, task_number, bytes)
    }
}

pub const ERROR: (i32, &str) = (-1, "__error__");
pub const INTERRUPT: (i32, &str) = (-3, "__interrupt__");
pub const RESUME: (i32, &str) = (-4, "__resume__");

pub fn flush(slot: &Slot, writes: Vec<WriteRow>) -> Flush {
    Flush {
        slot: *slot,
        open: None,
        writes,
    }
}

/// A branch from `base` that becomes active, and the slot to write to it.
pub fn fork(source: &Slot, base: Option<(CheckpointId, i32)>) -> (NewBranch, Slot) {
    let id = BranchId::mint();
    let head = base.map(|(id, _)| id);
    let head_depth = base.map_or(-1, |(_, depth)| depth);
    let new = NewBranch {
        id,
        base: head,
        base_depth: head_depth,
        source: *source,
        origin: "checkpoint",
        activate: true,
        copy_writes: false,
        writes_of: None,
        name: None,
        run: None,
    };
    let slot = Slot {
        branch: id,
        head,
        head_depth,
        ..*source
    };
    (new, slot)
}

/// What identifies a write row and what it holds.
pub fn shape(writes: &[WriteRow]) -> Vec<(TaskId, i32, Vec<u8>)> {
    writes
        .iter()
        .map(|write| (write.task, write.idx, write.bytes.clone()))
        .collect()
}

/// Number and type of the events of a row: two of a run that follow each other share one, with the number of the
/// second.
pub fn told_by(number: i64, code: i16) -> Vec<(i64, String)> {
    let kinds = match code {
        19 => vec!["RunEnqueued", "RunStarted"],
        20 => vec!["CheckpointCreated", "RunFinished"],
        code => vec![event::kind(code).unwrap()],
    };
    let first = number + 1 - i64::try_from(kinds.len()).unwrap();
    (first..)
        .zip(kinds.into_iter().map(str::to_owned))
        .collect()
}
