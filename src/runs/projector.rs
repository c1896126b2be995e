//! Keeps the tables that are derived from events up to date: soon after this process writes
//! events, each second for those of others, and at once for a reader that waits.

use std::{collections::HashSet, time::Duration};

use tokio::time::{Instant, MissedTickBehavior};

use super::{Error, Service};
use crate::{
    id::ThreadId,
    tree::{
        self,
        projection::{Progress, Projection, Step, rows},
    },
};

/// Pause after a round, in which news gathers.
const GATHER: Duration = Duration::from_millis(200);
/// Threads in one round.
const ROUND: usize = 64;
/// Events of a thread in one step.
const EVENTS: usize = 500;
/// How often one slice of all threads is looked at for events that others wrote.
const POLL: Duration = Duration::from_secs(1);
/// Threads in such a slice.
const SLICE: usize = 1000;
/// How long a reader waits for the tables.
const PATIENCE: Duration = Duration::from_secs(2);

impl Service {
    pub(super) async fn look_after_projections(self) {
        tokio::join!(self.follow_news(), self.follow_others());
    }

    /// What this process wrote.
    async fn follow_news(&self) {
        let inner = &self.inner;
        loop {
            let fresh = tokio::select! {
                () = inner.drain.cancelled() => return,
                fresh = inner.news.fresh() => fresh,
            };
            let fresh: Vec<ThreadId> = fresh.into_iter().collect();
            for round in fresh.chunks(ROUND) {
                self.project_or_warn(round).await;
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// What others wrote, or left behind when they died: a slice of all threads at a time.
    async fn follow_others(&self) {
        let inner = &self.inner;
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut after = None;
        loop {
            tokio::select! {
                () = inner.drain.cancelled() => return,
                () = inner.sweep.notified() => after = None,
                _ = poll.tick() => {}
            }
            match inner.parts.projections.behind(after, SLICE).await {
                Ok((behind, last)) => {
                    for round in behind.chunks(ROUND) {
                        self.project_or_warn(round).await;
                    }
                    if last.is_some() && !behind.is_empty() {
                        // There is work: the rest of it is not put off.
                        poll.reset_immediately();
                    }
                    after = last;
                }
                Err(error) => tracing::warn!(%error, "projections could not be looked at"),
            }
        }
    }

    async fn project_or_warn(&self, threads: &[ThreadId]) {
        if let Err(error) = self.project(threads).await {
            tracing::warn!(%error, "projections could not be brought up to date");
        }
    }

    /// Brings the tables up to date for some threads.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn project(&self, threads: &[ThreadId]) -> Result<(), Error> {
        let projections = &self.inner.parts.projections;
        let mut left: HashSet<ThreadId> = threads.iter().copied().collect();
        while !left.is_empty() {
            let found = projections.progress(left.iter().copied().collect()).await?;
            left.clear();
            let mut steps = Vec::new();
            for progress in found.iter().filter(|progress| !progress.reached(None)) {
                left.insert(progress.thread);
                self.steps(progress, &mut steps).await?;
            }
            if steps.is_empty() {
                return Ok(());
            }
            projections.apply(steps).await?;
        }
        Ok(())
    }

    /// The next step of every table that is behind.
    async fn steps(&self, progress: &Progress, steps: &mut Vec<Step>) -> Result<(), Error> {
        let heads = Projection::Heads;
        let known = progress.head.as_ref().map_or(0, |head| head.number);
        if known != progress.offsets[heads.index()] {
            // Somebody emptied the table without its offsets.
            let projections = &self.inner.parts.projections;
            return Ok(projections
                .reset(Some(heads), Some(progress.thread))
                .await?);
        }
        let mut read = self.inner.parts.tree.reader().await?;
        let Some(thread) = read.thread_row(progress.thread).await? else {
            return Ok(());
        };
        let mut starts: Vec<i64> = progress.offsets.to_vec();
        starts.retain(|start| *start < progress.last);
        starts.sort_unstable();
        starts.dedup();
        for start in starts {
            let events = read
                .events(progress.tree, progress.thread, start, EVENTS)
                .await?;
            let Some(last) = events.last() else { continue };
            let told = self.told(read.as_mut(), &thread, &events).await?;
            for projection in Projection::ALL {
                if progress.offsets[projection.index()] != start {
                    continue;
                }
                let head = progress.head.as_ref();
                steps.push(Step {
                    tree: progress.tree,
                    thread: progress.thread,
                    from: start,
                    to: last.number,
                    rows: rows(projection, head, &events, |event| told.get(&event.number)),
                });
            }
        }
        Ok(())
    }

    /// Waits until the tables know a thread's events up to a number.
    ///
    /// # Errors
    /// 404: no such thread. 503 `projection_behind`: they do not after two seconds. Or the
    /// storage failed.
    pub async fn wait_projected(&self, thread: ThreadId, number: i64) -> Result<(), Error> {
        let limit = Instant::now() + PATIENCE;
        let mut watch = self.inner.news.watch(thread);
        loop {
            self.project(&[thread]).await?;
            let found = self.inner.parts.projections.progress(vec![thread]).await?;
            let Some(progress) = found.first() else {
                return Err(Error::NoThread(thread));
            };
            if progress.reached(Some(number)) {
                return Ok(());
            }
            let next = Instant::now() + POLL;
            tokio::select! {
                () = watch.changed() => {}
                () = tokio::time::sleep_until(next.min(limit)) => {}
            }
            if Instant::now() >= limit {
                let detail = format!(
                    "The lists do not know event {number} of thread {thread} yet. Try again."
                );
                let kind = tree::Kind::Behind;
                return Err(tree::Error::refused(kind, "projection_behind", detail).into());
            }
        }
    }

    /// Forgets derived rows and makes them anew in the background.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn rebuild(
        &self,
        projection: Option<Projection>,
        thread: Option<ThreadId>,
    ) -> Result<(), Error> {
        if let Some(thread) = thread {
            self.thread(thread).await?;
        }
        self.inner
            .parts
            .projections
            .reset(projection, thread)
            .await?;
        match thread {
            Some(thread) => self.inner.news.tell(thread),
            None => self.inner.sweep.notify_one(),
        }
        Ok(())
    }
}
