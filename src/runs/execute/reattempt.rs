//! Attempting a run once more whose attempt lost the storage: an acknowledged run does not fail
//! because a disk is full or a database restarts. A read that takes too long is attempted some times
//! only, since each attempt loads the database as much as the one before.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::owner_of;
use crate::{
    assistants::Registered,
    checkpoint::{self, Slot},
    engine::{self, Finished},
    runs::{ClaimedRun, Error, Run, RunHandle, Service},
    stream::log::ATTEMPT_FRAMES,
    tree,
};

/// Pauses before the storage is written to again.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Attempts in which a read took longer than it may, before the run fails; the pauses between them double, to some twenty
/// minutes in all: a database that is slow for a while is waited for.
const SLOW_READS: u32 = 9;
const SLOW_PAUSE: Duration = Duration::from_secs(5);
/// An attempt that lasted this long is taken to have made progress before its read took too long: the count begins anew.
const GOT_ON: Duration = Duration::from_secs(600);

type Attempted = Result<(Arc<Registered>, Finished), Error>;

/// How a run whose attempt lost the storage goes on.
pub(super) enum Reattempt {
    /// It was claimed anew.
    Claimed(Box<ClaimedRun>),
    /// Another process has taken it over, or it has ended.
    Fenced,
    /// This process stops before the storage is back: the next one takes the run over.
    HandedOver,
    /// It was cancelled while a read that took too long was to be attempted again.
    Cancelled,
}

/// What is to become of a run while its attempt ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    GoOn,
    /// Somebody has cancelled it.
    Cancel,
    /// This process stops: it is left to another.
    HandOver,
}

/// Attempts that follow each other because the storage was lost.
pub(super) struct AttemptLimit {
    until: Instant,
    pause: Duration,
    began: Instant,
    slow_reads: u32,
}

impl AttemptLimit {
    /// As long as one attempt may take.
    pub(super) fn new(limit: Duration) -> Self {
        let now = Instant::now();
        Self {
            until: now + limit,
            pause: FIRST_PAUSE,
            began: now,
            slow_reads: 0,
        }
    }

    /// Whether an attempt that ended like this is to be made again, here or in another process; not for a read that
    /// took too long in a run that was cancelled.
    pub(super) fn allows(&mut self, attempted: &Attempted, wish: Wish) -> bool {
        let Some(error) = lost_storage(attempted) else {
            return false;
        };
        if wish == Wish::HandOver {
            return true;
        }
        let now = Instant::now();
        if matches!(error, checkpoint::Error::TookTooLong) {
            if wish == Wish::Cancel {
                return false;
            }
            if now - self.began >= GOT_ON {
                self.slow_reads = 0;
            }
            self.pause = SLOW_PAUSE * 2_u32.pow(self.slow_reads);
            self.slow_reads += 1;
            if self.slow_reads >= SLOW_READS {
                return false;
            }
        } else {
            self.slow_reads = 0;
        }
        now < self.until
    }
}

/// Why an attempt ended, if the storage could not be reached, read in time or written to.
fn lost_storage(attempted: &Attempted) -> Option<&checkpoint::Error> {
    let error = match attempted {
        Err(
            Error::Storage(error)
            | Error::Engine(engine::Error::Storage(error))
            | Error::Tree(
                tree::Error::Storage(error) | tree::Error::Engine(engine::Error::Storage(error)),
            ),
        ) => error,
        Ok((
            _,
            Finished {
                result: Err(engine::Error::Storage(error)),
                ..
            },
        )) => error,
        _ => return None,
    };
    error.may_pass().then_some(error)
}

impl Service {
    /// Waits until the storage can be written to, and claims the run anew: what the last attempt
    /// may still write does not count, and the next one begins at the run's last checkpoint.
    pub(super) async fn reattempt(
        &self,
        run: &Run,
        slot: Slot,
        handle: &RunHandle,
        attempts: &mut AttemptLimit,
    ) -> Reattempt {
        if attempts.slow_reads > 0 {
            let (tries, pause) = (attempts.slow_reads, attempts.pause);
            tracing::warn!(run = %run.id, tries, ?pause, "a read of the run took longer than it may: it is attempted again");
        } else {
            tracing::warn!(run = %run.id, "the storage was lost: the run goes on when it is back");
        }
        loop {
            tokio::select! {
                biased;
                () = self.inner.hand_over.cancelled() => return Reattempt::HandedOver,
                // Who cancels it does not wait for the end of a long pause.
                () = handle.cancel.cancelled(), if attempts.slow_reads > 0 => return Reattempt::Cancelled,
                () = tokio::time::sleep(attempts.pause) => {}
            }
            attempts.pause = LAST_PAUSE.min(attempts.pause * 2);
            if let Err(error) = self.probe().await {
                tracing::debug!(run = %run.id, %error, "the storage is not back");
                // What is slow after an outage is slow because of it.
                attempts.slow_reads = 0;
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
                    attempts.began = Instant::now();
                    if claimed.slot.head != slot.head {
                        // It got on before its read took too long.
                        attempts.slow_reads = 0;
                    }
                    return Reattempt::Claimed(Box::new(claimed));
                }
                Ok(None) => return Reattempt::Fenced,
                Err(error) => {
                    tracing::warn!(run = %run.id, %error, "the run could not be claimed anew");
                    attempts.slow_reads = 0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(error: checkpoint::Error) -> Attempted {
        Err(Error::Tree(tree::Error::Storage(error)))
    }

    /// How many attempts follow a first one when every read takes too long, and what their pauses are in seconds.
    async fn attempts(limit: &mut AttemptLimit, lasts: Duration) -> Vec<u64> {
        let slow = failed(checkpoint::Error::TookTooLong);
        let mut pauses = vec![];
        while pauses.len() < 100 && limit.allows(&slow, Wish::GoOn) {
            pauses.push(limit.pause.as_secs());
            tokio::time::sleep(limit.pause).await;
            limit.began = Instant::now();
            tokio::time::sleep(lasts).await;
        }
        pauses
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_takes_too_long_is_attempted_nine_times_with_longer_and_longer_pauses() {
        let mut limit = AttemptLimit::new(Duration::from_secs(36_000));
        let pauses = attempts(&mut limit, Duration::from_secs(5)).await;
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 640]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_slow_after_an_attempt_that_got_on_is_counted_anew() {
        let mut limit = AttemptLimit::new(Duration::from_secs(36_000));
        let pauses = attempts(&mut limit, GOT_ON).await;
        assert!(pauses.len() > 50, "until the time of the run is over");
        assert!(pauses.iter().all(|pause| *pause == 5), "{pauses:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_that_is_away_is_waited_for_as_long_as_an_attempt_may_take() {
        let mut limit = AttemptLimit::new(Duration::from_secs(3600));
        let away = failed(checkpoint::Error::Unavailable("away".to_owned()));
        for _ in 0..100 {
            assert!(limit.allows(&away, Wish::Cancel));
        }
        tokio::time::sleep(Duration::from_secs(3601)).await;
        assert!(!limit.allows(&away, Wish::GoOn));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_run_is_not_read_for_again_and_one_that_is_handed_over_is() {
        let mut limit = AttemptLimit::new(Duration::from_secs(3600));
        let slow = failed(checkpoint::Error::TookTooLong);
        limit.slow_reads = SLOW_READS;
        assert!(limit.allows(&slow, Wish::HandOver), "by another process");
        limit.slow_reads = 0;
        assert!(limit.allows(&slow, Wish::GoOn));
        assert!(!limit.allows(&slow, Wish::Cancel));
    }

    #[test]
    fn a_read_that_takes_too_long_has_a_class_and_names_the_setting() {
        let error = engine::Error::Storage(checkpoint::Error::TookTooLong);
        assert_eq!(error.class(), "ReadLimitError");
        assert!(error.message().contains("BACKSTITCH_READ_LIMIT"));
        assert!(!error.is_internal());
    }
}
