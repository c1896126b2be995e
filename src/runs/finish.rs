//! Finishing a run: its final row, and its result for those who wait.

use std::{sync::Arc, time::Duration};

use super::{Error, Finish, Run, RunHandle, RunResult, Service, Status};
use crate::{
    assistants::Registered,
    checkpoint::Slot,
    engine::{self, Ended},
    fail_point,
    tree::{Outcome, read::head::displayed_values},
    value::{Map, Value},
};

/// Pauses between attempts to store the end of a run.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// Attempts when the storage refuses for a reason that may stay.
const TRIES: u32 = 8;

/// What became of a final row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinalRow {
    /// It is durable.
    Written,
    /// Another process has ended the run or taken it over: its row is the truth.
    Fenced,
    /// The storage refused to write it.
    Failed,
}

impl Service {
    /// Writes the final row, publishes a failure to the stream, and returns the result. `None` when
    /// another process has ended the run or taken it over. Of a row that the storage refuses, the
    /// result says just that.
    pub(super) async fn finish(
        &self,
        run: &Run,
        slot: Slot,
        finished: Result<(Arc<Registered>, engine::Finished), Error>,
        handle: &RunHandle,
    ) -> Option<RunResult> {
        let (mut status, mut outcome, mut error, mut at) =
            (Status::Success, Outcome::Idle, None, slot);
        let (mut values, mut interrupts) = (Value::map(Map::new()), vec![]);
        let mut reason = None;
        match finished {
            Ok((registered, finished)) => {
                at = finished.slot.unwrap_or(slot);
                values = displayed_values(&registered.graph, &finished.values);
                match finished.result {
                    Ok(Ended::Done) => {}
                    Ok(Ended::Breakpoint) => outcome = Outcome::Interrupted,
                    Ok(Ended::Interrupted(open)) => {
                        outcome = Outcome::Interrupted;
                        interrupts = open;
                    }
                    Err(engine::Error::Cancelled) => {
                        status = Status::Interrupted;
                        outcome = left_over(&finished.next);
                        reason = handle.reason.lock().take();
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
                    self.shared.cache.insert(slot.tree, last);
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
        let stored = shown.clone().or(reason);
        // The engine may believe that it was fenced when a write only failed: the row decides.
        let mut row = self
            .write_final_row(run, at, status, outcome, stored.clone())
            .await;
        if matches!(row, FinalRow::Fenced) && at.branch != slot.branch {
            // The branch that its first write was to make is not there.
            row = self
                .write_final_row(run, slot, status, outcome, stored)
                .await;
        }
        match row {
            FinalRow::Written => {}
            FinalRow::Fenced => return None,
            FinalRow::Failed => {
                let (class, message) = (
                    "InternalError",
                    "the end of the run could not be stored; it may run again: join it once more",
                );
                handle.publisher.error(class, message);
                return Some(RunResult::failed(class, message));
            }
        }
        if let Some(failure) = &error {
            handle.publisher.error(failure.class(), &failure.message());
        }
        Some(RunResult {
            status,
            values,
            interrupts,
            error: shown,
            is_past: false,
        })
    }

    /// Writes the final row. While the storage is not available this retries: the run occupies
    /// its slot until its row is final.
    pub(super) async fn write_final_row(
        &self,
        run: &Run,
        slot: Slot,
        status: Status,
        outcome: Outcome,
        error: Option<Value>,
    ) -> FinalRow {
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
            match self.shared.parts.runs.finish(finish.clone()).await {
                Ok(()) => return FinalRow::Written,
                Err(Fenced) => return FinalRow::Fenced,
                Err(error) => {
                    tracing::error!(run = %run.id, %error, "the end of a run could not be stored");
                    tries += 1;
                    if tries == TRIES && !matches!(error, Unavailable(_)) {
                        return FinalRow::Failed;
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
    if next.is_empty() {
        Outcome::Idle
    } else {
        Outcome::Interrupted
    }
}
