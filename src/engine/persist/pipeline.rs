//! The writes of a run on their way to the storage: one transaction under way, and what waits to
//! share the next one.

use std::{
    collections::VecDeque, fmt, mem, panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration,
};

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::ahead_memory::AheadMemory;
use crate::{
    checkpoint::{Commit, Error, Flush, Saver},
    engine::barrier::Barrier,
    fail_point, trace,
};

/// How long the first supersteps of a run wait for others. Whoever waits for them ends it.
const GATHER_FIRST: Duration = Duration::from_millis(2);

/// How long supersteps that came after a transaction had begun wait for others, counted from that moment: on a fast disk
/// each superstep would have a transaction of its own. Whoever waits for them ends it, and so do they once they are half
/// of what may be ahead, since the run goes on while these become durable. What shares no transaction, such as results of
/// tasks, ends it too.
const GATHER: Duration = Duration::from_millis(10);

/// They wait for at most this part of the age at which the run would wait for them.
const GATHER_SHARE: u32 = 5;

/// How far a run in `Async` durability may be ahead of what is durable: what a crash repeats at most,
/// besides the superstep that was running. At one of these limits the run waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunAhead {
    /// Supersteps that have ended and are not durable. With 1 a superstep is written alone, while the
    /// next one runs.
    pub supersteps: usize,
    /// Bytes of their rows; a superstep that has more goes alone.
    pub bytes: usize,
    /// Time since the oldest of them ended.
    pub age: Duration,
}

impl Default for RunAhead {
    fn default() -> Self {
        Self {
            supersteps: 16,
            bytes: 1 << 20,
            age: Duration::from_millis(50),
        }
    }
}

/// One write.
pub enum Write {
    /// A superstep.
    Commit(Box<Commit>),
    /// Results of tasks, ahead of their superstep's end.
    Flush(Box<Flush>),
}

impl Write {
    /// Whether other supersteps may share its transaction: of all but a flush, and the first of a branch.
    fn may_share(&self) -> bool {
        match self {
            Self::Commit(commit) => commit.open.is_none(),
            Self::Flush(_) => false,
        }
    }
}

/// A write that is not durable yet.
struct Entry {
    write: Write,
    bytes: usize,
    since: Instant,
    /// Ends with the entry.
    span: Span,
    /// What is shown once it is durable.
    barriers: Vec<Barrier>,
}

/// The writes of one run, in their order.
pub struct Pipeline {
    saver: Arc<dyn Saver>,
    limits: RunAhead,
    /// What all runs of the process share. The bytes of the state are in it.
    memory: Arc<AheadMemory>,
    /// Stops the run when another writer took over.
    fenced: CancellationToken,
    state: Mutex<State>,
    /// A transaction has ended.
    ended: Notify,
    /// Somebody waits for what is gathered.
    wanted: Notify,
}

#[derive(Default)]
struct State {
    /// What is not under way yet.
    waiting: VecDeque<Entry>,
    /// Of everything that was ever added.
    added: usize,
    /// Of everything that is not durable.
    count: usize,
    bytes: usize,
    /// Since when the oldest of what is under way is there.
    under_way: Option<Instant>,
    /// A task takes what waits.
    is_served: bool,
    /// What waits stays for whoever ends the run, whoever else waits for it.
    is_ending: bool,
    /// What waits stays until it is known whether the run ends with it, or somebody waits for it.
    is_deferred: bool,
    /// The first failure: nothing is written after it.
    failed: Option<Error>,
}

impl State {
    fn result(&self) -> Result<(), Error> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Whether what is not under way waits for others no longer: it is half of what may be ahead, or something of it goes
    /// alone.
    fn has_gathered(&self, limits: &RunAhead) -> bool {
        let bytes = || -> usize { self.waiting.iter().map(|entry| entry.bytes).sum() };
        self.waiting.len() >= limits.supersteps / 2
            || bytes() >= limits.bytes / 2
            || self.waiting.iter().any(|one| !one.write.may_share())
    }

    /// Whether a superstep of so many bytes may be added: always when nothing waits to become durable,
    /// otherwise within every limit.
    fn has_room(&self, limits: &RunAhead, bytes: usize) -> bool {
        let oldest = self.waiting.front().map(|entry| entry.since);
        let Some(oldest) = self.under_way.or(oldest) else {
            return true;
        };
        self.count < limits.supersteps
            && self.bytes.saturating_add(bytes) <= limits.bytes
            && oldest.elapsed() < limits.age
    }

    /// These are not written any more.
    fn forget(&mut self, entries: VecDeque<Entry>, memory: &AheadMemory) {
        let bytes = entries.iter().map(|entry| entry.bytes).sum();
        self.bytes -= bytes;
        memory.release(bytes);
        let barriers = entries.into_iter().flat_map(|entry| entry.barriers);
        barriers.for_each(Barrier::keep_up);
    }

    /// What goes in the next transaction: a flush alone, a superstep that opens a branch alone, else
    /// all supersteps that wait.
    fn take(&mut self) -> Vec<Entry> {
        if self.is_ending || self.is_deferred {
            self.is_served = false;
            return vec![];
        }
        let waiting = self.waiting.iter();
        let shared = waiting.take_while(|one| one.write.may_share()).count();
        let count = shared.max(1).min(self.waiting.len());
        let batch: Vec<_> = self.waiting.drain(..count).collect();
        self.under_way = batch.first().map(|entry| entry.since);
        self.is_served = !batch.is_empty();
        batch
    }
}

impl Pipeline {
    /// An empty one.
    pub fn new(
        saver: Arc<dyn Saver>,
        limits: RunAhead,
        memory: Arc<AheadMemory>,
        fenced: CancellationToken,
    ) -> Self {
        Self {
            saver,
            limits,
            memory,
            fenced,
            state: Mutex::default(),
            ended: Notify::new(),
            wanted: Notify::new(),
        }
    }

    /// The storage.
    pub fn saver(&self) -> &Arc<dyn Saver> {
        &self.saver
    }

    /// Waits until a superstep of so many bytes may be added.
    ///
    /// # Errors
    /// A write has failed.
    pub async fn room(self: &Arc<Self>, bytes: usize) -> Result<(), Error> {
        let has_room = |state: &State| {
            state.count == 0 || state.has_room(&self.limits, bytes) && self.memory.has_room(bytes)
        };
        self.wait_until(has_room).await
    }

    /// Whether a write has failed.
    pub fn has_failed(&self) -> bool {
        self.state.lock().failed.is_some()
    }

    /// Waits until everything is durable.
    ///
    /// # Errors
    /// A write has failed.
    pub async fn drained(self: &Arc<Self>) -> Result<(), Error> {
        self.wait_until(|state| state.count == 0).await
    }

    /// Waits until everything is durable that was added by now, whatever is added meanwhile.
    ///
    /// # Errors
    /// A write has failed.
    pub async fn stored_so_far(self: &Arc<Self>) -> Result<(), Error> {
        let added = self.state.lock().added;
        self.wait_until(|state| state.added - state.count >= added)
            .await
    }

    /// Keeps what is added from now on for [`take_rest`](Self::take_rest).
    pub fn keep_rest(&self) {
        self.state.lock().is_ending = true;
    }

    /// The supersteps that are not durable once nothing is under way any more, if only supersteps are
    /// left: to be written with the end of the run.
    ///
    /// # Errors
    /// A write has failed.
    pub async fn take_rest(self: &Arc<Self>) -> Result<Option<Rest>, Error> {
        self.keep_rest();
        self.wait_until(|state| state.under_way.is_none()).await?;
        {
            let mut state = self.state.lock();
            let may_share = state.waiting.iter().all(|one| one.write.may_share());
            if may_share && !state.waiting.is_empty() {
                let entries = mem::take(&mut state.waiting);
                let pipeline = self.clone();
                return Ok(Some(Rest { pipeline, entries }));
            }
        }
        self.release();
        self.drained().await.map(|()| None)
    }

    /// Writes what waits, also what was kept.
    pub fn release(self: &Arc<Self>) {
        self.go_on(VecDeque::new());
    }

    /// Writes `first` and then what waits.
    fn go_on(self: &Arc<Self>, mut first: VecDeque<Entry>) {
        let mut state = self.state.lock();
        (state.is_ending, state.is_deferred) = (false, false);
        first.append(&mut state.waiting);
        state.waiting = first;
        if !state.waiting.is_empty() {
            self.wanted.notify_one();
            if !mem::replace(&mut state.is_served, true) {
                tokio::spawn(self.clone().serve());
            }
        }
    }

    /// Keeps what waits, and what is added, until somebody waits for it or takes it as the [rest](Self::take_rest).
    pub fn defer(&self) {
        self.state.lock().is_deferred = true;
    }

    /// [Defers](Self::defer) the first supersteps of a run for a moment: of one that ends meanwhile all is written in one
    /// transaction with its end, and of others more supersteps share the first transaction. Not where each superstep has
    /// a transaction of its own.
    pub fn defer_first(self: &Arc<Self>) {
        if self.limits.supersteps == 1 {
            return;
        }
        self.defer();
        let pipeline = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(GATHER_FIRST).await;
            pipeline.let_go();
        });
    }

    /// Writes what is deferred.
    fn let_go(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let waits =
            mem::take(&mut state.is_deferred) && !state.is_ending && !state.waiting.is_empty();
        if waits && !mem::replace(&mut state.is_served, true) {
            tokio::spawn(self.clone().serve());
        }
    }

    /// Waits, and lets go of what is deferred meanwhile.
    async fn wait_until(self: &Arc<Self>, is_ready: impl Fn(&State) -> bool) -> Result<(), Error> {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            {
                let state = self.state.lock();
                state.result()?;
                if is_ready(&state) {
                    return Ok(());
                }
            }
            self.let_go();
            self.wanted.notify_one();
            ended.await;
        }
    }

    /// Adds a write, whose barriers are passed when it is durable. After a failure it is dropped: the next call that waits
    /// says why.
    pub fn push(self: &Arc<Self>, write: Write, barriers: Vec<Barrier>) {
        let bytes = match &write {
            Write::Commit(commit) => commit.bytes(),
            Write::Flush(flush) => flush.bytes(),
        };
        let mut state = self.state.lock();
        if state.failed.is_some() {
            barriers.into_iter().for_each(Barrier::keep_up);
            return;
        }
        state.added += 1;
        state.count += 1;
        state.bytes += bytes;
        self.memory.take(bytes);
        state.waiting.push_back(Entry {
            write,
            bytes,
            since: Instant::now(),
            span: trace::commit(),
            barriers,
        });
        if state.has_gathered(&self.limits) {
            self.wanted.notify_one();
        }
        if !state.is_deferred && !mem::replace(&mut state.is_served, true) {
            tokio::spawn(self.clone().serve());
        }
    }

    /// Writes what waits until nothing is left.
    async fn serve(self: Arc<Self>) {
        loop {
            let next = Instant::now() + GATHER.min(self.limits.age / GATHER_SHARE);
            let batch = self.state.lock().take();
            let Some(first) = batch.first() else {
                return;
            };
            let span = first.span.clone();
            let (count, bytes) = (batch.len(), batch.iter().map(|one| one.bytes).sum());
            let (writes, (spans, barriers)): (Vec<_>, (Vec<_>, Vec<_>)) = batch
                .into_iter()
                .map(|one| (one.write, (one.span, one.barriers)))
                .unzip();
            let result = AssertUnwindSafe(self.write(writes).instrument(span))
                .catch_unwind()
                .await
                .unwrap_or_else(|_| Err(Error::Database("a write has panicked".to_owned())));
            if let Err(error) = &result {
                spans.iter().for_each(|span| trace::failed(span, error));
            }
            drop(spans);
            // Whoever waited for this transaction alone does not want the next one; who waits on says so again.
            let _ = self.wanted.notified().now_or_never();
            let is_stored = result.is_ok();
            self.end(count, bytes, result);
            if is_stored {
                drop(barriers);
            } else {
                barriers.into_iter().flatten().for_each(Barrier::keep_up);
            }
            if self.limits.supersteps > 1 && !self.state.lock().has_gathered(&self.limits) {
                let _ = tokio::time::timeout_at(next, self.wanted.notified()).await;
            }
        }
    }

    async fn write(&self, writes: Vec<Write>) -> Result<(), Error> {
        let mut commits = Vec::with_capacity(writes.len());
        for write in writes {
            match write {
                Write::Commit(commit) => {
                    fail_point!(async "engine::before_commit");
                    commits.push(*commit);
                }
                Write::Flush(flush) => {
                    fail_point!(async "engine::before_flush");
                    return self.saver.flush(*flush).await;
                }
            }
        }
        let count = commits.len();
        let results = self.saver.commit(commits).await;
        if results.len() != count {
            return Err(Error::Database("a commit had no answer".to_owned()));
        }
        for result in results {
            fail_point!(async "engine::after_commit");
            result?;
        }
        Ok(())
    }

    fn end(&self, count: usize, bytes: usize, result: Result<(), Error>) {
        let mut state = self.state.lock();
        state.under_way = None;
        state.count -= count;
        state.bytes -= bytes;
        self.memory.release(bytes);
        if let Err(error) = result {
            // Nobody waits for what the nodes do from here on.
            if matches!(error, Error::Fenced) {
                self.fenced.cancel();
            }
            state.failed = Some(error);
            let dropped = mem::take(&mut state.waiting);
            state.forget(dropped, &self.memory);
        }
        drop(state);
        self.ended.notify_waiters();
    }
}

impl Drop for Pipeline {
    /// What was never written is gone with it.
    fn drop(&mut self) {
        self.memory.release(self.state.get_mut().bytes);
    }
}

/// The last supersteps of a run that has come to its end, not durable yet. Dropped, they are never written.
pub struct Rest {
    pipeline: Arc<Pipeline>,
    entries: VecDeque<Entry>,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let supersteps = self.entries.len();
        f.debug_struct("Rest")
            .field("supersteps", &supersteps)
            .finish_non_exhaustive()
    }
}

impl Rest {
    /// What is to be written, in order.
    pub fn commits(&self) -> Vec<Commit> {
        let writes = self.entries.iter().map(|entry| &entry.write);
        let commits = writes.filter_map(|write| match write {
            Write::Commit(commit) => Some((**commit).clone()),
            Write::Flush(_) => None,
        });
        commits.collect()
    }

    /// Writes them by themselves.
    ///
    /// # Errors
    /// A write has failed, or another writer took over.
    pub async fn write(mut self) -> Result<(), Error> {
        let pipeline = self.pipeline.clone();
        pipeline.go_on(mem::take(&mut self.entries));
        pipeline.drained().await
    }
}

impl Drop for Rest {
    /// The run is over: what a node still wants to write of it comes too late.
    fn drop(&mut self) {
        if self.entries.is_empty() {
            return;
        }
        let mut state = self.pipeline.state.lock();
        state.failed = Some(Error::Fenced);
        state.forget(mem::take(&mut self.entries), &self.pipeline.memory);
        drop(state);
        self.pipeline.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
