//! The service itself: its settings, its parts, and looking up runs.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Error, Run, RunHandle, Shared,
    active::{ActiveRuns, ChangedElsewhere},
    execute::RunMemory,
    observe::{LastRead, Probe},
    request::Target,
    shared::{
        AccessWatch,
        memory::{ReadMemory, States},
    },
    worker::Freed,
};
use crate::{
    contention::{Patience, shares::Percent},
    engine::{self, node_cache::Results},
    fail_point,
    id::{RunId, ThreadId},
    metrics::Metrics,
    stream::{
        Feed, Hub, Memory, Publisher, Retention, SinceThread, ThreadSubscription,
        log::{LogWriter, TemporaryRun},
    },
    time::Timestamp,
    tree::{self, members::Access, ttl::Ttl},
};

mod list;

pub use list::RequestPart;

/// What is there of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// It lives, and was created at this time.
    All(Timestamp),
    /// It was deleted, and its id is remembered.
    Tombstone,
    /// There never was one, or it went without a trace.
    Nothing,
}

/// What all runs together may be ahead of the storage takes a fourth of the memory for their states, on top of that.
const AHEAD: usize = 4;

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Options {
    /// Runs executed at once.
    pub slots: usize,
    /// The most runs that may wait on one branch.
    pub max_queued: usize,
    /// Waiting runs that a process knows although nobody reads them or waits for their end: some 2.4 KiB each. Of more
    /// nothing but their rows is retained.
    pub known_waiting: usize,
    /// How long a worker may be silent before its runs count as lost.
    pub lease: Duration,
    /// How often the queue is read without a notification.
    pub poll: Duration,
    /// How long runs may continue after a request to stop. Other processes then take over the rest.
    pub drain: Duration,
    /// Supersteps a run may take when neither it nor its graph has a limit (LangGraph's default).
    pub recursion_limit: u32,
    /// How many may wait for one thread or tree, and for how long.
    pub patience: Patience,
    /// The most tasks of one superstep.
    pub max_tasks: usize,
    /// How far a run may be ahead of what is durable.
    pub run_ahead: engine::RunAhead,
    /// How long the log of a stream that can be resumed is retained.
    pub stream_retention: Duration,
    /// Bytes of the log of one run; the oldest frames go first.
    pub stream_log: usize,
    /// Bytes of the log of all runs of one principal; the oldest frames go first.
    pub stream_log_share: usize,
    /// Bytes of all event streams that their readers have not read, or that are retained for them.
    pub stream_memory: usize,
    /// How much of the memory of streams, and of that for states of requests, one client may have.
    pub share: Percent,
    /// Bytes that large states of requests and responses which are being made may take.
    pub state_memory: usize,
    /// Bytes that states of runs may take which are executed, three quarters of them those of one principal. Runs wait
    /// for the memory of the state that they begin with; what it grows by comes on top.
    pub run_memory: usize,
    /// Longest search through stored states, which no index knows.
    pub search_limit: Duration,
    /// Longest run.
    pub timeout: Duration,
    /// How long new threads live that name no time, if not for ever.
    pub thread_ttl: Option<Ttl>,
    /// Between two sweeps of threads that have expired.
    pub sweep_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slots: 512,
            max_queued: 100,
            known_waiting: 10_000,
            lease: Duration::from_secs(15),
            poll: Duration::from_secs(1),
            drain: Duration::from_secs(30),
            recursion_limit: 10_007,
            patience: Patience::default(),
            max_tasks: engine::MAX_TASKS,
            run_ahead: engine::RunAhead::default(),
            stream_retention: Duration::from_secs(24 * 3600),
            stream_log: 256 << 20,
            stream_log_share: 4 << 30,
            stream_memory: 128 << 20,
            share: Percent::default(),
            state_memory: 256 << 20,
            run_memory: 128 << 20,
            search_limit: Duration::from_secs(30),
            timeout: Duration::from_secs(24 * 3600),
            thread_ttl: None,
            sweep_interval: Duration::from_secs(300),
        }
    }
}

pub(super) struct Inner {
    pub options: Options,
    /// Streams of runs.
    pub hub: Hub,
    /// Runs this process knows of.
    pub active: Mutex<ActiveRuns>,
    /// The memory for the states of those that are executed.
    pub memory: RunMemory,
    /// The memory for what they have done and is not durable yet.
    pub ahead: Arc<engine::AheadMemory>,
    /// Results of nodes that declare reuse.
    pub reuse: Arc<Results>,
    /// A run may have become free to start.
    pub wake: Notify,
    /// Whether the storage can be written to.
    pub probe: Probe,
    /// What this process counts.
    pub metrics: Metrics,
    /// How many runs wait.
    pub waiting: LastRead,
    /// Where runs may wait for nobody any more.
    pub freed: Mutex<Freed>,
    /// More runs waited than there was room for when the queue was read last: new ones join it.
    pub contended: AtomicBool,
    /// The principals that had all slots one may have when the queue was read last: their new runs join it.
    pub full: Mutex<HashSet<Arc<str>>>,
    /// What other processes did to runs of this one.
    pub changed_elsewhere: ChangedElsewhere,
    /// Deliveries of webhooks.
    #[cfg(feature = "server")]
    pub deliveries: super::worker::Deliveries,
    /// The tasks that execute runs.
    pub tracker: TaskTracker,
    /// Cancelled when runs that are still executed are left to other processes.
    pub hand_over: CancellationToken,
    /// Cancelled when none of them is waited for any more: the lease is about to be returned, and what is not in the
    /// log of streams by now is not written there.
    pub stopped: CancellationToken,
    /// The thread that renews the lease, while there is one.
    pub lease: TaskTracker,
}

/// The service of runs. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    pub(super) shared: Arc<Shared>,
    pub(super) inner: Arc<Inner>,
}

impl Service {
    /// A service over `shared`. Call [`start`](Service::start) to let it work.
    pub fn new(shared: Arc<Shared>, options: Options) -> Self {
        let hints = shared.hints.clone();
        let log = shared.parts.log.clone();
        let (most, share) = (options.stream_log, options.stream_log_share);
        let log = LogWriter::new(log, most, share, move |thread| hints.publish(thread));
        Self {
            shared,
            inner: Arc::new(Inner {
                hub: Hub::new(
                    Retention {
                        bytes: options.stream_memory / 4,
                        ..Retention::default()
                    },
                    Memory::with_share(options.stream_memory, options.share),
                )
                .with_log(log),
                active: Mutex::default(),
                memory: RunMemory::with_share(options.run_memory, options.share),
                ahead: Arc::new(engine::AheadMemory::new(options.run_memory / AHEAD)),
                reuse: Arc::default(),
                wake: Notify::new(),
                probe: Probe::default(),
                metrics: Metrics::default(),
                waiting: LastRead::default(),
                freed: Mutex::default(),
                contended: AtomicBool::new(false),
                full: Mutex::default(),
                changed_elsewhere: ChangedElsewhere::default(),
                #[cfg(feature = "server")]
                deliveries: Default::default(),
                tracker: TaskTracker::new(),
                hand_over: CancellationToken::new(),
                stopped: CancellationToken::new(),
                lease: TaskTracker::new(),
                options,
            }),
        }
    }

    /// The lead of a run that this process may execute.
    pub(super) fn new_lead(&self) -> engine::Lead {
        engine::Lead::within(self.inner.ahead.clone())
    }

    /// The memory for states of runs that are executed.
    pub fn run_memory(&self) -> &RunMemory {
        &self.inner.memory
    }

    /// How long a search through stored states may take.
    pub fn search_limit(&self) -> Duration {
        self.inner.options.search_limit
    }

    /// How long new threads live that name no time.
    pub fn thread_ttl(&self) -> Option<Ttl> {
        self.inner.options.thread_ttl
    }

    /// Between two sweeps of threads that have expired.
    pub fn sweep_interval(&self) -> Duration {
        self.inner.options.sweep_interval
    }

    /// Memory for large states and requests of runs, and for responses that are being made.
    pub fn states(&self) -> &States {
        &self.shared.states
    }

    /// Lets the worker read the queue: on this thread a run may have become free to start.
    pub fn wake_thread(&self, thread: ThreadId) {
        self.inner.freed.lock().add(thread);
        self.wake_queue(thread);
    }

    /// Lets the worker read the queue: a run of this thread was added, or its slot is free. Without
    /// room here another process may begin it.
    pub(super) fn wake_queue(&self, thread: ThreadId) {
        self.inner.freed.lock().add_unpublished(thread);
        if self.shared.drain.is_cancelled() {
            self.publish_queued();
        }
        self.inner.wake.notify_one();
    }

    /// Checks that a client still has the level on a thread that its request took the first time, and returns what is
    /// there of the thread, as of the moment of the level. Of a thread that is gone nothing can be withdrawn: one that is
    /// temporary goes with the end of its run, which may be at this moment.
    ///
    /// # Errors
    /// As [`authorize`](Self::authorize).
    pub async fn authorize_repeat(
        &self,
        access: &Access,
        thread: ThreadId,
    ) -> Result<Remains, Error> {
        fail_point!(async "runs::repeat");
        let tree = &self.shared.parts.tree;
        let principal = access.principal().cloned();
        if let Some(found) = tree.thread_with_level(thread, principal).await? {
            access.check(thread, found.level)?;
            return Ok(Remains::All(found.thread.created_at));
        }
        fail_point!(async "runs::repeat_gone");
        match self.remains(thread).await? {
            // It came in this moment, and nobody has looked at the level.
            Remains::All(_) => Err(Error::NoThread(thread)),
            gone => Ok(gone),
        }
    }

    /// What is there of a thread, whoever sees it.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn remains(&self, thread: ThreadId) -> Result<Remains, Error> {
        let mut reader = self.shared.parts.tree.reader().await?;
        Ok(match reader.thread_row(thread).await? {
            None => Remains::Nothing,
            Some(row) if row.deleted_at.is_some() => Remains::Tombstone,
            Some(row) => Remains::All(row.created_at),
        })
    }

    /// Watches a client's access to a thread while a stream is open; `None` when everything is
    /// allowed.
    pub fn watch_access(&self, access: &Access, thread: ThreadId) -> Option<AccessWatch> {
        self.shared.withdrawals.watch(access, thread)
    }

    /// Cancelled when no run of this process is waited for any more.
    pub fn stopped(&self) -> CancellationToken {
        self.inner.stopped.clone()
    }

    /// A run of a thread that waits or is executed in this process.
    pub fn handle(&self, run: Target) -> Option<RunHandle> {
        let handle = self.inner.active.lock().get(run.run);
        handle.filter(|handle| handle.publisher.thread() == run.thread)
    }

    /// The memory of all event streams of this process.
    pub fn stream_memory(&self) -> &Arc<Memory> {
        self.inner.hub.memory()
    }

    /// The stream of a run of a thread in this process, also for a while after its end.
    pub fn publisher(&self, run: Target) -> Option<Arc<Publisher>> {
        let publisher = self.inner.hub.get(run.run);
        publisher.filter(|publisher| publisher.thread() == run.thread)
    }

    /// Watches a thread in this process, whether or not there is one: the frames of its runs and the
    /// edits of its state.
    /// The log of the thread has reached position `last`.
    pub fn watch_thread(&self, thread: ThreadId, last: u64) -> ThreadSubscription {
        self.inner.hub.watch(thread, SinceThread::Live, last)
    }

    /// The runs of a thread that this process executes and whose events are not stored, each with the name of its graph.
    pub fn passing_runs(&self, thread: ThreadId) -> Vec<(RunId, Arc<str>)> {
        self.inner.hub.passing(thread)
    }

    /// The feed of a thread, if somebody watches it.
    pub fn watched_feed(&self, thread: ThreadId) -> Option<Arc<Feed>> {
        self.inner.hub.watched(thread)
    }

    /// Checks that a client has the level on a thread that its operation takes.
    ///
    /// # Errors
    /// No such thread, or none of the client's; 403 below the level; or the storage failed.
    pub async fn authorize(&self, access: &Access, thread: ThreadId) -> Result<(), Error> {
        let Some(principal) = access.principal() else {
            return Ok(());
        };
        let level = self
            .shared
            .parts
            .tree
            .level_on_thread(thread, principal.clone());
        Ok(access.check(thread, level.await?)?)
    }

    /// Where a run is that a client names by its id alone: as long as it exists, or its stream does.
    ///
    /// # Errors
    /// There is no such run, or none of the client's; or the storage failed.
    pub async fn locate(&self, access: &Access, run: RunId) -> Result<Target, Error> {
        let thread = match self.inner.hub.get(run) {
            Some(publisher) => publisher.thread(),
            None => {
                let parts = &self.shared.parts;
                match parts.runs.thread_of_run(run).await? {
                    Some(thread) => thread,
                    None => {
                        let ended = parts.log.ended_run(run).await?;
                        ended.ok_or(Error::NoRun(run))?.thread
                    }
                }
            }
        };
        let target = Target { thread, run };
        match self.authorize_stream(access, target).await {
            Ok(()) => Ok(target),
            Err(Error::NoThread(_)) => Err(Error::NoRun(run)),
            Err(error) => Err(error),
        }
    }

    /// [`authorize`](Self::authorize) for the stream of a run, which outlives the thread of a
    /// temporary one.
    pub(super) async fn authorize_stream(&self, access: &Access, run: Target) -> Result<(), Error> {
        let publisher = self.publisher(run);
        if publisher.is_some_and(|stream| stream.is_left_to(access.principal())) {
            return self.authorize_repeat(access, run.thread).await.map(drop);
        }
        match self.authorize(access, run.thread).await {
            Err(Error::NoThread(_)) if self.ended(access, run).await?.is_some() => {
                self.authorize_repeat(access, run.thread).await.map(drop)
            }
            checked => checked,
        }
    }

    /// What is left of a run that has gone with its thread, for the client that created it.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn ended(&self, access: &Access, run: Target) -> Result<Option<TemporaryRun>, Error> {
        let ended = self.shared.parts.log.ended_run(run.run).await?;
        Ok(ended.filter(|ended| {
            let principal = access.principal();
            let is_own = principal.is_none() || ended.principal.as_ref() == principal;
            is_own && ended.thread == run.thread
        }))
    }

    /// One run, to be shown to a client; `memory` is reserved before its request is read.
    ///
    /// # Errors
    /// No such thread, or none of the client's; there is no memory; or the storage failed.
    pub async fn visible_run(
        &self,
        access: &Access,
        run: Target,
        memory: &ReadMemory,
    ) -> Result<Option<Run>, Error> {
        self.authorize(access, run.thread).await?;
        self.read_run(run, memory).await
    }

    /// One run that a response shows; `memory` is reserved before its request is read.
    ///
    /// # Errors
    /// There is no memory, or the storage failed.
    pub(super) async fn read_run(
        &self,
        run: Target,
        memory: &ReadMemory,
    ) -> Result<Option<Run>, Error> {
        let runs = &self.shared.parts.runs;
        let Some(weight) = runs.run_weight(run.thread, run.run).await? else {
            return Ok(None);
        };
        let _reserved = memory.obtain(weight).await.map_err(|_| {
            let detail = "Too many large requests of runs are being read. Try again later.";
            tree::Error::refused(tree::ErrorKind::NoMemory, "no_memory", detail)
        })?;
        Ok(runs.run(run.thread, run.run).await?)
    }

    /// [`visible_run`](Self::visible_run) without what its request contains.
    ///
    /// # Errors
    /// No such thread, or none of the client's; or the storage failed.
    pub async fn visible_row(&self, access: &Access, run: Target) -> Result<Option<Run>, Error> {
        self.authorize(access, run.thread).await?;
        self.find_row(run.thread, run.run).await
    }

    /// One run without what its request contains.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn find_row(&self, thread: ThreadId, run: RunId) -> Result<Option<Run>, Error> {
        let runs = &self.shared.parts.runs;
        Ok(runs.run_without_request(thread, run).await?)
    }

    /// A run, once this process knows of it: see [`ActiveRuns::awaited`].
    pub(super) fn awaited(&self, run: Target) -> oneshot::Receiver<RunHandle> {
        self.inner.active.lock().awaited(run.thread, run.run)
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}
