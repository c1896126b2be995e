//! Taking runs from the queue.

use tokio::time::MissedTickBehavior;

use super::AT_ONCE;
use crate::runs::Service;

impl Service {
    /// Executes queued runs as slots become free, until the server drains.
    pub(super) async fn work_off_queue(self) {
        let inner = &self.inner;
        let mut poll = tokio::time::interval(inner.options.poll);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.shared.drain.cancelled() => return,
                () = inner.wake.notified() => {}
                _ = poll.tick() => {}
            }
            loop {
                let free = self.free_slots();
                if free == 0 {
                    break;
                }
                let runs = &self.shared.parts.runs;
                match runs.claim(self.shared.worker, free.min(AT_ONCE)).await {
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
}
