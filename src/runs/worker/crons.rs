//! Creating the runs of crons that are due.

use futures::StreamExt;
use rand::seq::SliceRandom;
use tokio::time::MissedTickBehavior;

use crate::{
    crons::CronRow,
    runs::{Error, Service, request},
};

/// Most crons that are read at once.
const BATCH: usize = 64;
/// How many of them are served at once: each takes a connection that operations on threads use too.
const AT_ONCE: usize = 2;

/// Reads what the runs of a cron request, or says why it cannot be carried out.
pub type ReadCron = fn(&CronRow) -> Result<request::Run, String>;

impl Service {
    /// Lets this process create the runs of crons that are due, until the server drains.
    pub fn start_crons(&self, read: ReadCron) {
        tokio::spawn(self.clone().fire_crons(read));
    }

    async fn fire_crons(self, read: ReadCron) {
        let mut poll = tokio::time::interval(self.inner.options.poll);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.shared.drain.cancelled() => return,
                _ = poll.tick() => {}
            }
            match self.fire_due(read).await {
                Ok(()) | Err(Error::Draining) => {}
                Err(error) => tracing::warn!(%error, "crons that are due could not be served"),
            }
        }
    }

    /// Serves the crons that are due, batch after batch, as long as each batch moves some of them on.
    async fn fire_due(&self, read: ReadCron) -> Result<(), Error> {
        loop {
            let (now, mut due) = self.shared.parts.crons.due(BATCH).await?;
            let is_full = due.len() == BATCH;
            // Other processes have read the same ones: each begins with others.
            due.shuffle(&mut rand::rng());
            let fired = futures::stream::iter(due)
                .map(|cron| async move { self.fire(&cron, now, read(&cron)).await })
                .buffer_unordered(AT_ONCE)
                .collect::<Vec<_>>();
            let (mut moved, mut failed) = (false, None);
            for result in fired.await {
                match result {
                    Ok(is_first) => moved |= is_first,
                    Err(error) => failed = Some(error),
                }
            }
            match failed {
                Some(error) if !moved || self.shared.drain.is_cancelled() => return Err(error),
                _ if !is_full || !moved => return Ok(()),
                _ => {}
            }
        }
    }
}
