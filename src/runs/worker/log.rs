//! Removes what is old from the log of streams.

use std::time::Duration;

use crate::runs::Service;

/// Pause between two looks at the log.
const PAUSE: Duration = Duration::from_secs(60);
/// Chunks that are removed at once.
const BATCH: usize = 1000;

impl Service {
    /// Removes frames that are older than the retention, until the server drains.
    pub(super) async fn sweep_log(self) {
        let age = self.inner.options.stream_retention;
        let drain = self.shared.drain.clone();
        loop {
            loop {
                match self.shared.parts.log.sweep_log(age, BATCH).await {
                    Ok(removed) if removed >= BATCH as u64 => {}
                    Ok(_) => break,
                    Err(error) => {
                        tracing::warn!(%error, "old frames of streams could not be removed");
                        break;
                    }
                }
            }
            let pause = tokio::time::sleep(PAUSE.min(age));
            if drain.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }
}
