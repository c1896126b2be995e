//! Delivering webhooks: every process takes deliveries that are due, few per receiver, and sends them.

mod report;
mod turns;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, Semaphore},
    time::{Instant, MissedTickBehavior},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::turns::Turns;
use crate::{
    checkpoint, fail_point,
    runs::{Run, Service},
    webhooks::{
        outbox::{Delivery, Due, FailedTry, HostPage, Key},
        schedule::pause_after,
    },
};

/// Deliveries that are sent at once, of this process, of one principal and to one host.
const SENDS: usize = 32;
const SENDS_OF_PRINCIPAL: usize = 16;
const SENDS_TO_HOST: usize = 4;
/// Bodies of deliveries that are made at once.
const RENDERINGS: usize = 4;
/// How many due deliveries, or hosts, are read at once.
const WINDOW: usize = 128;
/// How long a delivery is nobody else's: longer than a try takes.
const LEASE: Duration = Duration::from_secs(30);
/// How long a delivery may wait in this process, for its turn and for memory, and be read. After that it
/// is returned: no receiver was called.
const READ_LIMIT: Duration = Duration::from_secs(8);
/// The longest that sending one may take.
const TRY_LIMIT: Duration = Duration::from_secs(20);
/// How long deliveries that are being sent have when the server stops.
const DRAIN: Duration = Duration::from_secs(5);
/// How long their return may take then.
const RETURN: Duration = Duration::from_secs(2);
/// Pause between two sweeps of deliveries that were not tried any more.
const SWEEP_PAUSE: Duration = Duration::from_secs(600);
/// How long their rows stay.
const DEAD_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Most rows that one statement of a sweep deletes.
const SWEEP_BATCH: usize = 1000;
/// Most slices of hosts that are read at once; the next search goes on behind them.
const SLICES: usize = 4;

/// The deliveries that this process sends.
pub(in crate::runs) struct Deliveries {
    /// Few bodies are made at once.
    pub(in crate::runs) rendering: Semaphore,
    /// The place of a report for which its principal has no memory left.
    beside: Arc<Turns>,
    wake: Notify,
    /// Deliveries were left because their host, or its principal, or all of the process was busy.
    left: AtomicBool,
    busy: Mutex<Busy>,
    /// The host behind which the next slice of hosts begins.
    cursor: Mutex<Arc<str>>,
    sending: TaskTracker,
    /// No more deliveries are taken.
    stop: CancellationToken,
    /// Those that are being sent are returned.
    cut: CancellationToken,
}

impl Default for Deliveries {
    fn default() -> Self {
        Self {
            rendering: Semaphore::new(RENDERINGS),
            beside: Arc::default(),
            wake: Notify::new(),
            left: AtomicBool::new(false),
            busy: Mutex::default(),
            cursor: Mutex::default(),
            sending: TaskTracker::new(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }
}

/// How many deliveries are being sent.
#[derive(Clone, Default)]
struct Busy {
    hosts: HashMap<Arc<str>, usize>,
    principals: HashMap<Arc<str>, usize>,
    all: usize,
}

impl Busy {
    /// Counts a delivery if there is room for it.
    fn admit(&mut self, due: &Due) -> bool {
        let of = |counts: &HashMap<Arc<str>, usize>, name| counts.get(name).copied().unwrap_or(0);
        // While nobody authenticates all runs are of one principal.
        let is_shared =
            !due.principal.is_empty() && of(&self.principals, &due.principal) >= SENDS_OF_PRINCIPAL;
        if self.all >= SENDS || is_shared || of(&self.hosts, &due.host) >= SENDS_TO_HOST {
            return false;
        }
        self.all += 1;
        *self.hosts.entry(due.host.clone()).or_default() += 1;
        *self.principals.entry(due.principal.clone()).or_default() += 1;
        true
    }

    fn release(&mut self, due: &Due) {
        fn one_less(counts: &mut HashMap<Arc<str>, usize>, name: &Arc<str>) {
            if let Some(count) = counts.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(name);
                }
            }
        }
        self.all -= 1;
        one_less(&mut self.hosts, &due.host);
        one_less(&mut self.principals, &due.principal);
    }
}

/// The room that a delivery takes; it is free again once this is dropped.
struct Room {
    service: Service,
    due: Due,
}

impl Drop for Room {
    fn drop(&mut self) {
        let deliveries = &self.service.inner.deliveries;
        deliveries.busy.lock().release(&self.due);
        if deliveries.left.load(Ordering::Relaxed) {
            deliveries.wake.notify_one();
        }
    }
}

impl Service {
    /// Lets the outbox be read: this run has ended.
    pub(in crate::runs) fn wake_deliveries(&self, run: &Run) {
        if run.has_webhook() {
            self.inner.deliveries.wake.notify_one();
        }
    }

    /// Sends what is due until the server has drained.
    pub(super) async fn deliver_webhooks(self) {
        let deliveries = &self.inner.deliveries;
        let mut poll = tokio::time::interval(self.inner.options.poll);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut swept: Option<Instant> = None;
        loop {
            tokio::select! {
                () = deliveries.stop.cancelled() => return,
                () = deliveries.wake.notified() => {}
                _ = poll.tick() => {}
            }
            if let Err(error) = self.send_due().await {
                tracing::warn!(%error, "the outbox of webhooks could not be read");
            }
            if swept.is_none_or(|at| at.elapsed() > SWEEP_PAUSE) {
                let outbox = &self.shared.parts.outbox;
                let gone = outbox.sweep_deliveries(DEAD_AGE, SWEEP_BATCH).await;
                if let Err(error) = &gone {
                    tracing::warn!(%error, "old deliveries of webhooks could not be removed");
                }
                // The rest goes in the next rounds, between which others are sent.
                let is_more = gone.is_ok_and(|gone| gone >= SWEEP_BATCH as u64);
                swept = (!is_more).then(Instant::now);
            }
        }
    }

    /// Begins to send deliveries that are due, as far as there is room.
    async fn send_due(&self) -> Result<(), checkpoint::Error> {
        let deliveries = &self.inner.deliveries;
        loop {
            deliveries.left.store(false, Ordering::Relaxed);
            let due = self.shared.parts.outbox.due_deliveries(WINDOW).await?;
            let read = due.len();
            let mut rooms = self.admit(due);
            if rooms.len() < read {
                deliveries.left.store(true, Ordering::Relaxed);
            }
            if rooms.is_empty() && read == WINDOW {
                rooms = self.admit_behind().await?;
            }
            if rooms.is_empty() {
                return Ok(());
            }
            self.send(rooms).await?;
        }
    }

    /// Those deliveries that there is room for.
    fn admit(&self, due: Vec<Due>) -> HashMap<Key, Room> {
        let mut busy = self.inner.deliveries.busy.lock();
        let mut rooms = HashMap::new();
        for due in due {
            if busy.admit(&due) {
                let service = self.clone();
                rooms.insert(due.key, Room { service, due });
            }
        }
        rooms
    }

    /// Deliveries behind a window full of those that have to wait: one slice of the hosts after the
    /// other, going on where the last search ended.
    async fn admit_behind(&self) -> Result<HashMap<Key, Room>, checkpoint::Error> {
        let deliveries = &self.inner.deliveries;
        if deliveries.busy.lock().all >= SENDS {
            return Ok(HashMap::new());
        }
        let first = deliveries.cursor.lock().clone();
        let (mut after, mut has_wrapped) = (first.clone(), false);
        for _ in 0..SLICES {
            let page = HostPage {
                after: after.clone(),
                hosts: WINDOW,
                per_host: SENDS_TO_HOST,
            };
            let found = self.shared.parts.outbox.due_by_host(page).await?;
            let is_last = found.last.is_none();
            after = found.last.unwrap_or_default();
            deliveries.cursor.lock().clone_from(&after);
            let rooms = self.admit(found.due);
            if !rooms.is_empty() {
                return Ok(rooms);
            }
            if has_wrapped && (is_last || after >= first) {
                return Ok(rooms);
            }
            if is_last {
                if first.is_empty() {
                    return Ok(rooms);
                }
                has_wrapped = true;
            }
        }
        Ok(HashMap::new())
    }

    /// Takes deliveries and sends each in a task of its own.
    async fn send(&self, mut rooms: HashMap<Key, Room>) -> Result<(), checkpoint::Error> {
        let keys = rooms.keys().copied().collect();
        let outbox = &self.shared.parts.outbox;
        for delivery in outbox.take_deliveries(keys, LEASE).await? {
            let Some(room) = rooms.remove(&delivery.key) else {
                continue;
            };
            let service = self.clone();
            self.inner.deliveries.sending.spawn(async move {
                let _room = room;
                let cut = service.inner.deliveries.cut.clone();
                if cut
                    .run_until_cancelled(service.deliver(&delivery))
                    .await
                    .is_none()
                {
                    service.return_delivery(&delivery).await;
                }
            });
        }
        // What another process was quicker to take needs no room.
        drop(rooms);
        Ok(())
    }

    /// Returns a delivery that was not sent: the try does not count.
    async fn return_delivery(&self, delivery: &Delivery) {
        self.inner.metrics.count_try("returned");
        let taken = vec![(delivery.key, delivery.attempt)];
        let returned = self.shared.parts.outbox.release_deliveries(taken).await;
        if let Err(error) = returned {
            tracing::warn!(%error, "the delivery of a webhook waits for its lease");
        }
    }

    /// One try: sends a delivery and records what became of it.
    async fn deliver(&self, delivery: &Delivery) {
        let outbox = &self.shared.parts.outbox;
        let (run, attempt) = (delivery.key.run, delivery.attempt);
        let Ok(report) = tokio::time::timeout(READ_LIMIT, self.report(delivery)).await else {
            tracing::warn!(%run, attempt, "a webhook waited too long for memory and is tried later");
            return self.return_delivery(delivery).await;
        };
        let tried = match report {
            Ok(Some(report)) => {
                let tried = tokio::time::timeout(TRY_LIMIT, self.send_report(delivery, report));
                let tried = tried.await;
                tried.unwrap_or_else(|_| Err("the try took too long".into()))
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        fail_point!(async "webhooks::delivered");
        let recorded = match tried {
            Ok(()) => {
                tracing::debug!(%run, attempt, "webhook delivered");
                self.inner.metrics.count_try("delivered");
                outbox.delivered(delivery.key).await
            }
            Err(error) => {
                let pause = pause_after(attempt);
                let result = if pause.is_some() {
                    "failed"
                } else {
                    "given_up"
                };
                self.inner.metrics.count_try(result);
                match pause {
                    Some(_) => tracing::warn!(%run, attempt, error, "webhook not delivered"),
                    None => tracing::error!(
                        %run, attempt, error, "webhook not delivered, and not tried any more"
                    ),
                }
                let failed = FailedTry {
                    key: delivery.key,
                    attempt,
                    error,
                    pause,
                };
                outbox.delivery_failed(failed).await
            }
        };
        if let Err(error) = recorded {
            tracing::warn!(%run, %error, "what became of a webhook could not be recorded");
        }
    }

    /// Sends what is due once more, waits a little for what is being sent, and returns the rest, so that
    /// another process sends it at once.
    pub(super) async fn drain_deliveries(&self) {
        let deliveries = &self.inner.deliveries;
        deliveries.stop.cancel();
        let last = async {
            if let Err(error) = self.send_due().await {
                tracing::warn!(%error, "the outbox of webhooks could not be read");
            }
            deliveries.sending.close();
            deliveries.sending.wait().await;
        };
        if tokio::time::timeout(DRAIN, last).await.is_err() {
            tracing::warn!("webhooks were not delivered in time: leaving them to the next process");
            deliveries.sending.close();
            deliveries.cut.cancel();
            let _ = tokio::time::timeout(RETURN, deliveries.sending.wait()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{RunId, ThreadId, TreeId};

    fn due(host: &str, principal: &str) -> Due {
        let (tree, run) = (TreeId::of_root(ThreadId::mint()), RunId::mint());
        Due {
            key: Key { tree, run },
            host: host.into(),
            principal: principal.into(),
        }
    }

    #[test]
    fn one_host_and_one_principal_leave_room_for_others() {
        let mut busy = Busy::default();
        let admitted = |busy: &mut Busy, host: &str, principal: &str| {
            (0..100)
                .filter(|_| busy.admit(&due(host, principal)))
                .count()
        };
        assert_eq!(admitted(&mut busy, "a", "ann"), SENDS_TO_HOST);
        let hosts: Vec<String> = (0..100).map(|number| format!("h{number}")).collect();
        let mut of = |principal: &str| -> usize {
            let each = hosts.iter();
            each.map(|host| usize::from(busy.admit(&due(host, principal))))
                .sum()
        };
        assert_eq!(of("ann"), SENDS_OF_PRINCIPAL - SENDS_TO_HOST);
        assert_eq!(of("bob"), SENDS_OF_PRINCIPAL);
        assert_eq!(of("cid"), 0, "the process is full");
        let one = due("a", "ann");
        busy.release(&one);
        assert!(busy.admit(&one));
        assert_eq!(busy.all, SENDS);
    }

    #[test]
    fn while_nobody_authenticates_hosts_share_the_process() {
        let mut busy = Busy::default();
        let hosts = (0..100).map(|number| due(&format!("h{number}"), ""));
        assert_eq!(hosts.filter(|due| busy.admit(due)).count(), SENDS);
        assert_eq!(busy.hosts.len(), SENDS);
    }
}
