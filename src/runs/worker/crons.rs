//! Creating the runs of crons that are due.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use parking_lot::Mutex;
use rand::seq::SliceRandom;
use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    crons::{CronRow, store::DueCron},
    id::{CronId, ThreadId},
    runs::{Error, Service, request},
    time::Timestamp,
};

/// How many due crons are read at once, without what their runs request.
const WINDOW: usize = 4096;
/// How many are served before those that have become due meanwhile are read too.
const BATCH: usize = 64;
/// How many of them are served at once: each takes a connection that operations on threads use too.
const AT_ONCE: usize = 2;
/// How long a cron that could not be served waits, and those of its thread: the first time, and at most.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Reads what the runs of a cron request, or says why it cannot be carried out.
pub type ReadCron = fn(&CronRow) -> Result<request::Run, String>;

impl Service {
    /// Lets this process create the runs of crons that are due, until the server drains.
    pub fn start_crons(&self, read: ReadCron) {
        tokio::spawn(self.clone().fire_crons(read));
    }

    async fn fire_crons(self, read: ReadCron) {
        let mut poll = tokio::time::interval(self.inner.options.poll);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let failing = Mutex::new(Failing::default());
        loop {
            tokio::select! {
                () = self.shared.drain.cancelled() => return,
                _ = poll.tick() => {}
            }
            failing.lock().forget_old(Instant::now());
            match self.fire_due(read, &failing).await {
                Ok(()) | Err(Error::Draining) => {}
                Err(error) => tracing::warn!(%error, "crons that are due could not be served"),
            }
        }
    }

    /// Serves each due time once, batch after batch. Who could not be served keeps nobody from being
    /// served, in this round or the next ones.
    async fn fire_due(&self, read: ReadCron, failing: &Mutex<Failing>) -> Result<(), Error> {
        let mut served: HashSet<(CronId, Timestamp)> = HashSet::new();
        let mut after = None;
        loop {
            if self.shared.drain.is_cancelled() {
                return Err(Error::Draining);
            }
            let crons = &self.shared.parts.crons;
            let (now, due) = crons.due(after, WINDOW).await?;
            let last = (due.len() == WINDOW).then(|| due.last().map(|last| (last.due, last.id)));
            let mut open: Vec<DueCron> = due;
            let at = Instant::now();
            {
                let failing = failing.lock();
                open.retain(|due| !served.contains(&(due.id, due.due)) && !failing.waits(due, at));
            }
            if open.is_empty() {
                // Behind a window of those that wait there may be others.
                let Some(last) = last else { return Ok(()) };
                after = last;
                continue;
            }
            // Other processes have read the same ones: each begins with others.
            open.shuffle(&mut rand::rng());
            let batch = in_turns(open, BATCH);
            served.extend(batch.iter().map(|due| (due.id, due.due)));
            futures::stream::iter(batch)
                .for_each_concurrent(AT_ONCE, |due| self.fire_one(due, now, read, failing))
                .await;
        }
    }

    async fn fire_one(
        &self,
        due: DueCron,
        now: Timestamp,
        read: ReadCron,
        failing: &Mutex<Failing>,
    ) {
        // Another cron of its thread may have failed since it was chosen.
        if failing.lock().waits(&due, Instant::now()) || self.shared.drain.is_cancelled() {
            return;
        }
        let fired = async {
            match self.shared.parts.crons.row_of(due.id).await? {
                Some(cron) => self.fire(&cron, now, read(&cron)).await.map(drop),
                None => Ok(()),
            }
        };
        match fired.await {
            Ok(()) => failing.lock().forget(&due),
            Err(Error::Draining) => {}
            Err(error) => {
                let pause = failing.lock().note(&due, Instant::now());
                self.inner.metrics.count_firing("failed");
                tracing::warn!(
                    cron = %due.id, %error, pause = pause.as_secs(),
                    "a cron that is due could not be served, and is tried again after a pause"
                );
            }
        }
    }
}

/// The first of those that are due, one of each owner after the other.
fn in_turns(due: Vec<DueCron>, most: usize) -> Vec<DueCron> {
    let mut indexes: HashMap<Arc<str>, usize> = HashMap::new();
    let mut lines: Vec<VecDeque<DueCron>> = vec![];
    for due in due {
        let index = *indexes.entry(due.owner.clone()).or_insert_with(|| {
            lines.push(VecDeque::new());
            lines.len() - 1
        });
        lines[index].push_back(due);
    }
    let mut chosen = vec![];
    while chosen.len() < most && !lines.is_empty() {
        lines.retain_mut(|line| {
            if chosen.len() < most {
                chosen.extend(line.pop_front());
            }
            !line.is_empty()
        });
    }
    chosen
}

/// What could not be served, and until when it is left alone.
#[derive(Debug, Default)]
struct Failing {
    crons: HashMap<CronId, Pause>,
    /// A thread whose lock could not be had is tried for one of its crons at a time.
    threads: HashMap<ThreadId, Pause>,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    length: Duration,
}

impl Pause {
    /// The next one, twice as long.
    fn after(last: Option<&Self>, now: Instant) -> Self {
        let length = last.map_or(PAUSE, |last| (last.length * 2).min(PAUSE_MAX));
        Self {
            until: now + length,
            length,
        }
    }
}

impl Failing {
    fn waits(&self, due: &DueCron, now: Instant) -> bool {
        let of_thread = due.thread.and_then(|thread| self.threads.get(&thread));
        let mut pauses = self.crons.get(&due.id).into_iter().chain(of_thread);
        pauses.any(|pause| now < pause.until)
    }

    /// Notes a failure; how long it waits now.
    fn note(&mut self, due: &DueCron, now: Instant) -> Duration {
        let pause = Pause::after(self.crons.get(&due.id), now);
        self.crons.insert(due.id, pause);
        if let Some(thread) = due.thread {
            let pause = Pause::after(self.threads.get(&thread), now);
            self.threads.insert(thread, pause);
        }
        pause.length
    }

    fn forget(&mut self, due: &DueCron) {
        self.crons.remove(&due.id);
        if let Some(thread) = due.thread {
            self.threads.remove(&thread);
        }
    }

    /// Forgets those that were not tried again for long, such as deleted ones.
    fn forget_old(&mut self, now: Instant) {
        self.crons.retain(|_, pause| now < pause.until + PAUSE_MAX);
        self.threads
            .retain(|_, pause| now < pause.until + PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(owner: &str, thread: Option<ThreadId>) -> DueCron {
        DueCron {
            id: CronId::mint(),
            owner: owner.into(),
            thread,
            due: Timestamp(0),
        }
    }

    #[test]
    fn owners_take_turns_however_many_crons_one_has() {
        let mut all: Vec<_> = (0..100).map(|_| due("ann", None)).collect();
        all.extend([due("bob", None), due("bob", None), due("cid", None)]);
        let owners = |chosen: Vec<DueCron>| -> Vec<String> {
            chosen.iter().map(|due| due.owner.to_string()).collect()
        };
        let chosen = owners(in_turns(all.clone(), 6));
        assert_eq!(chosen, ["ann", "bob", "cid", "ann", "bob", "ann"]);
        assert_eq!(in_turns(all, 1000).len(), 103);
    }

    #[test]
    fn what_fails_waits_longer_each_time_with_the_others_of_its_thread() {
        let mut failing = Failing::default();
        let thread = ThreadId::mint();
        let (one, other) = (due("ann", Some(thread)), due("ann", Some(thread)));
        let (elsewhere, start) = (due("ann", None), Instant::now());
        assert_eq!(failing.note(&one, start), PAUSE);
        assert!(failing.waits(&one, start) && failing.waits(&other, start));
        assert!(!failing.waits(&elsewhere, start));
        let later = start + PAUSE;
        assert!(!failing.waits(&one, later) && !failing.waits(&other, later));
        assert_eq!(failing.note(&other, later), PAUSE);
        assert!(
            failing.waits(&one, later + PAUSE),
            "the thread failed twice"
        );
        for _ in 0..10 {
            failing.note(&one, later);
        }
        assert_eq!(failing.note(&one, later), PAUSE_MAX);
        failing.forget(&one);
        assert!(!failing.waits(&one, later));
        failing.forget_old(later + PAUSE_MAX * 3);
        assert!(failing.crons.is_empty() && failing.threads.is_empty());
    }
}
