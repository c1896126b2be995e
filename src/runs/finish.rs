//! Finishing a run: its final row, and its result for those who wait.

use std::{mem, sync::Arc, time::Duration};

use super::{
    Error, Finish, LeftResult, Run, RunHandle, RunResult, Service, Status,
    result::{NOT_FOUND, Values},
};
use crate::{
    assistants::Registered,
    checkpoint::{self, Slot},
    engine::{self, Ended},
    fail_point,
    stream::{LastFrames, Publisher},
    tree::{self, Outcome},
    value::{Map, Value},
};

/// Pauses between attempts to store the end of a run.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// Attempts when the storage refuses for a reason that may stay.
const TRIES: u32 = 8;

/// Bytes of frames that go with the final row; more of them are stored before it.
const LAST_FRAMES: u64 = 256 << 10;

/// What became of a final row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FinalRow {
    /// It is durable; where the frames that were stored with it are in the log, as far as that is known.
    Written(Vec<i64>),
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
    /// Writes the last supersteps of a run that is done in one transaction with its final row, and with the last frames of
    /// a stream that has a log: those, once they and the row are written. Otherwise the supersteps are tried by
    /// themselves, and the run has failed if they cannot be stored. Of a run whose thread goes with it they are not
    /// written at all.
    pub(super) async fn finish_with_rest(
        &self,
        run: &Run,
        slot: Slot,
        finished: &mut engine::Finished,
        publisher: &Publisher,
    ) -> Option<LastFrames> {
        let rest = finished.rest.take()?;
        if !matches!(finished.result, Ok(Ended::Done)) {
            // Its time was over at the moment when it was done.
            if rest.write().await.is_err() {
                finished.last = None;
            }
            return None;
        }
        if run.temporary {
            // No later run begins with what the last of them left.
            finished.last = None;
            return None;
        }
        let mut frames = None;
        if publisher.unlogged_bytes() <= LAST_FRAMES {
            frames = self.take_last(publisher, None).await;
        }
        // A stream that has a log has its end at least.
        let is_logged = publisher.is_logged();
        let Some(mut frames) = frames.filter(|frames| !is_logged || !frames.is_empty()) else {
            if let Err(error) = rest.write().await {
                finished.result = Err(error.into());
                finished.last = None;
            }
            return None;
        };
        let commits = rest.commits();
        for _ in &commits {
            fail_point!(async "engine::before_commit");
        }
        fail_point!("runs::before_finish");
        let row = Finish {
            slot: finished.slot.unwrap_or(slot),
            run: run.id,
            status: Status::Success,
            outcome: Outcome::Idle,
            error: None,
            delete_thread: false,
            committing: Arc::default(),
            left: None,
            frames: frames.chunks().to_vec(),
        };
        match self.shared.parts.runs.finish_with(commits, row).await {
            Ok(positions) => {
                fail_point!("engine::after_commit");
                frames.stored_at(positions);
                return Some(frames);
            }
            Err(error) => tracing::debug!(run = %run.id, %error, "a run is ended in two steps"),
        }
        publisher.go_on();
        if let Err(error) = rest.write().await {
            finished.result = Err(error.into());
            finished.last = None;
        }
        None
    }

    /// Writes the final row unless it is written, with these frames, publishes a failure to the stream, and returns the
    /// result. `None` when another process has ended the run or takes it over. Of an end that the storage
    /// refuses, row and result say just that.
    pub(super) async fn finish(
        &self,
        run: &Run,
        slot: Slot,
        finished: Result<(Arc<Registered>, engine::Finished), Error>,
        handle: &RunHandle,
        ended: Option<LastFrames>,
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
                        reason = handle.reason.lock().clone();
                    }
                    Err(failure) if self.was_cut(&failure, handle) => {
                        (status, outcome) = (Status::Interrupted, Outcome::Interrupted);
                        reason = handle.reason.lock().clone();
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
                if self.was_cut(&failure, handle) {
                    (status, outcome) = (Status::Interrupted, Outcome::Interrupted);
                    reason = handle.reason.lock().clone();
                } else {
                    status = status_of(&failure);
                    outcome = Outcome::Error;
                    error = Some(failure);
                }
            }
        }
        let shown = error.as_ref().map(|failure| failure_of(run, failure));
        let stored = shown.clone().or(reason);
        let is_logged = handle.publisher.is_logged();
        let result = RunResult {
            status,
            values,
            interrupts,
            error: shown,
            is_past: false,
            goes_on: false,
            memory: None,
        };
        // The log has what a run with a log leaves.
        let left = (run.temporary && !is_logged).then(|| LeftResult {
            body: result.to_value(),
            is_foreign: handle.is_foreign,
        });
        let (row, frames) = match ended {
            Some(frames) => (FinalRow::Written(vec![]), frames),
            None => {
                let row = Finish {
                    slot: at,
                    run: run.id,
                    status,
                    outcome,
                    error: stored,
                    delete_thread: run.temporary,
                    committing: Arc::default(),
                    left,
                    frames: vec![],
                };
                self.write_end(row, slot, &handle.publisher, result.failure())
                    .await
            }
        };
        match row {
            FinalRow::Written(_) => {
                #[cfg(feature = "server")]
                self.wake_deliveries(run);
                if handle.mark_counted() {
                    self.inner.metrics.count_end(status.as_str());
                }
            }
            // Another run took its place, or its thread was deleted: the run did not fail.
            FinalRow::Fenced => {
                tracing::debug!(run = %run.id, thread = %run.thread, "run superseded");
                // Those who read a log are told by whoever looks for more of it.
                if handle.is_abandoned() && !is_logged {
                    handle.publisher.error(NOT_FOUND.0, NOT_FOUND.1);
                }
                return None;
            }
            FinalRow::HandedOver => return None,
            FinalRow::Replaced => {
                #[cfg(feature = "server")]
                self.wake_deliveries(run);
                let (class, message) = REFUSED;
                if handle.mark_counted() {
                    self.inner.metrics.count_end(Status::Error.as_str());
                }
                let result = RunResult::failed(class, message);
                self.show_end(handle, &result, frames).await;
                return Some(result);
            }
        }
        if let Some(failure) = &error {
            let request_id = run.request_id();
            tracing::warn!(run = %run.id, thread = %run.thread, request_id, error = %failure, "run failed");
        }
        self.show_end(handle, &result, frames).await;
        Some(result)
    }

    /// Whether a run was cancelled while its state could not be read in time: what it would go on with is not known.
    fn was_cut(&self, failure: &engine::Error, handle: &RunHandle) -> bool {
        // The class says too little: that of a node's own error may have any name.
        let slow = matches!(
            failure,
            engine::Error::Storage(checkpoint::Error::TookTooLong)
        );
        slow && self.is_cancelled(handle)
    }

    /// Writes the final row with the last frames of a stream that has a log: those, once they are stored with it. Where the
    /// first write of the run was to make a branch that is not there, the row is written at `slot`.
    async fn write_end(
        &self,
        mut row: Finish,
        slot: Slot,
        publisher: &Publisher,
        failure: Option<(&str, &str)>,
    ) -> (FinalRow, LastFrames) {
        // What a log has of a run whose thread goes with it has no end, and stays.
        if row.delete_thread || publisher.unlogged_bytes() > LAST_FRAMES {
            self.flush_log(publisher).await;
        }
        let mut frames = LastFrames::default();
        if !row.delete_thread {
            match self.take_last(publisher, failure).await {
                Some(last) => frames = last,
                None => return (FinalRow::HandedOver, frames),
            }
        }
        row.frames = frames.chunks().to_vec();
        let branch = row.slot.branch;
        // The engine may believe that it was fenced when a write only failed: the row decides.
        let mut written = self.write_final_row(&mut row, Some(publisher)).await;
        if matches!(written, FinalRow::Fenced) && branch != slot.branch {
            row.slot = slot;
            written = self.write_final_row(&mut row, Some(publisher)).await;
        }
        match &mut written {
            // The row may have been refused with them.
            FinalRow::Written(positions) if !row.frames.is_empty() => {
                frames.stored_at(mem::take(positions));
                return (written, frames);
            }
            // Readers go on in the log, where the next attempt writes.
            FinalRow::Fenced => publisher.fence(),
            FinalRow::HandedOver => {
                publisher.go_on();
                self.flush_log(publisher).await;
            }
            _ => publisher.go_on(),
        }
        (written, LastFrames::default())
    }

    /// Shows the end of a run that this process executed, once its final row is durable.
    async fn show_end(&self, handle: &RunHandle, result: &RunResult, frames: LastFrames) {
        let failure = result.failure();
        if !frames.is_empty() {
            if !handle.publisher.ended(frames) {
                self.flush_log(&handle.publisher).await;
            }
        } else if handle.publisher.log_end(failure) {
            self.flush_log(&handle.publisher).await;
        } else if let Some((class, message)) = failure {
            handle.publisher.error(class, message);
        }
    }

    /// Waits until the frames of a run are in its log, as long as this process writes there.
    pub(super) async fn flush_log(&self, publisher: &Publisher) {
        let flushed = publisher.flushed();
        let _ = self.inner.stopped.run_until_cancelled(flushed).await;
    }

    /// The frames that are stored with the final row, once those before them are in the log. `None` when they are not
    /// before this process stops: the run is not ended without them.
    async fn take_last(
        &self,
        publisher: &Publisher,
        failure: Option<(&str, &str)>,
    ) -> Option<LastFrames> {
        tokio::select! {
            biased;
            last = publisher.take_last(failure) => Some(last),
            () = self.inner.stopped.cancelled() => None,
        }
    }

    /// Writes the final row with the frames that it has. While the storage fails this retries: the run occupies its slot
    /// until its row is final. What the storage refuses for a reason that stays is written without the frames, which the
    /// `publisher` stores first, and then replaced by a row that has nothing of the run's own, so that the run is not
    /// executed again and again.
    pub(super) async fn write_final_row(
        &self,
        finish: &mut Finish,
        publisher: Option<&Publisher>,
    ) -> FinalRow {
        use crate::checkpoint::Error::Fenced;
        fail_point!("runs::before_finish");
        let (mut wait, mut refusals, mut is_replaced) = (FIRST_PAUSE, 0, false);
        loop {
            let error = match self.shared.parts.runs.finish(finish.clone()).await {
                Ok(_) if is_replaced => return FinalRow::Replaced,
                Ok(positions) => return FinalRow::Written(positions),
                Err(Fenced) => return FinalRow::Fenced,
                Err(error) => error,
            };
            tracing::error!(run = %finish.run, %error, "the end of a run could not be stored");
            if !error.may_pass() {
                refusals += 1;
                if !mem::take(&mut finish.frames).is_empty()
                    && let Some(publisher) = publisher
                {
                    // Nobody appends them once the run has ended.
                    publisher.go_on();
                    self.flush_log(publisher).await;
                }
            }
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
