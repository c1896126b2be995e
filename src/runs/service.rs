//! The service itself: its settings, its parts, and looking up runs.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Error, Run, RunHandle, Shared, Status, active::ActiveRuns};
use crate::{
    engine::node_cache::Results,
    id::{RunId, ThreadId},
    stream::{Hub, Publisher, Retention},
};

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Options {
    /// Runs executed at once.
    pub slots: usize,
    /// How long a worker may be silent before its runs count as lost.
    pub lease: Duration,
    /// How often the queue is read without a notification.
    pub poll: Duration,
    /// How long runs may continue after a request to stop. Other processes then take over the rest.
    pub drain: Duration,
    /// Supersteps a run may take when neither it nor its graph has a limit (LangGraph's default).
    pub recursion_limit: u32,
    /// Longest run.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slots: 512,
            lease: Duration::from_secs(15),
            poll: Duration::from_secs(1),
            drain: Duration::from_secs(30),
            recursion_limit: 10_007,
            timeout: Duration::from_secs(24 * 3600),
        }
    }
}

pub(super) struct Inner {
    pub options: Options,
    /// Streams of runs.
    pub hub: Hub,
    /// Runs this process knows of.
    pub active: Mutex<ActiveRuns>,
    /// Results of nodes that declare reuse.
    pub reuse: Arc<Results>,
    /// A run may have become free to start.
    pub wake: Notify,
    /// This process has begun to execute a run.
    pub begun: Notify,
    /// The tasks that execute runs.
    pub tracker: TaskTracker,
    /// Cancelled when runs that are still executed are left to other processes.
    pub hand_over: CancellationToken,
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
        Self {
            shared,
            inner: Arc::new(Inner {
                options,
                hub: Hub::new(Retention::default()),
                active: Mutex::default(),
                reuse: Arc::default(),
                wake: Notify::new(),
                begun: Notify::new(),
                tracker: TaskTracker::new(),
                hand_over: CancellationToken::new(),
            }),
        }
    }

    /// Lets the worker read the queue: a run may have become free to start.
    pub fn wake(&self) {
        self.inner.wake.notify_one();
    }

    /// A run that waits or is executed in this process.
    pub fn handle(&self, run: RunId) -> Option<RunHandle> {
        self.inner.active.lock().get(run)
    }

    /// The stream of a run of this process, also for a while after its end.
    pub fn publisher(&self, run: RunId) -> Option<Arc<Publisher>> {
        self.inner.hub.get(run)
    }

    /// One run.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn find_run(&self, thread: ThreadId, run: RunId) -> Result<Option<Run>, Error> {
        Ok(self.shared.parts.runs.run(thread, run).await?)
    }

    /// Runs of a thread, newest first.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn list(
        &self,
        thread: ThreadId,
        status: Option<Status>,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Run>, Error> {
        self.shared.thread(thread).await?;
        let runs = &self.shared.parts.runs;
        Ok(runs.runs(thread, status, limit, offset).await?)
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}
