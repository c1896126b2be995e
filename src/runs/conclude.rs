//! The end of a run: its final row, and what those who wait are told.

use std::{sync::Arc, time::Duration};

use super::{End, Error, Finish, Run, Service, Status, live::Live, service::Registered, view};
use crate::{
    checkpoint::Slot,
    engine::{self, Ended},
    fail_point,
    tree::Outcome,
    value::{Map, Value},
};

/// Pauses between attempts to store the end of a run.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// Attempts when the storage refuses for a reason that may stay.
const TRIES: u32 = 8;

impl Service {
    /// Writes the final row, tells the stream of a failure, and sums up. `None` when
    /// somebody else has ended the run or taken it over.
    pub(super) async fn conclude(
        &self,
        run: &Run,
        slot: Slot,
        finished: Result<(Arc<Registered>, engine::Finished), Error>,
        live: &Live,
    ) -> Option<End> {
        let (mut status, mut outcome, mut error, mut at) =
            (Status::Success, Outcome::Idle, None, slot);
        let (mut values, mut interrupts) = (Value::map(Map::new()), vec![]);
        let mut why = None;
        match finished {
            Ok((registered, finished)) => {
                at = finished.slot.unwrap_or(slot);
                values = view::shown_values(&registered.graph, &finished.values);
                match finished.result {
                    Ok(Ended::Done) => {}
                    Ok(Ended::Breakpoint) => outcome = Outcome::Interrupted,
                    Ok(Ended::Asked(asked)) => {
                        outcome = Outcome::Interrupted;
                        interrupts = asked;
                    }
                    Err(engine::Error::Cancelled) => {
                        status = Status::Interrupted;
                        outcome = left_over(&finished.next);
                        why = live.why.lock().take();
                    }
                    Err(failure) => {
                        status = match failure.class() {
                            "TimeoutError" => Status::Timeout,
                            _ => Status::Error,
                        };
                        outcome = Outcome::Error;
                        error = Some(failure);
                    }
                }
                if let Some(last) = finished.last {
                    self.inner.cache.insert(slot.tree, last);
                }
            }
            Err(failure) => {
                status = Status::Error;
                outcome = Outcome::Error;
                error = Some(match failure {
                    Error::Engine(error) => error,
                    Error::Storage(error) => engine::Error::Storage(error),
                    other => engine::Error::value(other.to_string()),
                });
            }
        }
        if let Some(failure) = &error {
            tracing::warn!(run = %run.id, thread = %run.thread, error = %failure, "run failed");
        }
        let shown = error.as_ref().map(engine::Error::to_value);
        let kept = shown.clone().or(why);
        // The engine may believe that it was fenced when a write only failed: the row decides.
        let mut fenced = !self.finish(run, at, status, outcome, kept.clone()).await;
        if fenced && at.branch != slot.branch {
            // The branch that its first write was to make is not there.
            fenced = !self.finish(run, slot, status, outcome, kept).await;
        }
        if fenced {
            // Somebody cancelled it or took it over: their row is the truth.
            return None;
        }
        if let Some(failure) = &error {
            live.publisher.error(failure.class(), &failure.message());
        }
        Some(End {
            status,
            values,
            interrupts,
            error: shown,
        })
    }

    /// Writes the final row; false when somebody else has written it. While the storage is not
    /// available this goes on trying: the run holds its slot until its row is final.
    pub(super) async fn finish(
        &self,
        run: &Run,
        slot: Slot,
        status: Status,
        outcome: Outcome,
        error: Option<Value>,
    ) -> bool {
        use crate::checkpoint::Error::{Fenced, Unavailable};
        fail_point!("runs::before_finish");
        let finish = Finish {
            slot,
            run: run.id,
            status,
            outcome,
            error,
            delete_thread: run.temporary,
        };
        let mut wait = FIRST_PAUSE;
        let mut tries = 0;
        loop {
            match self.inner.parts.runs.finish(finish.clone()).await {
                Ok(()) => return true,
                Err(Fenced) => return false,
                Err(error) => {
                    tracing::error!(run = %run.id, %error, "the end of a run could not be stored");
                    tries += 1;
                    if tries == TRIES && !matches!(error, Unavailable(_)) {
                        return true;
                    }
                    tokio::time::sleep(wait).await;
                    wait = LAST_PAUSE.min(wait * 2);
                }
            }
        }
    }
}

/// What a cancelled run leaves: nodes that wait, or nothing.
fn left_over(next: &[Arc<str>]) -> Outcome {
    match next.is_empty() {
        true => Outcome::Idle,
        false => Outcome::Interrupted,
    }
}
