//! The worker of a process: takes runs from the queue, renews the lease, recovers what dead
//! processes left, and drains at shutdown.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::{End, Error, Recover, Run, Service, Status};
use crate::{
    engine::Interrupt,
    id::{RunId, ThreadId},
    value::{Map, Value},
};

/// Most runs taken from the storage at once.
const AT_ONCE: usize = 32;

impl Service {
    /// Registers this process, recovers what dead ones left, and starts to work.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn start(&self) -> Result<(), Error> {
        let inner = &self.inner;
        inner
            .parts
            .runs
            .renew(inner.worker, inner.options.lease)
            .await?;
        self.take_over().await?;
        tokio::spawn(self.clone().look_after_queue());
        tokio::spawn(self.clone().look_after_lease());
        tokio::spawn(self.clone().look_after_lost());
        tokio::spawn(self.clone().look_after_keys());
        tokio::spawn(self.clone().look_after_projections());
        Ok(())
    }

    async fn look_after_queue(self) {
        let inner = &self.inner;
        let mut poll = tokio::time::interval(inner.options.poll);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = inner.drain.cancelled() => return,
                () = inner.wake.notified() => {}
                _ = poll.tick() => {}
            }
            loop {
                let free = inner
                    .options
                    .slots
                    .saturating_sub(inner.active.lock().running.len());
                if free == 0 || inner.drain.is_cancelled() {
                    break;
                }
                match inner
                    .parts
                    .runs
                    .claim(inner.worker, free.min(AT_ONCE))
                    .await
                {
                    Ok(claimed) if claimed.is_empty() => break,
                    Ok(claimed) => self.execute_claimed(claimed),
                    Err(error) => {
                        tracing::warn!(%error, "the queue could not be read");
                        break;
                    }
                }
            }
        }
    }

    /// Renews the lease, and nothing else: what takes long must not make a healthy process look
    /// dead.
    async fn look_after_lease(self) {
        let inner = &self.inner;
        let mut renew = tokio::time::interval(inner.options.lease / 3);
        renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is now, and the lease is fresh.
        renew.tick().await;
        loop {
            tokio::select! {
                // It is about to be given back.
                () = inner.hand_over.cancelled() => return,
                _ = renew.tick() => {}
            }
            if inner.drain.is_cancelled() && inner.tracker.is_empty() {
                return;
            }
            let renewed = inner.parts.runs.renew(inner.worker, inner.options.lease);
            if let Err(error) = renewed.await {
                tracing::warn!(%error, "the lease could not be renewed");
            }
        }
    }

    /// Looks for runs of dead processes, and for the ends of runs that others execute.
    async fn look_after_lost(self) {
        let inner = &self.inner;
        let mut look = tokio::time::interval(inner.options.lease / 3);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        look.tick().await;
        loop {
            tokio::select! {
                () = inner.hand_over.cancelled() => return,
                _ = look.tick() => {}
            }
            if inner.drain.is_cancelled() && inner.tracker.is_empty() {
                return;
            }
            if let Err(error) = self.take_over().await {
                tracing::warn!(%error, "lost runs could not be looked for");
            }
            if let Err(error) = self.give_up_lost().await {
                tracing::warn!(%error, "nobody knows which runs this process still holds");
            }
            self.look_after_waiting().await;
            inner.hub.sweep();
        }
    }

    /// Goes on with runs that dead processes left, as far as there is room; few at a time, so that
    /// several processes share them.
    async fn take_over(&self) -> Result<(), Error> {
        let inner = &self.inner;
        loop {
            let busy: Vec<RunId> = inner.active.lock().running.keys().copied().collect();
            let free = inner.options.slots.saturating_sub(busy.len());
            if free == 0 || inner.drain.is_cancelled() {
                return Ok(());
            }
            let by = Recover {
                worker: inner.worker,
                busy,
                limit: free.min(AT_ONCE),
            };
            let found = inner.parts.runs.recover(by).await?;
            if !found.ended.is_empty() {
                let runs = found.ended.len();
                tracing::warn!(runs, "ended runs that were lost too often");
                inner.wake.notify_one();
            }
            if found.taken.is_empty() {
                return Ok(());
            }
            let runs = found.taken.len();
            tracing::warn!(runs, "took over runs that a dead process left");
            self.execute_claimed(found.taken);
        }
    }

    /// Stops runs that others have ended or taken over: what they still do counts for nothing.
    async fn give_up_lost(&self) -> Result<(), Error> {
        let inner = &self.inner;
        let running: Vec<(RunId, CancellationToken)> = {
            let active = inner.active.lock();
            let running = active.running.iter();
            running
                .map(|(run, live)| (*run, live.cancel.clone()))
                .collect()
        };
        if running.is_empty() {
            return Ok(());
        }
        let held = inner.parts.runs.held(inner.worker).await?;
        let held: HashSet<RunId> = held.into_iter().collect();
        for (run, cancel) in running {
            if !held.contains(&run) {
                cancel.cancel();
            }
        }
        Ok(())
    }

    /// Ends the streams of runs that were created here and that another process executed: it
    /// has their events, but those who wait here must learn of the end.
    async fn look_after_waiting(&self) {
        let old = Instant::now().checked_sub(self.inner.options.lease / 3);
        let waiting: Vec<(ThreadId, RunId)> = self
            .inner
            .active
            .lock()
            .waiting
            .iter()
            .filter(|(_, held)| {
                held.since
                    .is_some_and(|since| old.is_some_and(|old| since < old))
            })
            .map(|(run, held)| (held.live.publisher.thread(), *run))
            .collect();
        for (thread, run) in waiting {
            self.look_after(thread, run).await;
        }
    }

    /// Ends the stream of a run that waits here, if the run has ended.
    pub(super) async fn look_after(&self, thread: ThreadId, run: RunId) {
        match self.find_run(thread, run).await {
            Ok(Some(row)) if row.status.is_final() => self.end_elsewhere(row).await,
            Ok(None) => self.forget_waiting(run),
            Ok(Some(_)) | Err(_) => {}
        }
    }

    async fn end_elsewhere(&self, row: Run) {
        let shown = self.shown_of(row.thread).await;
        let (values, asked) = shown.unwrap_or_else(|_| (Value::map(Map::new()), Map::new()));
        let Some(held) = self.inner.active.lock().waiting.remove(&row.id) else {
            return;
        };
        let text = |error: &Value, key: &str| {
            let text = error.get(key).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        // Of one that was cancelled it says why.
        let error = row.error.filter(|_| row.status != Status::Interrupted);
        if let Some(error) = &error {
            let publisher = &held.live.publisher;
            publisher.error(&text(error, "error"), &text(error, "message"));
        }
        held.live.publisher.close();
        self.inner.hub.finish(&held.live.publisher);
        held.end.send_replace(Some(Arc::new(End {
            status: row.status,
            values,
            interrupts: asked
                .values()
                .flat_map(|list| list.as_list().unwrap_or_default())
                .filter_map(Interrupt::from_value)
                .collect(),
            error,
        })));
    }

    /// Lets what runs end, for a limited time; then hands it over: it stops where it is and stays
    /// `running`, and the lease is given back, so that another process goes on with it at once.
    /// The drain token must have been cancelled: new runs are refused since then.
    pub async fn drain(&self) {
        let inner = &self.inner;
        inner.tracker.close();
        let limit = Instant::now() + inner.options.drain;
        if tokio::time::timeout_at(limit, inner.tracker.wait())
            .await
            .is_err()
        {
            tracing::warn!("runs did not end in time: leaving them to the next process");
            inner.hand_over.cancel();
            let last = Duration::from_secs(5);
            let _ = tokio::time::timeout(last, inner.tracker.wait()).await;
        }
        if let Err(error) = inner.parts.runs.retire(inner.worker).await {
            tracing::warn!(%error, "the lease could not be given back");
        }
    }
}
