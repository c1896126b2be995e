//! Recovering runs of dead processes, and learning of the ends of runs that others execute.

use std::collections::HashMap;

use tokio::time::{Instant, MissedTickBehavior};

use super::AT_ONCE;
use crate::{
    id::{RunId, ThreadId},
    runs::{Error, Recover, Run, RunHandle, Service, Status, request::Target},
    value::Value,
};

/// So many runs that cannot be recovered are left behind in one round; the next one begins anew.
const FAILED: usize = 256;

impl Service {
    /// Polls for runs of dead processes, and for the ends of runs that others execute.
    pub(super) async fn recover_lost(self) {
        let inner = &self.inner;
        let mut poll = tokio::time::interval(inner.options.lease / 3);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        poll.tick().await;
        loop {
            tokio::select! {
                () = inner.hand_over.cancelled() => return,
                _ = poll.tick() => {}
            }
            if self.is_drained() {
                return;
            }
            if let Err(error) = self.take_over().await {
                tracing::warn!(%error, "lost runs could not be looked for");
            }
            self.use_free_slots();
            self.end_pending_elsewhere().await;
            inner.active.lock().forget_gone();
            inner.hub.sweep();
        }
    }

    /// Takes over runs that dead processes left, as far as there is room; few at a time, so that
    /// several processes share them.
    pub(super) async fn take_over(&self) -> Result<(), Error> {
        let mut failed = vec![];
        loop {
            let slots = self.claim_slots(AT_ONCE);
            // Without keys nobody else is there for whom there are more slots.
            let is_one = || {
                let principals = self.inner.active.lock().principals();
                principals.iter().all(|(name, _)| name.is_empty())
            };
            if slots.count == 0 || slots.most_of_one.is_some() && is_one() {
                return Ok(());
            }
            let by = Recover {
                worker: self.shared.worker,
                busy: self.inner.active.lock().running().keys().copied().collect(),
                limit: slots.count,
                slots: self.request_slots(),
                failed: failed.clone(),
            };
            let found = self.shared.parts.runs.recover(by).await?;
            if !found.ended.is_empty() {
                let runs = found.ended.len();
                for _ in &found.ended {
                    self.inner.metrics.count_end(Status::Error.as_str());
                }
                tracing::warn!(runs, "ended runs that were lost too often");
                for thread in found.freed {
                    self.wake_thread(thread);
                }
            }
            let is_last =
                found.taken.is_empty() && found.ended.is_empty() && found.failed.is_empty();
            for (run, error) in found.failed {
                tracing::error!(%run, %error, "a lost run could be neither taken over nor ended");
                failed.push(run);
            }
            let runs = found.taken.len();
            if runs > 0 {
                tracing::warn!(runs, "took over runs that a dead process left");
                self.execute_claimed(found.taken);
            }
            if is_last || failed.len() > FAILED {
                return Ok(());
            }
        }
    }

    /// Polls for what other processes did to the runs that this one executes.
    pub(super) async fn cancel_requested_elsewhere(self) {
        let inner = &self.inner;
        let mut poll = tokio::time::interval(inner.options.poll);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = inner.hand_over.cancelled() => return,
                _ = poll.tick() => {}
            }
            if self.is_drained() {
                return;
            }
            if let Err(error) = self.cancel_lost().await {
                tracing::warn!(%error, "nobody knows which runs this process still holds");
            }
        }
    }

    /// Cancels runs that others have ended or taken over, since what they still do has no effect, and
    /// those that others want cancelled.
    pub(super) async fn cancel_lost(&self) -> Result<(), Error> {
        let running: Vec<(RunId, RunHandle)> = {
            let active = self.inner.active.lock();
            let running = active.running().iter();
            running
                .map(|(run, handle)| (*run, handle.clone()))
                .collect()
        };
        if running.is_empty() {
            return Ok(());
        }
        let owned = self.shared.parts.runs.running(self.shared.worker).await?;
        let mut owned: HashMap<RunId, Option<Value>> = owned.into_iter().collect();
        for (run, handle) in running {
            match owned.remove(&run) {
                Some(None) => {}
                Some(Some(reason)) if handle.cancel.is_cancelled() => drop(reason),
                Some(Some(reason)) => handle.request_cancel(reason),
                None => handle.cancel.cancel(),
            }
        }
        Ok(())
    }

    /// Ends the streams of runs that were created here and that another process executed: it
    /// has their events, but those who wait here must learn of the end.
    async fn end_pending_elsewhere(&self) {
        let old = Instant::now().checked_sub(self.inner.options.lease / 3);
        let is_old =
            |since: Option<Instant>| since.is_some_and(|at| old.is_some_and(|old| at < old));
        let waiting: Vec<(ThreadId, RunId)> = {
            let active = self.inner.active.lock();
            let pending = active.pending.iter();
            pending
                .filter(|(_, pending)| is_old(pending.since))
                .map(|(run, pending)| (pending.handle.publisher.thread(), *run))
                .collect()
        };
        for (thread, run) in waiting {
            self.end_if_final(thread, run).await;
        }
    }

    /// Ends the stream of a run that waits here, if the run has ended.
    pub(in crate::runs) async fn end_if_final(&self, thread: ThreadId, run: RunId) {
        match self.find_row(thread, run).await {
            Ok(Some(row)) if row.status.is_final() => self.end_by_row(row),
            Ok(None) => match self.result_of_log(Target { thread, run }).await {
                Ok(Some(result)) => self.end_as(run, result),
                Ok(None) => self.end_pending(run),
                // The next poll tries it anew.
                Err(_) => {}
            },
            Ok(Some(_)) | Err(_) => {}
        }
    }

    /// Ends the stream of a run that waits here, as its final row says. What it has left may be large and wait
    /// for memory: nothing else waits for that.
    fn end_by_row(&self, row: Run) {
        let pending = self.inner.active.lock().take_ended(row.id);
        let Some(pending) = pending else {
            return;
        };
        let service = self.clone();
        tokio::spawn(async move {
            let result = service.result_of_row(&row).await;
            let publisher = &pending.handle.publisher;
            // Another attempt shows its end by itself.
            if publisher.attempt() == row.attempt && publisher.log_end(result.failure()) {
                service.flush_log(publisher).await;
                service.publish_result(pending, result);
            } else {
                service.publish_left(pending, result);
            }
            service.inner.active.lock().end_is_shown(row.id);
        });
    }
}
