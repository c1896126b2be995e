//! Renewing the lease of this process.

use tokio::time::MissedTickBehavior;

use crate::runs::Service;

impl Service {
    /// Renews the lease, and nothing else: what takes long must not make a healthy process look
    /// dead.
    pub(super) async fn renew_lease(self) {
        let inner = &self.inner;
        let mut renew = tokio::time::interval(inner.options.lease / 3);
        renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is now, and the lease is fresh.
        renew.tick().await;
        loop {
            tokio::select! {
                // It is about to be returned.
                () = inner.hand_over.cancelled() => return,
                _ = renew.tick() => {}
            }
            if self.is_drained() {
                return;
            }
            let runs = &self.shared.parts.runs;
            let renewed = runs.renew(self.shared.worker, inner.options.lease);
            if let Err(error) = renewed.await {
                tracing::warn!(%error, "the lease could not be renewed");
            }
        }
    }
}
