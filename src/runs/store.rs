//! What the run service needs of a storage.

mod queue;
mod row;
mod states;
pub mod transitions;
mod tx;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use async_trait::async_trait;

pub use queue::{
    ClaimedRun, ClaimedRuns, DEATHS, QueueClaim, Recover, Recovered, RequestSlots, Searched, Slice,
};
pub use states::{EndedRun, OpenRunState, PoolState};
pub use tx::{RunsOfPrincipal, Tx};

use super::{request::codec::Columns, shared::hints::Linker};
use crate::{
    checkpoint::{Commit, Error, Slot},
    id::{AssistantId, BranchId, CheckpointId, CronId, RunId, ThreadId, TreeId, WorkerId},
    stream::log::NewChunk,
    time::Timestamp,
    tree::{
        NewThread, Outcome,
        members::{Access, Denied},
    },
    value::{Map, Value},
    webhooks,
    words::words,
};

words! {
    /// State of a run as clients see it.
    pub enum Status, "run status" {
        /// Waits for its turn.
        Pending = "pending",
        /// A worker executes it.
        Running = "running",
        /// Ended, also at an interrupt of the graph.
        Success = "success",
        /// A node or the engine failed.
        Error = "error",
        /// Took too long.
        Timeout = "timeout",
        /// Was cancelled.
        Interrupted = "interrupted",
    }
}

impl Status {
    /// Whether it will never change again.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

words! {
    /// What to do with a run while another one is pending or running in the same slot.
    #[derive(Default)]
    pub enum Strategy, "multitask strategy" {
        /// Refuse the new one.
        Reject = "reject",
        /// Cancel the others, undo what they did, and delete them.
        Rollback = "rollback",
        /// Cancel the others and retain what they did.
        Interrupt = "interrupt",
        /// Let it wait its turn.
        #[default]
        Enqueue = "enqueue",
    }
}

/// A row of `runs`.
#[derive(Clone, Debug)]
pub struct Run {
    /// Key.
    pub id: RunId,
    /// Tree of the thread.
    pub tree: TreeId,
    /// The thread.
    pub thread: ThreadId,
    /// The branch it works on; `None` while it floats.
    pub branch: Option<BranchId>,
    /// The assistant.
    pub assistant: AssistantId,
    /// State.
    pub status: Status,
    /// What clients see as metadata.
    pub metadata: Map,
    /// The request: input, command, config, stream modes and so on. Encoded by [`codec`](super::request::codec).
    pub kwargs: Value,
    /// The checkpoint it starts from, when it is not the head.
    pub address: Option<CheckpointId>,
    /// Head of its branch when it was first claimed, or when it made its branch.
    pub base: Option<CheckpointId>,
    /// How it treats others.
    pub strategy: Strategy,
    /// How often it was started.
    pub attempt: i32,
    /// The thread goes with the run (stateless runs).
    pub temporary: bool,
    /// On whose behalf it runs; `None` for the server itself, and while nobody authenticates.
    pub principal: Option<Arc<str>>,
    /// `{"error", "message"}` of a failed run.
    pub error: Option<Value>,
    /// Head of its branch when it ended.
    pub last_checkpoint: Option<CheckpointId>,
    /// When it may start.
    pub run_at: Timestamp,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its row last changed.
    pub updated_at: Timestamp,
}

/// A run to create.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// The thread.
    pub thread: ThreadId,
    /// Create the thread first when it does not exist.
    pub create_thread: Option<NewThread>,
    /// The assistant.
    pub assistant: AssistantId,
    /// What clients see as metadata.
    pub metadata: Map,
    /// The request, to be encoded by [`codec`](super::request::codec).
    pub kwargs: Value,
    /// The checkpoint it starts from, when the request names one.
    pub address: Option<CheckpointId>,
    /// The branch it is pinned to; it floats without one.
    pub branch: Option<BranchId>,
    /// What to do with other runs of the slot.
    pub strategy: Strategy,
    /// Seconds until it may start.
    pub after: Duration,
    /// Delete the thread when it ends.
    pub temporary: bool,
    /// Start it at once for this worker when the slot is free and `after` is zero.
    pub claim: Option<WorkerId>,
    /// Keys of metadata that the run does not inherit: it has the thread's others as well. `None`
    /// when it inherits nothing.
    pub own_metadata: Option<Vec<Arc<str>>>,
    /// Merged into the thread's metadata (`graph_id`, `assistant_id`).
    pub thread_metadata: Map,
    /// Merged into the thread's config, of which what is configurable stays as it is where both have it.
    pub thread_config: Map,
    /// The user of the thread's config counts before that of `kwargs`, since the request names none.
    pub inherits_user: bool,
    /// The most runs that may wait on its branch, before it does.
    pub max_queued: usize,
    /// On whose behalf it runs; that client must have the level in the transaction that creates it.
    pub access: Access,
    /// The number of the thread's last event, after which nothing may have happened on it when other
    /// runs of the slot are ended and this one is created; `None` when that does not matter.
    pub unchanged_since: Option<i64>,
}

impl NewRun {
    /// What the row has in columns.
    pub fn columns(&self) -> Columns {
        Columns {
            run: self.id,
            thread: self.thread,
            assistant: self.assistant,
        }
    }

    /// Whom its end is reported to, in the form that the row has.
    pub fn webhook(&self) -> Option<String> {
        let url = self.kwargs.get("webhook")?.as_str()?;
        webhooks::normalized(url)
    }
}

/// What became of a run to create. All of it is durable when the call returns. Of several reasons
/// against it the first of this order counts; a checkpoint that is gone comes after `Changed`.
#[derive(Clone, Debug)]
pub enum Created {
    /// It occupies its slot: execute it.
    Started(Box<Run>, Slot),
    /// It waits.
    Queued(Box<Run>),
    /// There is no such thread, or no such branch of it.
    NoThread,
    /// The client has no level on the thread, or too low a one.
    Denied(Denied),
    /// There is a run with this id already.
    Exists,
    /// Something has happened on the thread since it was read.
    Changed,
    /// `Reject`, and the slot is taken.
    Busy,
    /// As many runs as are allowed wait on the branch already.
    QueueFull(usize),
}

/// What became of runs that were to be created together. All of it is durable when the call returns.
#[derive(Clone, Debug)]
pub enum CreatedBatch {
    /// Each occupies its slot or waits.
    All(Vec<Created>),
    /// None is there: the one at this index was refused, for this reason.
    None(usize, Created),
}

/// A due time of a cron, and the run that is to be created at it.
#[derive(Clone, Debug)]
pub struct Firing {
    /// The cron.
    pub cron: CronId,
    /// The due time, by which the row is recognised.
    pub due: Timestamp,
    /// The last change of the row that the run was made of.
    pub updated_at: Timestamp,
    /// The time now.
    pub now: Timestamp,
    /// When the cron is due next.
    pub next: Option<Timestamp>,
    /// The run; without one the due time is skipped.
    pub run: Option<NewRun>,
}

/// What became of a due time.
#[derive(Clone, Debug)]
pub enum Fired {
    /// Another process has served it, or the cron has changed.
    Lost,
    /// It is past, without a run.
    Skipped,
    /// It is past: the run was created, or not for a reason that the due time does not outlive. A cron whose
    /// principal may not create it is disabled now, and one whose thread is gone was deleted.
    Past(Created),
}

/// Which of the open runs to read.
#[derive(Clone, Debug)]
pub struct OpenPage {
    /// Only those that wait, or that are executed.
    pub status: Option<Status>,
    /// Only those of threads that this principal may write to; all without one.
    pub writer: Option<Arc<str>>,
    /// Only those that were created after the run of this number.
    pub after: Option<i64>,
    /// The most.
    pub limit: usize,
}

/// One of the open runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedRun {
    /// Its place in the order of creation.
    pub seq: i64,
    /// Its thread.
    pub thread: ThreadId,
    /// The run.
    pub run: RunId,
}

/// The end of a run, in one transaction, gated by the slot's epoch.
#[derive(Clone, Debug)]
pub struct Finish {
    /// Fence; its head is the run's last checkpoint.
    pub slot: Slot,
    /// The run.
    pub run: RunId,
    /// Final status.
    pub status: Status,
    /// How the branch is left.
    pub outcome: Outcome,
    /// `{"error", "message"}` of a failure.
    pub error: Option<Value>,
    /// Delete the thread with everything in it (stateless runs).
    pub delete_thread: bool,
    /// The storage has begun to commit: an attempt after that which finds neither run nor thread was carried out before,
    /// and its reply was lost.
    pub committing: Arc<AtomicBool>,
    /// What is left for those who wait at other processes when the thread is deleted.
    pub left: Option<LeftResult>,
    /// The last frames of its stream, for its log; none of a run whose thread is deleted.
    pub frames: Vec<NewChunk>,
}

impl Finish {
    /// The bytes of its frames.
    pub fn frame_bytes(&self) -> usize {
        self.frames.iter().map(|chunk| chunk.frames.len()).sum()
    }
}

/// The result of a run that goes with its thread. It is stored for ten minutes if somebody waits for it
/// elsewhere.
#[derive(Clone, Debug)]
pub struct LeftResult {
    /// The body for those who wait.
    pub body: Value,
    /// Another process created the run, and those who wait are there.
    pub is_foreign: bool,
}

/// A run to delete.
#[derive(Clone, Debug)]
pub struct Undo {
    /// Its thread.
    pub thread: ThreadId,
    /// The run.
    pub run: RunId,
    /// Also when it has ended.
    pub ended: bool,
    /// The error of its branch then, `{"error", "message"}`.
    pub error: Option<Value>,
}

impl Undo {
    /// The error of a run that was lost too often: each of its processes died.
    pub fn lost() -> Value {
        let message = format!(
            "the process that executed this run died before the run had ended, {DEATHS} times"
        );
        Self::reason("WorkerLost", &message)
    }

    /// `{"error", "message"}` of a branch whose run was ended from outside.
    pub fn reason(class: &str, message: &str) -> Value {
        let mut map = Map::with_capacity(2);
        map.insert("error", class);
        map.insert("message", message);
        Value::map(map)
    }
}

/// Stores runs and the leases of workers. Implemented by `storage::sqlite` and
/// `storage::postgres`.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Creates a run and, when requested and possible, claims it: one transaction. `Pruned` when the
    /// checkpoint it is to start from is gone; while the run is open, that checkpoint stays.
    async fn create_run(&self, new: NewRun) -> Result<Created, Error>;

    /// Creates runs together, each with a thread of its own that is new, as
    /// [`create_run`](Self::create_run) would: one transaction.
    async fn create_runs(&self, new: Vec<NewRun>) -> Result<CreatedBatch, Error>;

    /// The thread of a run.
    async fn thread_of_run(&self, run: RunId) -> Result<Option<ThreadId>, Error>;

    /// Creates the run of a cron that is due and moves the cron on, in one transaction: of all
    /// processes that try it one succeeds, and each due time has one run at most.
    async fn fire(&self, firing: Firing) -> Result<Fired, Error>;

    /// Takes pending runs whose slot is free and whose time has come, oldest first per branch, and in
    /// fair shares of the principals; requests are read only of those that are taken. Each claim raises the
    /// branch's epoch.
    async fn claim(&self, claim: QueueClaim) -> Result<ClaimedRuns, Error>;

    /// [`finish_with`](Self::finish_with) no supersteps.
    async fn finish(&self, finish: Finish) -> Result<Vec<i64>, Error> {
        self.finish_with(vec![], finish).await
    }

    /// Writes the last supersteps of a run and its last frames and ends it, in one transaction; what an earlier call has
    /// written stays. Returns the positions of the frames in the log of the thread; none where the run has ended before.
    /// `Fenced` when the epoch moved, since another process has ended the row, and when a superstep was refused: then the
    /// run has not ended.
    async fn finish_with(&self, commits: Vec<Commit>, finish: Finish) -> Result<Vec<i64>, Error>;

    /// Has the result of an open temporary run outlive it, for one who waits at this process while
    /// another one executes it; false when there is no such run, or no other process.
    async fn await_end(&self, run: RunId) -> Result<bool, Error>;

    /// One run.
    async fn run(&self, thread: ThreadId, run: RunId) -> Result<Option<Run>, Error>;

    /// What a run weighs with its request, without reading that.
    async fn run_weight(&self, thread: ThreadId, run: RunId) -> Result<Option<u64>, Error>;

    /// [`run`](Self::run) without what its request contains: `kwargs` is null, and there is no `metadata`.
    async fn run_without_request(&self, thread: ThreadId, run: RunId)
    -> Result<Option<Run>, Error>;

    /// [`run`](Self::run) with its metadata. Its request is read, and `kwargs` is not null, only where that is small.
    async fn run_with_metadata(&self, thread: ThreadId, run: RunId) -> Result<Option<Run>, Error>;

    /// A run that has ended, to be reported to its webhook; also one that is gone with its thread, as long
    /// as its report is in the outbox.
    async fn ended_run(&self, tree: TreeId, run: RunId) -> Result<Option<EndedRun>, Error>;

    /// What runs of a thread weigh with their requests, newest first, without reading these.
    async fn run_weights(
        &self,
        thread: ThreadId,
        status: Option<Status>,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<(RunId, u64)>, Error>;

    /// What runs of a thread weigh as [`runs_with_metadata`](Self::runs_with_metadata) reads them.
    async fn metadata_weights(
        &self,
        thread: ThreadId,
        status: Option<Status>,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<(RunId, u64)>, Error>;

    /// [`runs`](Self::runs) with their metadata, as [`run_with_metadata`](Self::run_with_metadata).
    async fn runs_with_metadata(
        &self,
        thread: ThreadId,
        status: Option<Status>,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Run>, Error>;

    /// [`runs`](Self::runs) without what their requests contain: `kwargs` is null, and there is
    /// no `metadata`.
    async fn runs_without_requests(
        &self,
        thread: ThreadId,
        status: Option<Status>,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Run>, Error>;

    /// Runs of a thread, newest first.
    async fn runs(
        &self,
        thread: ThreadId,
        status: Option<Status>,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Run>, Error>;

    /// How the open runs of every thread stand, at most so many of them.
    async fn open_states(&self, limit: usize) -> Result<Vec<OpenRunState>, Error>;

    /// The connections of this process.
    fn pools(&self) -> Vec<PoolState> {
        vec![]
    }

    /// How this process reaches the others on the storage; `None` if there can be none, or it is not to.
    fn linker(&self) -> Option<Arc<dyn Linker>> {
        None
    }

    /// A page of the open runs of every thread, oldest first.
    async fn open(&self, page: OpenPage) -> Result<Vec<OpenedRun>, Error>;

    /// Those of the runs that a thread has, each once, and whether they are open.
    async fn is_open(
        &self,
        thread: ThreadId,
        runs: Vec<RunId>,
    ) -> Result<Vec<(RunId, bool)>, Error>;

    /// Registers this process, or renews its lease (database clock).
    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), Error>;

    /// Returns the lease at shutdown.
    async fn retire(&self, worker: WorkerId) -> Result<(), Error>;

    /// Takes over runs left `running` by dead processes (SQLite: every one of another worker;
    /// Postgres: those whose worker's lease has lapsed or was returned), oldest first. The
    /// branch's epoch is raised, so that nothing the earlier worker still writes counts. A run over
    /// which [`DEATHS`] processes died ends as `error`.
    async fn recover(&self, by: Recover) -> Result<Recovered, Error>;

    /// Claims a `running` run of this worker anew, as [`recover`](Self::recover) would: nothing
    /// that its last attempt may still write counts. `None` when it is not this worker's any more.
    async fn reclaim(&self, worker: WorkerId, run: RunId) -> Result<Option<ClaimedRun>, Error>;

    /// Writes something of no meaning that needs room.
    ///
    /// # Errors
    /// The storage cannot be written to: its disk is full, or it is not there.
    async fn probe(&self) -> Result<(), Error>;

    /// The runs that are `running` in the name of a worker, with the reasons for which others
    /// [want them cancelled](Tx::request_cancel).
    async fn running(&self, worker: WorkerId) -> Result<Vec<(RunId, Option<Value>)>, Error>;

    /// A transaction on a tree in which runs can be created too.
    async fn begin(&self, tree: TreeId) -> Result<Box<dyn Tx>, Error>;
}
