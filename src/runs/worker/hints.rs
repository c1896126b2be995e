//! Exchanging hints with the other processes on the storage, and following theirs.

use std::{collections::HashSet, iter, time::Duration};

use tokio::time::{Instant, interval, sleep, sleep_until};

use crate::{
    checkpoint,
    id::ThreadId,
    runs::{
        Service,
        shared::hints::{ANYTHING, Hint, Link},
    },
};

/// Time between two messages, in which hints are gathered. The first one after a pause goes at once.
const GATHER: Duration = Duration::from_millis(10);
/// Time between two checks whether the connection works.
const PING: Duration = Duration::from_secs(10);
/// Pauses before further connections.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// Time between two readings of the runs that others may have changed.
const SHORTEST: Duration = Duration::from_millis(20);

impl Service {
    /// Exchanges hints, over one connection after the other, until the server has drained.
    pub(super) async fn exchange_hints(self) {
        let hints = &self.shared.hints;
        let Some(linker) = hints.linker() else {
            return;
        };
        let mut pause = FIRST_PAUSE;
        while !self.is_drained() {
            let result = match linker.connect().await {
                Ok(link) => self.exchange(link, &mut pause).await,
                Err(error) => Err(error),
            };
            if hints.is_connected() {
                hints.set_connected(false);
            }
            if let Err(error) = result {
                tracing::warn!(%error, "no hints of other processes arrive; what they do is polled");
            }
            sleep(pause.mul_f64(0.5 + 0.5 * rand::random::<f64>())).await;
            pause = LAST_PAUSE.min(pause * 2);
        }
    }

    /// Exchanges hints over a connection as long as it works, or until the server has drained.
    async fn exchange(
        &self,
        mut link: Box<dyn Link>,
        pause: &mut Duration,
    ) -> Result<(), checkpoint::Error> {
        let hints = &self.shared.hints;
        // What happened here until now no hint was given of.
        link.publish(&[ANYTHING.to_owned()]).await?;
        hints.set_connected(true);
        self.follow_hints(iter::once(Hint::Anything));
        let mut ping = interval(PING);
        ping.tick().await;
        let mut next = Instant::now();
        loop {
            tokio::select! {
                message = link.receive() => {
                    let lost = || checkpoint::Error::Unavailable("the connection was lost".into());
                    self.follow_hints(Hint::of_message(&message.ok_or_else(lost)?));
                }
                () = async { sleep_until(next).await; hints.gathered().await } => {
                    let messages = hints.take_messages();
                    if !messages.is_empty() {
                        link.publish(&messages).await?;
                        next = Instant::now() + GATHER;
                    }
                }
                _ = ping.tick() => {
                    if self.is_drained() {
                        return Ok(());
                    }
                    link.publish(&[]).await?;
                    *pause = FIRST_PAUSE;
                }
            }
        }
    }

    /// Lets those read who wait for what another process did.
    fn follow_hints(&self, hints: impl Iterator<Item = Hint>) {
        let mut changed = HashSet::new();
        let mut anything = false;
        for hint in hints {
            match hint {
                Hint::Changed(thread) => changed.extend([thread]),
                Hint::Anything => anything = true,
                Hint::Queued(thread) => {
                    self.inner.freed.lock().add(thread);
                    self.inner.wake.notify_one();
                }
            }
        }
        let (notifier, hints) = (&self.shared.notifier, &self.shared.hints);
        if anything {
            notifier.notify_here(None);
            hints.wake(None);
        } else {
            for thread in &changed {
                notifier.notify_here(Some(*thread));
                hints.wake(Some(*thread));
            }
        }
        let is_changed = |thread: &ThreadId| anything || changed.contains(thread);
        let own = self.inner.active.lock().threads(is_changed);
        if !own.is_empty() {
            self.inner.changed_elsewhere.add(own);
        }
    }

    /// Reads the runs of this process on whose threads another one did something, as long as hints can
    /// come.
    pub(super) async fn follow_changes(self) {
        if self.shared.hints.linker().is_none() {
            return;
        }
        let elsewhere = &self.inner.changed_elsewhere;
        while !self.is_drained() {
            let threads = elsewhere.take().await;
            if let Err(error) = self.cancel_lost().await {
                tracing::warn!(%error, "nobody knows which runs this process still executes");
            }
            let waiting = self.inner.active.lock().waiting_on(&threads);
            for (thread, run) in waiting {
                // What it waits for may have ended. Most changes are no ends, so the queue is read with the next poll.
                self.inner.freed.lock().add(thread);
                self.end_if_final(thread, run).await;
            }
            sleep(SHORTEST).await;
        }
    }
}
