//! Runs this process knows of: those that wait here for a worker, and those that it executes.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{RunResult, Status};
use crate::{
    id::{RunId, ThreadId},
    stream::Publisher,
    value::Value,
};

/// A run that is pending or running here.
#[derive(Clone)]
pub struct RunHandle {
    /// Its stream.
    pub publisher: Arc<Publisher>,
    /// Its result, once there.
    pub result: watch::Receiver<Option<Arc<RunResult>>>,
    /// Stops it at the next await.
    pub cancel: CancellationToken,
    /// Why it was cancelled, `{"error", "message"}`, for its row.
    pub reason: Arc<Mutex<Option<Value>>>,
}

impl RunHandle {
    /// Cancels the run and waits until its work is stored and its row is final; false when that
    /// takes longer than `limit`, or it ended in another way meanwhile.
    pub(super) async fn cancel_and_wait(self, reason: Value, limit: Duration) -> bool {
        *self.reason.lock() = Some(reason);
        self.cancel.cancel();
        let ended = tokio::time::timeout(limit, self.ended()).await;
        ended.is_ok_and(|result| result.is_some_and(|found| found.status == Status::Interrupted))
    }

    /// Waits for the result; `None` when this process stopped executing the run before its end.
    pub async fn ended(mut self) -> Option<Arc<RunResult>> {
        let found = self.result.wait_for(Option::is_some).await.ok()?;
        found.clone()
    }
}

/// A run and the sender of its result, owned by whoever executes the run.
pub(super) struct PendingRun {
    pub handle: RunHandle,
    pub result: watch::Sender<Option<Arc<RunResult>>>,
    /// When it began to wait for a worker; `None` until its row is written.
    pub since: Option<Instant>,
}

impl PendingRun {
    pub fn new(publisher: Arc<Publisher>) -> Self {
        let (result, receiver) = watch::channel(None);
        Self {
            handle: RunHandle {
                publisher,
                result: receiver,
                cancel: CancellationToken::new(),
                reason: Arc::default(),
            },
            result,
            since: None,
        }
    }
}

/// Runs by id: those that wait here, and those that are executed.
#[derive(Default)]
pub(super) struct ActiveRuns {
    /// Created or begun here, and not executed by this process: they wait for a worker, or another
    /// process executes them.
    pub pending: HashMap<RunId, PendingRun>,
    /// Executed by this process.
    pub running: HashMap<RunId, RunHandle>,
}

impl ActiveRuns {
    pub fn get(&self, run: RunId) -> Option<RunHandle> {
        self.running
            .get(&run)
            .cloned()
            .or_else(|| self.pending.get(&run).map(|pending| pending.handle.clone()))
    }

    /// All runs of a thread.
    pub fn of_thread(&self, thread: ThreadId) -> Vec<RunHandle> {
        let pending = self.pending.values().map(|pending| &pending.handle);
        let all = self.running.values().chain(pending);
        all.filter(|handle| handle.publisher.thread() == thread)
            .cloned()
            .collect()
    }

    /// Whether a run that was created here waits for a slot of the thread.
    pub fn waits_on(&self, thread: ThreadId) -> bool {
        let mut pending = self.pending.values();
        pending.any(|pending| pending.handle.publisher.thread() == thread)
    }
}
