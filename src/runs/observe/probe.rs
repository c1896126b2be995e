//! Whether the storage can be written to, found out at a low rate however many ask.

use std::time::Duration;

use tokio::{sync::Mutex, time::Instant};

use crate::{
    checkpoint,
    runs::{Error, Service},
};

/// How long a finding is reused.
const REUSED_FOR: Duration = Duration::from_secs(2);

/// What the last probe found, and when.
#[derive(Default)]
pub(in crate::runs) struct Probe(Mutex<Option<(Instant, Result<(), checkpoint::Error>)>>);

impl Service {
    /// Writes something of no meaning, unless that was done a moment before.
    ///
    /// # Errors
    /// The storage cannot be written to.
    pub async fn probe(&self) -> Result<(), Error> {
        let mut last = self.inner.probe.0.lock().await;
        let found = match &*last {
            Some((at, found)) if at.elapsed() < REUSED_FOR => found.clone(),
            _ => {
                let found = self.shared.parts.runs.probe().await;
                *last = Some((Instant::now(), found.clone()));
                found
            }
        };
        Ok(found?)
    }
}
