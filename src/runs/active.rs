//! Runs this process knows of: those that wait here for a worker, and those that it executes.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{RunResult, Status, Undo, result::NOT_FOUND};
use crate::{
    engine::Lead,
    id::{RunId, ThreadId},
    stream::Publisher,
    value::Value,
};

/// Ids of runs that wait no longer and are retained at least, so that they are looked for seldom.
const SPARE: usize = 64;

/// A run that is pending or running here.
#[derive(Clone)]
pub struct RunHandle {
    /// Its stream.
    pub publisher: Arc<Publisher>,
    /// Its result, once there.
    pub result: watch::Receiver<Option<Arc<RunResult>>>,
    /// Stops it at the next await.
    pub cancel: CancellationToken,
    /// What it has done and is not durable yet.
    pub lead: Lead,
    /// Why it was cancelled, `{"error", "message"}`, for its row.
    pub reason: Arc<Mutex<Option<Value>>>,
    /// On whose behalf it runs.
    pub principal: Option<Arc<str>>,
    /// Another process created it, and whoever waits for it is there.
    pub is_foreign: bool,
    /// How many slots it takes while it is executed: several when its request takes much memory.
    pub slots: usize,
    /// Its end is in the metrics.
    is_counted: Arc<AtomicBool>,
}

impl RunHandle {
    /// Marks its end as counted in the metrics; false if it was before. What ends it from outside and what executes it
    /// may both believe that they have written its final row.
    pub(super) fn mark_counted(&self) -> bool {
        !self.is_counted.swap(true, Ordering::Relaxed)
    }

    /// Stops the run at its next await, for this reason.
    pub(super) fn request_cancel(&self, reason: Value) {
        *self.reason.lock() = Some(reason);
        self.cancel.cancel();
    }

    /// Stops a run whose row is gone. Who reads its stream is told that there is no such run.
    pub(super) fn abandon(&self) {
        self.request_cancel(Undo::reason(NOT_FOUND.0, NOT_FOUND.1));
    }

    /// Whether its row is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        let reason = self.reason.lock();
        *reason == Some(Undo::reason(NOT_FOUND.0, NOT_FOUND.1))
    }

    /// Waits until the work of a run that was cancelled is stored and its row is final; false when
    /// that takes longer than `limit`, or it ended in another way meanwhile.
    pub(super) async fn wait_cancelled(self, limit: Duration) -> bool {
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
    pub fn new(publisher: Arc<Publisher>, principal: Option<Arc<str>>, lead: Lead) -> Self {
        let (result, receiver) = watch::channel(None);
        Self {
            handle: RunHandle {
                publisher,
                result: receiver,
                cancel: CancellationToken::new(),
                lead,
                reason: Arc::default(),
                principal,
                is_foreign: false,
                slots: 1,
                is_counted: Arc::default(),
            },
            result,
            since: None,
        }
    }
}

/// Slots that are kept for a new run.
pub(super) struct Reserved {
    /// Its thread.
    pub thread: ThreadId,
    /// On whose behalf it runs.
    pub principal: Option<Arc<str>>,
    /// How many there are.
    pub slots: usize,
}

/// Runs by id: those that wait here, and those that are executed.
#[derive(Default)]
pub(super) struct ActiveRuns {
    /// Created or begun here, and not executed by this process: they wait for a worker, or another
    /// process executes them.
    pub pending: HashMap<RunId, PendingRun>,
    /// Those of them that wait for a worker, in the order in which they began to; and some that wait no longer.
    waiting: VecDeque<RunId>,
    /// Runs that were left to the storage while they waited; those that were cancelled meanwhile may be among them.
    left: usize,
    /// Those of them that the storage was asked about and that have not begun since.
    checked: usize,
    /// Executed by this process.
    running: HashMap<RunId, RunHandle>,
    /// Those that have ended, while their end is not shown yet.
    ending: HashMap<RunId, RunHandle>,
    /// The slots that these take.
    used: usize,
    /// New runs for which slots are kept until it is known whether they begin at once.
    reserved: HashMap<RunId, Reserved>,
    /// The slots that are kept for these.
    reserved_slots: usize,
    /// Slots that are kept for runs being taken from the queue or from dead processes: of whom is not known yet.
    claimed: usize,
    /// Those who wait for this process to execute a run that it does not know of yet.
    awaited: HashMap<(ThreadId, RunId), Vec<oneshot::Sender<RunHandle>>>,
}

impl ActiveRuns {
    pub fn get(&self, run: RunId) -> Option<RunHandle> {
        self.running
            .get(&run)
            .cloned()
            .or_else(|| self.pending.get(&run).map(|pending| pending.handle.clone()))
    }

    /// How many slots are taken, or kept for runs that may begin.
    pub fn taken(&self) -> usize {
        self.used + self.reserved_slots + self.claimed
    }

    /// How many of them are a principal's, or may become so.
    pub fn taken_by(&self, principal: &str) -> usize {
        let running = self.running.values();
        let running = running.map(|run| (run.principal.as_deref(), run.slots));
        let reserved = self.reserved.values();
        let reserved = reserved.map(|one| (one.principal.as_deref(), one.slots));
        let own = running
            .chain(reserved)
            .filter(|(name, _)| *name == Some(principal));
        own.map(|(_, slots)| slots).sum::<usize>() + self.claimed
    }

    /// How many slots each principal has, with those that are kept for its new runs.
    pub fn principals(&self) -> Vec<(Arc<str>, usize)> {
        let running = self.running.values();
        let running = running.map(|run| (&run.principal, run.slots));
        let reserved = self.reserved.values();
        let reserved = reserved.map(|one| (&one.principal, one.slots));
        let mut taken: HashMap<Arc<str>, usize> = HashMap::new();
        for (principal, slots) in running.chain(reserved) {
            *taken
                .entry(principal.clone().unwrap_or_default())
                .or_default() += slots;
        }
        taken.into_iter().collect()
    }

    /// Whether a slot is kept for a new run of a thread.
    pub fn has_reserved(&self, thread: ThreadId) -> bool {
        self.reserved.values().any(|one| one.thread == thread)
    }

    /// Keeps slots for a new run.
    pub fn reserve(&mut self, run: RunId, reserved: Reserved) {
        self.reserved_slots += reserved.slots;
        if let Some(before) = self.reserved.insert(run, reserved) {
            self.reserved_slots -= before.slots;
        }
    }

    /// Gives back the slots of a run that does not begin at once, or that takes them now; whether some were kept.
    pub fn release(&mut self, run: RunId) -> bool {
        let released = self.reserved.remove(&run);
        self.reserved_slots -= released.as_ref().map_or(0, |one| one.slots);
        released.is_some()
    }

    /// Keeps slots for runs that are looked for, of those that are free.
    pub fn claim(&mut self, slots: usize) {
        self.claimed += slots;
    }

    /// Gives them back: the runs that were found have begun.
    pub fn end_claim(&mut self, slots: usize) {
        self.claimed = self.claimed.saturating_sub(slots);
    }

    /// Adds a run to those that wait for a worker.
    pub fn add_waiting(&mut self, run: RunId) {
        self.waiting.push_back(run);
        if self.waiting.len() > 2 * self.pending.len() + SPARE {
            self.waiting.retain(|run| self.pending.contains_key(run));
        }
    }

    /// Takes the run out that has waited longest, or an earlier one that waits no longer.
    pub fn take_oldest_waiting(&mut self) -> Option<RunId> {
        self.waiting.pop_front()
    }

    /// Whether runs wait that were created here, or may do so.
    pub fn has_waiting(&self) -> bool {
        self.left > 0 || !self.pending.is_empty()
    }

    /// Leaves a run that waits to the storage.
    pub fn leave(&mut self, run: RunId) {
        self.left += usize::from(self.pending.remove(&run).is_some());
    }

    /// One of the runs that were left to the storage, or one of another process, has begun.
    pub fn found_left(&mut self) {
        self.left = self.left.saturating_sub(1);
        self.checked = self.checked.saturating_sub(1);
    }

    /// Notes that the storage is asked about the runs that were left to it and have not begun since, as far as this
    /// process knows; false without any.
    pub fn check_left(&mut self) -> bool {
        self.checked = self.left;
        self.left > 0
    }

    /// Forgets the runs that the storage was asked about: others have ended them. Those that were left to it
    /// meanwhile may wait.
    pub fn forget_left(&mut self) {
        self.left = self.left.saturating_sub(std::mem::take(&mut self.checked));
    }

    /// Marks a run as executed here.
    pub fn begin(&mut self, run: RunId, handle: &RunHandle) {
        let key = (handle.publisher.thread(), run);
        for waiter in self.awaited.remove(&key).into_iter().flatten() {
            // Who has gone does not want it.
            let _ = waiter.send(handle.clone());
        }
        self.used += handle.slots;
        if let Some(before) = self.running.insert(run, handle.clone()) {
            self.used -= before.slots;
        }
    }

    /// Marks a run as executed here no longer.
    pub fn end(&mut self, run: RunId) {
        if let Some(handle) = self.running.remove(&run) {
            self.used -= handle.slots;
        }
    }

    /// The runs that this process executes.
    pub fn running(&self) -> &HashMap<RunId, RunHandle> {
        &self.running
    }

    /// How many slots they take.
    pub fn used(&self) -> usize {
        self.used
    }

    /// The run of a thread, once this process knows of it. Whoever asks before the run begins gets it also when
    /// it has ended meanwhile: a temporary run leaves nothing else.
    pub fn awaited(&mut self, thread: ThreadId, run: RunId) -> oneshot::Receiver<RunHandle> {
        let (sender, receiver) = oneshot::channel();
        let known = self.get(run);
        match known.filter(|handle| handle.publisher.thread() == thread) {
            Some(handle) => drop(sender.send(handle)),
            None => self.awaited.entry((thread, run)).or_default().push(sender),
        }
        receiver
    }

    /// Forgets those who wait no longer.
    pub fn forget_gone(&mut self) {
        self.awaited.retain(|_, waiters| {
            waiters.retain(|waiter| !waiter.is_closed());
            !waiters.is_empty()
        });
    }

    /// A run that waits here no longer, since it has ended; until its end [is shown](Self::end_is_shown) it is one of its
    /// thread.
    pub fn take_ended(&mut self, run: RunId) -> Option<PendingRun> {
        let pending = self.pending.remove(&run)?;
        self.ending.insert(run, pending.handle.clone());
        Some(pending)
    }

    /// The end of a run was shown to those who watch its thread.
    pub fn end_is_shown(&mut self, run: RunId) {
        self.ending.remove(&run);
    }

    /// All runs of a thread.
    pub fn of_thread(&self, thread: ThreadId) -> Vec<RunHandle> {
        let pending = self.pending.values().map(|pending| &pending.handle);
        let all = self.running.values().chain(pending);
        let all = all.chain(self.ending.values());
        all.filter(|handle| handle.publisher.thread() == thread)
            .cloned()
            .collect()
    }

    /// The runs of a thread that were cancelled and whose end is not shown yet.
    pub fn cancelled_of(&self, thread: ThreadId) -> Vec<RunHandle> {
        let mut all = self.of_thread(thread);
        all.retain(|handle| handle.cancel.is_cancelled());
        all
    }

    /// The threads of runs, as far as they are among these.
    pub fn threads(&self, wanted: impl Fn(&ThreadId) -> bool) -> Vec<ThreadId> {
        let pending = self.pending.values().map(|pending| &pending.handle);
        let all = self.running.values().chain(pending);
        let threads = all.map(|handle| handle.publisher.thread());
        threads.filter(wanted).collect()
    }

    /// The runs of these threads that wait here, and whose rows are written.
    pub fn waiting_on(&self, threads: &HashSet<ThreadId>) -> Vec<(ThreadId, RunId)> {
        let waiting = self.pending.iter().filter(|(_, one)| one.since.is_some());
        let waiting = waiting.map(|(run, one)| (one.handle.publisher.thread(), *run));
        waiting
            .filter(|(thread, _)| threads.contains(thread))
            .collect()
    }

    /// Whether a run has no row yet, since it is being created at this moment.
    pub fn is_being_created(&self, run: RunId) -> bool {
        let pending = self.pending.get(&run);
        pending.is_some_and(|pending| pending.since.is_none())
    }

    /// Whether a run that was created here waits for a slot of the thread, or may do so.
    pub fn may_wait_on(&self, thread: ThreadId) -> bool {
        let mut pending = self.pending.values();
        self.left > 0 || pending.any(|pending| pending.handle.publisher.thread() == thread)
    }
}

/// Threads with runs of this process on which another one did something.
#[derive(Default)]
pub(super) struct ChangedElsewhere {
    threads: Mutex<HashSet<ThreadId>>,
    wake: Notify,
}

impl ChangedElsewhere {
    /// Adds threads.
    pub fn add(&self, threads: Vec<ThreadId>) {
        self.threads.lock().extend(threads);
        self.wake.notify_one();
    }

    /// The threads that were added since the last call, once there may be some.
    pub async fn take(&self) -> HashSet<ThreadId> {
        self.wake.notified().await;
        std::mem::take(&mut *self.threads.lock())
    }
}

#[cfg(test)]
mod tests;
