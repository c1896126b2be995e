//! The worker of a process: takes runs from the queue, renews the lease, recovers what dead
//! processes left, and drains at shutdown.

#[cfg(feature = "server")]
mod crons;
mod freed;
mod hints;
mod lease;
mod log;
mod queue;
mod recovery;
mod slots;
#[cfg(feature = "server")]
mod webhooks;

use std::time::Duration;

use tokio::time::Instant;

use super::{Error, Service};
pub(super) use freed::Freed;
#[cfg(feature = "server")]
pub(super) use webhooks::Deliveries;

/// Most runs taken from the storage at once.
const AT_ONCE: usize = 16;

impl Service {
    /// Registers this process, recovers what dead ones left, and starts to work.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn start(&self) -> Result<(), Error> {
        self.begin_lease().await?;
        self.take_over().await?;
        tokio::spawn(self.clone().work_off_queue());
        tokio::spawn(self.clone().recover_lost());
        tokio::spawn(self.clone().cancel_requested_elsewhere());
        #[cfg(feature = "server")]
        tokio::spawn(self.clone().deliver_webhooks());
        if let Some(writer) = self.inner.hub.log() {
            tokio::spawn(writer.clone().run(self.inner.stopped.clone()));
        }
        tokio::spawn(self.clone().sweep_log());
        tokio::spawn(self.clone().exchange_hints());
        tokio::spawn(self.clone().follow_changes());
        Ok(())
    }

    /// Lets other processes know which runs wait, since this one has no room for them.
    pub(super) fn publish_queued(&self) {
        let threads = self.inner.freed.lock().take_unpublished();
        if !threads.is_empty() {
            self.shared.hints.publish_queued(threads);
        }
    }

    /// Whether the server drains and all runs have ended.
    fn is_drained(&self) -> bool {
        self.shared.drain.is_cancelled() && self.inner.tracker.is_empty()
    }

    /// Lets runs end, for a limited time; then hands over the rest: they stop where they are and stay `running`, what
    /// they have done and shown is stored, for five seconds at most, and the lease is returned when webhooks are sent, so
    /// that another process continues them.
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
        #[cfg(feature = "server")]
        self.drain_deliveries().await;
        self.return_lease().await;
    }
}
