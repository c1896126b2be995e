//! What those who watch the server learn of its runs.

mod probe;
mod waiting;

use std::time::Duration;

use tokio::time::Instant;

use super::{Error, PoolState, Service};
use crate::metrics::Metrics;

pub(super) use probe::Probe;
pub(super) use waiting::LastRead;
pub use waiting::Waiting;

/// The most open runs that are read to be counted.
const COUNTED_MAX: usize = 10_000;
/// How long what was read holds, however many ask.
const AGE: Duration = Duration::from_secs(1);

impl Service {
    /// How many runs of all processes wait and are executed: of ten thousand, if there are more.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn waiting(&self) -> Result<Waiting, Error> {
        let mut last = self.inner.waiting.0.lock().await;
        if let Some((at, waiting)) = *last
            && at.elapsed() < AGE
        {
            return Ok(waiting);
        }
        let states = self.shared.parts.runs.open_states(COUNTED_MAX).await?;
        let waiting = Waiting::of(&states);
        *last = Some((Instant::now(), waiting));
        Ok(waiting)
    }

    /// Writes something of no meaning to the storage, unless that was done a moment before.
    ///
    /// # Errors
    /// The storage cannot be written to.
    pub async fn probe(&self) -> Result<(), Error> {
        let store = &*self.shared.parts.runs;
        Ok(self.inner.probe.check(store).await?)
    }

    /// How many slots the runs take that this process executes, and how many there are.
    pub fn occupied(&self) -> (usize, usize) {
        let used = self.inner.active.lock().used();
        (used, self.inner.options.slots)
    }

    /// The connections of this process to its database.
    pub fn pools(&self) -> Vec<PoolState> {
        self.shared.parts.runs.pools()
    }

    /// What this process counts.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }
}
