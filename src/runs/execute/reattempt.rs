//! Attempting a run once more whose attempt lost the storage: an acknowledged run does not fail
//! because a disk is full or a database restarts.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::owner_of;
use crate::{
    assistants::Registered,
    engine::{self, Finished},
    runs::{ClaimedRun, Error, Run, RunHandle, Service},
    stream::log::ATTEMPT_FRAMES,
};

/// Pauses before the storage is written to again.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LAST_PAUSE: Duration = Duration::from_secs(5);

type Attempted = Result<(Arc<Registered>, Finished), Error>;

/// How a run whose attempt lost the storage goes on.
pub(super) enum Reattempt {
    /// It was claimed anew.
    Claimed(Box<ClaimedRun>),
    /// Another process has taken it over, or it has ended.
    Fenced,
    /// This process stops before the storage is back: the next one takes the run over.
    HandedOver,
}

/// Attempts that follow each other because the storage was lost.
pub(super) struct AttemptLimit {
    until: Instant,
    pause: Duration,
}

impl AttemptLimit {
    /// As long as one attempt may take.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            until: Instant::now() + limit,
            pause: FIRST_PAUSE,
        }
    }

    /// Whether the attempt is to be made again.
    pub(super) fn allows(&self, attempted: &Attempted) -> bool {
        lost_storage(attempted) && Instant::now() < self.until
    }
}

/// Whether an attempt ended because the storage could not be reached or written to.
fn lost_storage(attempted: &Attempted) -> bool {
    let error = match attempted {
        Err(Error::Storage(error) | Error::Engine(engine::Error::Storage(error))) => error,
        Ok((
            _,
            Finished {
                result: Err(engine::Error::Storage(error)),
                ..
            },
        )) => error,
        _ => return false,
    };
    error.may_pass()
}

impl Service {
    /// Waits until the storage can be written to, and claims the run anew: what the last attempt
    /// may still write does not count, and the next one begins at the run's last checkpoint.
    pub(super) async fn reattempt(
        &self,
        run: &Run,
        handle: &RunHandle,
        attempts: &mut AttemptLimit,
    ) -> Reattempt {
        tracing::warn!(run = %run.id, "the storage was lost: the run goes on when it is back");
        loop {
            tokio::select! {
                () = self.inner.hand_over.cancelled() => return Reattempt::HandedOver,
                () = tokio::time::sleep(attempts.pause) => {}
            }
            attempts.pause = LAST_PAUSE.min(attempts.pause * 2);
            if let Err(error) = self.probe().await {
                tracing::debug!(run = %run.id, %error, "the storage is not back");
                continue;
            }
            let runs = &self.shared.parts.runs;
            match runs.reclaim(self.shared.worker, run.id).await {
                Ok(Some(claimed)) => {
                    let attempt = claimed.run.attempt;
                    let earlier = u64::try_from(attempt - 1).unwrap_or(0);
                    let publisher = &handle.publisher;
                    publisher.begin_attempt(attempt, earlier * ATTEMPT_FRAMES);
                    publisher.own(owner_of(claimed.slot));
                    return Reattempt::Claimed(Box::new(claimed));
                }
                Ok(None) => return Reattempt::Fenced,
                Err(error) => {
                    tracing::warn!(run = %run.id, %error, "the run could not be claimed anew");
                }
            }
        }
    }
}
