//! Finishing a run: its final row, and its result for those who wait.

use std::{sync::Arc, time::Duration};

use super::{
    Error, Finish, LeftResult, Run, RunHandle, RunResult, Service, Status, result::Values,
};
use crate::{
    assistants::Registered,
    checkpoint::Slot,
    engine::{self, Ended},
    fail_point,
    tree::{self, Outcome},
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
    /// What the run left cannot be stored: a row that says only that is durable.
    Replaced,
    /// Another process has ended the run or taken it over: its row is the truth.
    Fenced,
    /// This server stops; another process continues with the run.
    HandedOver,
}

/// What the row says of a run whose real end the storage refuses.
const REFUSED: (&str, &str) = ("InternalError", "the end of the run could not be stored");

impl Service {
    /// Writes the last supersteps of a run that is done in one transaction with its final row; whether
    /// they and the row are written. Otherwise the supersteps are tried by themselves, and the run has
    /// failed if they cannot be stored. Of a run whose thread goes with it they are not written at all.
    pub(super) async fn finish_with_rest(
        &self,
        run: &Run,
        slot: Slot,
        finished: &mut engine::Finished,
    ) -> bool {
        let Some(rest) = finished.rest.take() else {
            return false;
        };
        if !matches!(finished.result, Ok(Ended::Done)) {
            // Its time was over at the moment when it was done.
            if rest.write().await.is_err() {
                finished.last = None;
            }
            return false;
        }
        if run.temporary {
            // No later run begins with what the last of them left.
            finished.last = None;
            return false;
        }
        let commits = rest.commits();
        for _ in &commits {
            fail_point!("engine::before_commit");
        }
        fail_point!("runs::before_finish");
        let row = Finish {
            slot: finished.slot.unwrap_or(slot),
            run: run.id,
            status: Status::Success,
            outcome: Outcome::Idle,
            error: None,
            delete_thread: false,
            left: None,
        };
        match self.shared.parts.runs.finish_with(commits, row).await {
            Ok(()) => {
                fail_point!("engine::after_commit");
                return true;
            }
            Err(error) => tracing::debug!(run = %run.id, %error, "a run is ended in two steps"),
        }
        if let Err(error) = rest.write().await {
            finished.result = Err(error.into());
            finished.last = None;
        }
        false
    }

    /// Writes the final row unless it `has_ended`, publishes a failure to the stream, and returns the
    /// result. `None` when another process has ended the run or takes it over. Of an end that the storage
    /// refuses, row and result say just that.
    pub(super) async fn finish(
        &self,
        run: &Run,
        slot: Slot,
        finished: Result<(Arc<Registered>, engine::Finished), Error>,
        handle: &RunHandle,
        has_ended: bool,
    ) -> Option<RunResult> {
        let (mut status, mut outcome, mut error, mut at) =
            (Status::Success, Outcome::Idle, None, slot);
        let (mut values, mut interrupts) = (Value::map(Map::new()).into(), vec![]);
        let (mut reason, mut _memory) = (None, None);
        match finished {
            Ok((registered, finished)) => {
                // Until the end is written.
                _memory = finished.memory;
                at = finished.slot.unwrap_or(slot);
                values = Values::stored(finished.values, registered.graph.clone());
                match finished.result {
                    Ok(Ended::Done) => {}
                    // Behind the last node nothing waits.
                    Ok(Ended::Breakpoint) => outcome = Outcome::left_with(&finished.next),
                    Ok(Ended::Interrupted(open)) => {
                        outcome = Outcome::Interrupted;
                        interrupts = open;
                    }
                    Err(engine::Error::Cancelled) => {
                        status = Status::Interrupted;
                        outcome = Outcome::left_with(&finished.next);
                        reason = handle.reason.lock().take();
                    }
                    Err(failure) => {
                        status = status_of(&failure);
                        outcome = Outcome::Error;
                        error = Some(failure);
                    }
                }
                if let Some(last) = finished.last {
                    self.shared.cache.insert_end(at, last);
                }
            }
            Err(failure) => {
                let failure = match failure {
                    Error::Engine(error) => error,
                    Error::Storage(error) | Error::Tree(tree::Error::Storage(error)) => {
                        engine::Error::Storage(error)
                    }
                    Error::Tree(tree::Error::Engine(error)) => error,
                    other => engine::Error::value(other.to_string()),
                };
                status = status_of(&failure);
                outcome = Outcome::Error;
                error = Some(failure);
            }
        }
        let shown = error.as_ref().map(|failure| failure_of(run, failure));
        let stored = shown.clone().or(reason);
        // What a reader is shown of a run that has a log is in the log before the run has ended, all but its failure.
        let is_logged = handle.publisher.is_logged();
        if is_logged {
            self.flush_log(handle).await;
        }
        let result = RunResult {
            status,
            values,
            interrupts,
            error: shown,
            is_past: false,
            memory: None,
        };
        // The log has what a run with a log leaves.
        let left = (run.temporary && !is_logged).then(|| LeftResult {
            body: result.to_value(),
            is_foreign: handle.is_foreign,
        });
        // The engine may believe that it was fenced when a write only failed: the row decides.
        let mut row = if has_ended {
            FinalRow::Written
        } else {
            self.write_final_row(run, at, status, outcome, stored.clone(), left.clone())
                .await
        };
        if matches!(row, FinalRow::Fenced) && at.branch != slot.branch {
            // The branch that its first write was to make is not there.
            row = self
                .write_final_row(run, slot, status, outcome, stored, left)
                .await;
        }
        match row {
            FinalRow::Written => {
                #[cfg(feature = "server")]
                self.wake_deliveries(run);
                self.inner.metrics.count_end(status.as_str());
            }
            // Another run took its place, or its thread was deleted: the run did not fail.
            FinalRow::Fenced => {
                tracing::debug!(run = %run.id, thread = %run.thread, "run superseded");
                // Readers go on in the log, where the next attempt writes.
                handle.publisher.fence();
                return None;
            }
            FinalRow::HandedOver => return None,
            FinalRow::Replaced => {
                #[cfg(feature = "server")]
                self.wake_deliveries(run);
                let (class, message) = REFUSED;
                self.inner.metrics.count_end(Status::Error.as_str());
                let result = RunResult::failed(class, message);
                self.show_end(handle, &result).await;
                return Some(result);
            }
        }
        if let Some(failure) = &error {
            let request_id = run.request_id();
            tracing::warn!(run = %run.id, thread = %run.thread, request_id, error = %failure, "run failed");
        }
        self.show_end(handle, &result).await;
        Some(result)
    }

    /// Shows the end of a run that this process executed, once its final row is durable.
    async fn show_end(&self, handle: &RunHandle, result: &RunResult) {
        let failure = result.failure();
        if handle.publisher.log_end(failure) {
            self.flush_log(handle).await;
        } else if let Some((class, message)) = failure {
            handle.publisher.error(class, message);
        }
    }

    /// Waits until the frames of a run are in its log, as long as this process works.
    pub(super) async fn flush_log(&self, handle: &RunHandle) {
        let flushed = handle.publisher.flushed();
        let _ = self.inner.hand_over.run_until_cancelled(flushed).await;
    }

    /// Writes the final row. While the storage fails this retries: the run occupies its slot until
    /// its row is final. What the storage refuses for a reason that stays is replaced by a row that
    /// has nothing of the run's own, so that the run is not executed again and again.
    pub(super) async fn write_final_row(
        &self,
        run: &Run,
        slot: Slot,
        status: Status,
        outcome: Outcome,
        error: Option<Value>,
        left: Option<LeftResult>,
    ) -> FinalRow {
        use crate::checkpoint::Error::Fenced;
        fail_point!("runs::before_finish");
        let mut finish = Finish {
            slot,
            run: run.id,
            status,
            outcome,
            error,
            delete_thread: run.temporary,
            left,
        };
        let (mut wait, mut refusals, mut is_replaced) = (FIRST_PAUSE, 0, false);
        loop {
            let error = match self.shared.parts.runs.finish(finish.clone()).await {
                Ok(()) if is_replaced => return FinalRow::Replaced,
                Ok(()) => return FinalRow::Written,
                Err(Fenced) => return FinalRow::Fenced,
                Err(error) => error,
            };
            tracing::error!(run = %run.id, %error, "the end of a run could not be stored");
            refusals += u32::from(!error.may_pass());
            if refusals == TRIES && !is_replaced {
                let (class, message) = REFUSED;
                finish.status = Status::Error;
                finish.outcome = Outcome::Error;
                finish.error = RunResult::failed(class, message).error;
                is_replaced = true;
                continue;
            }
            let pause = tokio::time::sleep(wait);
            if self
                .inner
                .hand_over
                .run_until_cancelled(pause)
                .await
                .is_none()
            {
                return FinalRow::HandedOver;
            }
            wait = LAST_PAUSE.min(wait * 2);
        }
    }
}

/// What clients see of a failure, `{"error", "message"}`: what a node raised as it is, and of what this
/// server is to blame for the id under which its log has it.
fn failure_of(run: &Run, failure: &engine::Error) -> Value {
    if !failure.is_internal() {
        return failure.to_value();
    }
    let message = format!(
        "An internal error occurred: the log of the server has it under the request id {}",
        run.request_id()
    );
    let mut map = Map::with_capacity(2);
    map.insert("error", failure.class());
    map.insert("message", message);
    Value::map(map)
}

/// The status that a failure leaves.
fn status_of(failure: &engine::Error) -> Status {
    match failure.class() {
        "TimeoutError" => Status::Timeout,
        _ => Status::Error,
    }
}
