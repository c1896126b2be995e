//! Brings the tables that are derived from events up to date: soon after this process writes
//! events, each second for those of others, and at once for a reader that waits.

mod batch;
mod failures;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use tokio::time::{Instant, MissedTickBehavior};

use self::failures::Failures;
use super::{Error, Result, Service};
use crate::{
    id::ThreadId,
    runs::shared::memory::ResponseMemory,
    tree::{
        self,
        projection::{Progress, Projection, ProjectionStep},
    },
};

/// Least pause before a round, in which notifications gather: a short run is one round, not one for
/// its beginning and one for its end.
const GATHER: Duration = Duration::from_millis(200);
/// Pause before a round, as a multiple of the duration of the one before: under load the runs have
/// priority, and a reader that needs a certain event in the tables does not wait for a round.
const REST: u32 = 4;
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);
/// Notified threads that are remembered; the poll of all threads finds the others.
const REMEMBERED: usize = 10_000;
/// Threads in one round.
const ROUND: usize = 64;
/// How often one slice of all threads is polled for events that others wrote.
const POLL: Duration = Duration::from_secs(1);
/// Threads in such a slice.
const SLICE: usize = 1000;
/// How long a reader waits for the tables.
const PATIENCE: Duration = Duration::from_secs(2);

impl Service {
    pub(super) async fn derive_tables(self) {
        tokio::join!(self.follow_own_events(), self.follow_other_events());
    }

    /// Derives tables from events that this process wrote.
    async fn follow_own_events(&self) {
        let shared = &self.shared;
        let mut pause = GATHER;
        loop {
            let mut changed = tokio::select! {
                () = shared.drain.cancelled() => return,
                changed = shared.notifier.changed_threads() => changed,
            };
            let gathered = tokio::time::sleep(pause);
            if shared.drain.run_until_cancelled(gathered).await.is_none() {
                return;
            }
            changed.extend(
                shared
                    .notifier
                    .changed_threads()
                    .now_or_never()
                    .unwrap_or_default(),
            );
            let changed: Vec<ThreadId> = changed.into_iter().take(REMEMBERED).collect();
            for (number, round) in changed.chunks(ROUND).enumerate() {
                if number > 0 {
                    tokio::time::sleep(pause).await;
                }
                pause = self.round(round).await;
            }
        }
    }

    /// Derives tables from events that others wrote, also before they died: a slice of all threads
    /// at a time.
    async fn follow_other_events(&self) {
        let shared = &self.shared;
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut after = None;
        loop {
            tokio::select! {
                () = shared.drain.cancelled() => return,
                () = self.rebuild.notified() => after = None,
                _ = poll.tick() => {}
            }
            match shared.parts.projections.behind(after, SLICE).await {
                Ok((behind, last)) => {
                    for round in behind.chunks(ROUND) {
                        let pause = self.round(round).await;
                        tokio::time::sleep(pause).await;
                    }
                    if last.is_some() && !behind.is_empty() {
                        // There is work: the next slice follows at once.
                        poll.reset_immediately();
                    }
                    after = last;
                }
                Err(error) => tracing::warn!(%error, "projections could not be looked at"),
            }
        }
    }

    /// Returns the pause before the next one.
    async fn round(&self, threads: &[ThreadId]) -> Duration {
        let begin = Instant::now();
        match self.derive(threads).await {
            Ok(failures) => {
                for (thread, error) in failures {
                    tracing::warn!(%thread, %error, "what lists show of a thread could not be derived from its events");
                }
            }
            Err(error) => tracing::warn!(%error, "projections could not be brought up to date"),
        }
        LONGEST.min(GATHER.max(begin.elapsed() * REST))
    }

    /// Brings the tables up to date for some threads.
    ///
    /// # Errors
    /// The storage failed, or the events of one of them cannot be read.
    pub async fn project(&self, threads: &[ThreadId]) -> Result<()> {
        let failures = self.derive(threads).await?;
        let first = failures.into_iter().next();
        first.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Brings the tables up to date for some threads; those of which that fails, and why, keep none of the others from it.
    ///
    /// # Errors
    /// The storage failed.
    async fn derive(&self, threads: &[ThreadId]) -> Result<Vec<(ThreadId, Error)>> {
        let projections = &self.shared.parts.projections;
        let mut left: HashSet<ThreadId> = threads.iter().copied().collect();
        let mut failures = Failures::default();
        while !left.is_empty() {
            let found = projections.progress(left.iter().copied().collect()).await?;
            left.clear();
            let mut behind = Vec::new();
            for progress in found.iter().filter(|progress| !progress.reached(None)) {
                match self.has_its_rows(progress).await {
                    Ok(true) => behind.push(progress),
                    Ok(false) => {
                        left.insert(progress.thread);
                    }
                    Err(error) => failures.add(&[progress], error)?,
                }
            }
            let mut steps = Vec::with_capacity(behind.len());
            let read = self.steps(behind, &mut steps, &mut failures).await;
            let was_last = steps.is_empty();
            let last = found
                .iter()
                .map(|progress| (progress.thread, progress.last));
            let last: HashMap<ThreadId, i64> = last.collect();
            let unfinished = steps
                .iter()
                .filter(|step| last.get(&step.thread).is_some_and(|last| step.to < *last));
            left.extend(unfinished.map(|step| step.thread));
            if !was_last {
                projections.apply(steps).await?;
            }
            // What was read of others is not lost with it.
            read?;
            if was_last {
                break;
            }
        }
        Ok(failures.into())
    }

    /// Whether the table has the row that its offset is of; else the thread begins anew.
    async fn has_its_rows(&self, progress: &Progress) -> Result<bool> {
        let heads = Projection::Heads;
        let known = progress.head.as_ref().map_or(0, |head| head.number);
        let is_there = known == progress.offsets[heads.index()];
        if !is_there {
            // Somebody emptied the table without its offsets.
            let projections = &self.shared.parts.projections;
            projections
                .reset(Some(heads), Some(progress.thread))
                .await?;
        }
        Ok(is_there)
    }

    /// Adds the next steps of threads, which are read together. What fails for all of them is read in halves, so that in
    /// the end it fails for those alone of which it is the fault.
    async fn steps(
        &self,
        threads: Vec<&Progress>,
        steps: &mut Vec<ProjectionStep>,
        failures: &mut Failures,
    ) -> Result<()> {
        let mut batches = vec![threads];
        while let Some(mut batch) = batches.pop() {
            let taken = Arc::default();
            let reader = self.read_by_server(&taken);
            match reader.logs(&batch).await {
                Ok(logs) => {
                    for log in logs {
                        let progress = log.progress;
                        match reader.step(log).await {
                            Ok(step) => steps.push(step),
                            Err(error) => failures.add(&[progress], error)?,
                        }
                    }
                }
                Err(error) => {
                    failures.add(&batch, error)?;
                    if batch.len() > 1 {
                        let second = batch.split_off(batch.len() / 2);
                        batches.extend([batch, second]);
                    }
                }
            }
        }
        Ok(())
    }

    /// A service for one read, as long as `taken` is there. No response shows what is read for the tables, and they are
    /// the same whoever waits for them: what is too large for a client is not left out.
    fn read_by_server(&self, taken: &Arc<ResponseMemory>) -> Self {
        Self {
            memory: Some(self.shared.states.read_by_server(taken)),
            ..self.clone()
        }
    }

    /// Waits until the tables are up to date with the requested events of threads.
    ///
    /// # Errors
    /// 503 `projection_behind`: they are not after two seconds. Or the storage failed.
    pub async fn wait_projected(&self, wanted: &[(ThreadId, i64)]) -> Result<()> {
        let limit = Instant::now() + PATIENCE;
        for (thread, number) in wanted {
            let mut watch = self.shared.notifier.watch(*thread);
            while !self.has_projected(*thread, *number, limit).await? {
                if Instant::now() >= limit {
                    return Err(behind(*thread, *number));
                }
                let next = Instant::now() + POLL;
                tokio::select! {
                    () = watch.changed() => {}
                    () = tokio::time::sleep_until(next.min(limit)) => {}
                }
            }
        }
        Ok(())
    }

    async fn has_projected(&self, thread: ThreadId, number: i64, limit: Instant) -> Result<bool> {
        // One of somebody else is as one that is not there.
        if let Some(principal) = self.access.principal() {
            let tree = &self.shared.parts.tree;
            if tree
                .level_on_thread(thread, principal.clone())
                .await?
                .is_none()
            {
                return Ok(false);
            }
        }
        if self.has_reached(thread, number).await? {
            return Ok(true);
        }
        // Two of those who wait derive at a time.
        let turn = tokio::time::timeout_at(limit, self.shared.deriving.acquire());
        let Ok(_turn) = turn.await else {
            return Ok(false);
        };
        self.project(&[thread]).await?;
        self.has_reached(thread, number).await
    }

    async fn has_reached(&self, thread: ThreadId, number: i64) -> Result<bool> {
        let found = self.shared.parts.projections.progress(vec![thread]).await?;
        // A thread that is not there may be on its way.
        Ok(found.iter().any(|progress| progress.reached(Some(number))))
    }

    /// Deletes derived rows and derives them from events once more, in the background.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn rebuild(&self, tables: &[Projection], thread: Option<ThreadId>) -> Result<()> {
        if let Some(thread) = thread {
            self.row(thread).await?;
        }
        let projections = &self.shared.parts.projections;
        for table in tables {
            projections.reset(Some(*table), thread).await?;
        }
        match thread {
            Some(thread) => self.shared.notifier.notify(thread),
            None => self.rebuild.notify_one(),
        }
        Ok(())
    }
}

fn behind(thread: ThreadId, number: i64) -> Error {
    let detail = format!("The lists do not know event {number} of thread {thread} yet. Try again.");
    tree::Error::refused(tree::ErrorKind::Behind, "projection_behind", detail).into()
}
