//! Taking runs from the queue.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
};

use tokio::time::MissedTickBehavior;

use super::AT_ONCE;
use crate::runs::{ClaimedRun, ClaimedRuns, OpenPage, QueueClaim, Run, Service, Status};

/// Ticks of the poll after which a round through the runs that are behind others begins, also when no run waits here.
const ROUND: u32 = 5;

impl Service {
    /// Executes queued runs as slots become free, until the server drains.
    pub(super) async fn work_off_queue(self) {
        let inner = &self.inner;
        let mut poll = tokio::time::interval(inner.options.poll);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ticks = 0;
        // Those who worked before may all have died.
        inner.freed.lock().search_all();
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
                    inner.freed.lock().poll(ticks % ROUND == 1 || waits);
                }
            }
            self.claim_queued().await;
        }
    }

    /// Executes as many runs of the queue as there are slots for.
    async fn claim_queued(&self) {
        let inner = &self.inner;
        // What the runs of each principal take, as of the last claim, and whether runs of those who have few may wait.
        let (mut taken, mut few_wait) = (HashMap::new(), true);
        loop {
            let slots = self.claim_slots(AT_ONCE);
            if slots.count == 0 {
                inner.contended.store(true, Ordering::Relaxed);
                self.publish_queued();
                return;
            }
            if let Some(most) = slots.most_of_one
                && !few_wait
            {
                inner.contended.store(false, Ordering::Relaxed);
                *inner.full.lock() = those_with(&taken, most);
                self.publish_queued();
                return;
            }
            let busy = inner.active.lock().principals();
            let most = slots.most_of_one.unwrap_or(usize::MAX);
            let candidates = inner.freed.lock().take();
            let claim = QueueClaim {
                worker: self.shared.worker,
                limit: slots.count,
                slots: self.request_slots(),
                busy: busy.clone(),
                most,
                freed: candidates.threads.clone(),
                search: candidates.slice,
            };
            match self.shared.parts.runs.claim(claim).await {
                Ok(ClaimedRuns {
                    runs,
                    more,
                    searched,
                }) => {
                    let goes_on = inner.freed.lock().advance(&candidates, searched);
                    taken = self.taken_with(busy, &runs);
                    inner.contended.store(more, Ordering::Relaxed);
                    *inner.full.lock() = those_with(&taken, most);
                    // Who has the fewest comes first: none of those waits once somebody who had more got a slot.
                    let had_many = |one: &ClaimedRun| {
                        let before =
                            taken[principal(&one.run)].saturating_sub(self.request_slots().most);
                        before >= self.beyond()
                    };
                    few_wait = goes_on || !runs.iter().any(had_many);
                    self.execute_claimed(runs);
                    if !more && !goes_on {
                        if slots.most_of_one.is_some() {
                            self.publish_queued();
                        }
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the queue could not be read");
                    inner.freed.lock().put_back(candidates);
                    return;
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

    /// How many slots the runs of each principal take, with those that were claimed.
    fn taken_with(
        &self,
        busy: Vec<(Arc<str>, usize)>,
        claimed: &[ClaimedRun],
    ) -> HashMap<Arc<str>, usize> {
        let mut taken: HashMap<Arc<str>, usize> = busy.into_iter().collect();
        for run in claimed.iter().map(|one| &one.run) {
            let principal = run.principal.clone().unwrap_or_default();
            *taken.entry(principal).or_default() += self.slots_of(&run.kwargs);
        }
        taken
    }
}

/// On whose behalf a run is executed; without keys everything is one principal's, whose name is empty.
fn principal(run: &Run) -> &str {
    run.principal.as_deref().unwrap_or_default()
}

/// The principals whose runs take at least so many slots.
fn those_with(taken: &HashMap<Arc<str>, usize>, most: usize) -> HashSet<Arc<str>> {
    let full = taken.iter().filter(|(_, slots)| **slots >= most);
    full.map(|(name, _)| name.clone()).collect()
}
