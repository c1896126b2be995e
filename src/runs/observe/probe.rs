//! Whether the storage can be written to, found out at a low rate however many ask.

use std::time::Duration;

use tokio::{sync::Mutex, time::Instant};

use crate::{checkpoint::Error, runs::Store};

/// How long a finding is reused.
const REUSED_FOR: Duration = Duration::from_secs(2);

/// What the last probe found, and when.
#[derive(Default)]
pub(in crate::runs) struct Probe(Mutex<Option<(Instant, Result<(), Error>)>>);

impl Probe {
    /// Writes something of no meaning, unless that was done a moment before.
    pub async fn check(&self, store: &dyn Store) -> Result<(), Error> {
        let mut last = self.0.lock().await;
        match &*last {
            Some((at, found)) if at.elapsed() < REUSED_FOR => found.clone(),
            _ => {
                let found = store.probe().await;
                *last = Some((Instant::now(), found.clone()));
                found
            }
        }
    }
}
