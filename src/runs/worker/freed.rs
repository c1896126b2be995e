//! Where runs that are behind others of their branch may be first now: on threads of which this process was told, and
//! on those that a search finds.

use std::collections::HashSet;

use crate::{
    id::ThreadId,
    runs::{Searched, Slice},
};

/// Most threads of which a claim is told, and most runs among which it searches, besides others of the last one's thread. A
/// claim costs as much as the runs that are behind others on these threads, however many there are on others.
const AT_ONCE: usize = 1000;

/// Threads of which this process was told since the last claim, and how far the search has come.
///
/// Nobody is told where a process died before it could tell, or where what it told was lost; so all runs that are behind
/// others are searched through, one slice of them with each poll, round after round. What has become free is found after
/// as many polls as there are slices, and at most as many more as pass before a round begins. A run stays in its position
/// of the order until it is first; one whose row somebody else had locked is found by the next round.
#[derive(Default)]
pub(in crate::runs) struct Freed {
    threads: HashSet<ThreadId>,
    /// Threads on which runs became free to start by what this process did, so that no other one knows.
    unpublished: HashSet<ThreadId>,
    /// Where the next slice begins; `None` for the first one.
    next: Option<ThreadId>,
    /// The next claim searches a slice.
    is_due: bool,
    /// The round goes on without polls in between.
    is_urgent: bool,
}

/// What a claim is told of, and where it searches.
#[derive(Clone, Default)]
pub(in crate::runs) struct Candidates {
    pub threads: Vec<ThreadId>,
    pub slice: Option<Slice>,
}

impl Freed {
    /// Runs may have become free to start on a thread.
    pub fn add(&mut self, thread: ThreadId) {
        self.threads.insert(thread);
    }

    /// Runs became free to start on a thread by what this process did.
    pub fn add_unpublished(&mut self, thread: ThreadId) {
        self.unpublished.insert(thread);
    }

    /// Takes the threads of which other processes are to be told.
    pub fn take_unpublished(&mut self) -> HashSet<ThreadId> {
        std::mem::take(&mut self.unpublished)
    }

    /// Lets a round go on, or begin if one `may_begin`, with the next claim.
    pub fn poll(&mut self, may_begin: bool) {
        self.is_due |= may_begin || self.next.is_some();
    }

    /// Lets all slices be searched as fast as claims can be made.
    pub fn search_all(&mut self) {
        (self.is_due, self.is_urgent) = (true, true);
    }

    /// Takes what the next claim is told of.
    pub fn take(&mut self) -> Candidates {
        let threads: Vec<ThreadId> = self.threads.iter().take(AT_ONCE).copied().collect();
        for thread in &threads {
            self.threads.remove(thread);
        }
        if self.threads.is_empty() {
            self.unpublished.clear();
        }
        let slice = std::mem::take(&mut self.is_due).then(|| Slice {
            from: self.next.unwrap_or(Slice::first(0).from),
            runs: AT_ONCE,
        });
        Candidates { threads, slice }
    }

    /// Puts back what a claim was told of that has failed.
    pub fn put_back(&mut self, candidates: Candidates) {
        self.threads.extend(candidates.threads);
        self.is_due |= candidates.slice.is_some();
    }

    /// Notes what the search of a claim has found; whether another claim is to follow at once. Where one slice has runs
    /// that nobody was told of, the next one may have them, too.
    pub fn advance(&mut self, candidates: &Candidates, found: Searched) -> bool {
        if candidates.slice.is_some() {
            self.next = found.next;
            self.is_urgent &= found.next.is_some();
            self.is_due |= found.next.is_some() && (found.advanced || self.is_urgent);
        }
        self.is_due || candidates.threads.len() == AT_ONCE
    }
}

#[cfg(test)]
mod tests;
