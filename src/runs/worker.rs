//! The worker of a process: takes runs from the queue, renews the lease, recovers what dead
//! processes left, and drains at shutdown.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::{Error, Service};

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
        let lost = inner.parts.runs.recover(inner.worker).await?;
        if !lost.is_empty() {
            tracing::warn!(runs = lost.len(), "ended runs that a dead process left");
        }
        tokio::spawn(self.clone().look_after_queue());
        tokio::spawn(self.clone().look_after_lease());
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
                match inner.parts.runs.claim(inner.worker, free.min(32)).await {
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

    async fn look_after_lease(self) {
        let inner = &self.inner;
        let mut renew = tokio::time::interval(inner.options.lease / 3);
        renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is now, and the lease is fresh.
        renew.tick().await;
        loop {
            renew.tick().await;
            if inner.drain.is_cancelled() && inner.tracker.is_empty() {
                return;
            }
            if let Err(error) = inner
                .parts
                .runs
                .renew(inner.worker, inner.options.lease)
                .await
            {
                tracing::warn!(%error, "the lease could not be renewed");
                continue;
            }
            match inner.parts.runs.recover(inner.worker).await {
                Ok(lost) if !lost.is_empty() => {
                    tracing::warn!(runs = lost.len(), "ended runs that a dead process left");
                    inner.wake.notify_one();
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "lost runs could not be looked for"),
            }
            inner.hub.sweep();
        }
    }

    /// Lets what runs end, for a limited time; then stops it, and gives the lease back.
    /// The drain token must have been cancelled: new runs are refused since then.
    pub async fn drain(&self) {
        let inner = &self.inner;
        inner.tracker.close();
        let limit = Instant::now() + inner.options.drain;
        if tokio::time::timeout_at(limit, inner.tracker.wait())
            .await
            .is_err()
        {
            tracing::warn!("runs did not end in time: stopping them");
            for live in inner.active.lock().running.values() {
                live.cancel.cancel();
            }
            let last = Duration::from_secs(5);
            let _ = tokio::time::timeout(last, inner.tracker.wait()).await;
        }
        if let Err(error) = inner.parts.runs.retire(inner.worker).await {
            tracing::warn!(%error, "the lease could not be given back");
        }
    }
}
