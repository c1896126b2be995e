//! Taking runs from the queue.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
};

use tokio::time::MissedTickBehavior;

use super::AT_ONCE;
use crate::runs::{ClaimedRun, ClaimedRuns, OpenPage, QueueClaim, Service, Status};

/// Ticks of the poll after which all of the queue is gone through, also when no run waits here.
const ROUND: u32 = 5;

impl Service {
    /// Executes queued runs as slots become free, until the server drains.
    pub(super) async fn work_off_queue(self) {
        let inner = &self.inner;
        let mut poll = tokio::time::interval(inner.options.poll);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ticks = 0;
        loop {
            tokio::select! {
                () = self.shared.drain.cancelled() => return,
                () = inner.wake.notified() => {}
                _ = poll.tick() => {
                    ticks += 1;
                    // Runs that another process ended may have been in the way of those here.
                    let waits = inner.active.lock().has_waiting();
                    if ticks % ROUND == 1 {
                        self.forget_ended().await;
                    }
                    if ticks % ROUND == 1 || waits {
                        inner.freed.lock().anywhere = true;
                    }
                }
            }
            loop {
                let slots = self.claim_slots(AT_ONCE);
                let limit = slots.count;
                if limit == 0 {
                    inner.contended.store(true, Ordering::Relaxed);
                    self.publish_queued();
                    break;
                }
                let busy = inner.active.lock().principals();
                let claim = QueueClaim {
                    worker: self.shared.worker,
                    limit,
                    slots: self.request_slots(),
                    busy: busy.clone(),
                    most: self.most_of_one(),
                    freed: inner.freed.lock().take(),
                };
                match self.shared.parts.runs.claim(claim).await {
                    Ok(ClaimedRuns { runs, more }) => {
                        inner.contended.store(more, Ordering::Relaxed);
                        *inner.full.lock() = self.full(busy, &runs);
                        self.execute_claimed(runs);
                        if !more {
                            break;
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the queue could not be read");
                        // What was freed is not known any more.
                        inner.freed.lock().anywhere = true;
                        break;
                    }
                }
            }
        }
    }

    /// Forgets the runs that were left to the storage once no run waits there: others have ended them.
    async fn forget_ended(&self) {
        if !self.inner.active.lock().check_left() {
            return;
        }
        let waiting = OpenPage {
            status: Some(Status::Pending),
            writer: None,
            after: None,
            limit: 1,
        };
        match self.shared.parts.runs.open(waiting).await {
            Ok(found) if found.is_empty() => self.inner.active.lock().forget_left(),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "nobody knows whether runs wait"),
        }
    }

    /// The principals that execute as many runs as one may, with those that were claimed.
    fn full(&self, busy: Vec<(Arc<str>, usize)>, claimed: &[ClaimedRun]) -> HashSet<Arc<str>> {
        let mut runs: HashMap<Arc<str>, usize> = busy.into_iter().collect();
        for run in claimed.iter().map(|one| &one.run) {
            if let Some(principal) = &run.principal {
                *runs.entry(principal.clone()).or_default() += self.slots_of(&run.kwargs);
            }
        }
        let most = self.most_of_one();
        runs.retain(|_, runs| *runs >= most);
        runs.into_keys().collect()
    }
}
