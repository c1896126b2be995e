//! Runs that a process takes: those that wait in the queue, and those that dead processes left.

use std::sync::Arc;

use uuid::Uuid;

use super::Run;
use crate::{
    checkpoint::{Error, Slot, codec},
    id::{RunId, ThreadId, WorkerId},
};

/// How many slots runs take by the memory of their requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSlots {
    /// For so many bytes a run takes one slot.
    pub bytes: usize,
    /// No run takes more.
    pub most: usize,
}

impl Default for RequestSlots {
    /// One for each, however large.
    fn default() -> Self {
        Self {
            bytes: usize::MAX,
            most: 1,
        }
    }
}

impl RequestSlots {
    /// The slots of a run whose request takes so much memory.
    pub fn of(&self, memory: usize) -> usize {
        memory
            .div_ceil(self.bytes.max(1))
            .clamp(1, self.most.max(1))
    }

    /// The slots of a run whose request is stored under this tag in so many bytes; at least those that it
    /// takes once its request is read.
    pub fn of_stored(&self, tag: &str, bytes: usize) -> usize {
        self.of(codec::memory(codec::weight(tag, bytes), bytes))
    }
}

/// A claim of runs from the queue.
#[derive(Clone, Debug)]
pub struct QueueClaim {
    /// The process that is to execute them.
    pub worker: WorkerId,
    /// The slots that there are for them: runs are taken in their order until they take as many. The last one may
    /// take more, so that no run waits for ever behind those that take fewer.
    pub limit: usize,
    /// How many slots a run takes.
    pub slots: RequestSlots,
    /// How many slots the runs of each principal take: who has fewer comes first.
    pub busy: Vec<(Arc<str>, usize)>,
    /// A principal whose runs take so many slots gets no more.
    pub most: usize,
    /// Threads on which runs may have stopped waiting for others of their branch.
    pub freed: Vec<ThreadId>,
    /// Other runs that are behind others of their branch, and may be first now without anybody having told.
    pub search: Option<Slice>,
}

/// Some of the runs that are behind others of their branch, in the order of the ids of their threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The first thread that has some of them, or the first one after it.
    pub from: ThreadId,
    /// How many there are; those of the last one's thread all belong to them.
    pub runs: usize,
}

impl Slice {
    /// The first ones.
    pub fn first(runs: usize) -> Self {
        Self {
            from: ThreadId(Uuid::nil()),
            runs,
        }
    }

    /// Where those after the ones of these threads begin, `None` after the last ones: fewer were found than were
    /// looked for. There is a thread for each run.
    pub fn next(&self, found: &[ThreadId]) -> Option<ThreadId> {
        let last = found.last().filter(|_| found.len() >= self.runs)?;
        let next = last.0.as_u128().checked_add(1)?;
        Some(ThreadId(Uuid::from_u128(next)))
    }
}

/// What came of a search among the runs that are behind others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Searched {
    /// Some of the slice were first, and wait for a slot alone now.
    pub advanced: bool,
    /// Where the slice after it begins; `None` after the last one.
    pub next: Option<ThreadId>,
}

/// Runs that were claimed.
#[derive(Clone, Debug, Default)]
pub struct ClaimedRuns {
    /// The runs, in their order.
    pub runs: Vec<ClaimedRun>,
    /// They take all slots of the claim, so more may wait.
    pub more: bool,
    /// What came of the search that the claim asked for.
    pub searched: Searched,
}

/// A run that was taken from the queue.
#[derive(Clone, Debug)]
pub struct ClaimedRun {
    /// The run, `running`.
    pub run: Run,
    /// Its slot.
    pub slot: Slot,
    /// Its principal may still write to the thread. Else it is to end without having begun.
    pub is_permitted: bool,
}

/// A run that does not move ends with an error when so many processes have died over it; to hand it over is no death.
pub const DEATHS: i32 = 3;

/// What dead processes have left.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// Runs that are ours now.
    pub taken: Vec<ClaimedRun>,
    /// Runs that were lost [`DEATHS`] times: they ended with an error, and threads that go with
    /// them are gone.
    pub ended: Vec<RunId>,
    /// The threads of those that ended: others may have waited for them.
    pub freed: Vec<ThreadId>,
    /// Runs that could be neither taken over nor ended, and why: nothing of them was changed.
    pub failed: Vec<(RunId, Error)>,
}

/// What a worker may take over.
#[derive(Clone, Debug)]
pub struct Recover {
    /// The worker.
    pub worker: WorkerId,
    /// The runs it executes. Other runs of this worker were lost with the response to a claim;
    /// and one of these that it has lost in the meantime it takes over only after it has learned of
    /// that.
    pub busy: Vec<RunId>,
    /// The slots that there are for them, as [`QueueClaim::limit`].
    pub limit: usize,
    /// How many slots a run takes.
    pub slots: RequestSlots,
    /// Runs that could not be recovered just now: those behind them come first.
    pub failed: Vec<RunId>,
}
