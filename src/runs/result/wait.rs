//! Waiting for the result of a run, whichever process executes it.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tokio::sync::oneshot;

use super::RunResult;
use crate::{
    budget::Reservation,
    checkpoint, engine,
    runs::{
        Error, Run, RunHandle, Service, Status, active::PendingRun, listing::BATCH_BYTES,
        request::Target, shared::memory::ReadMemory,
    },
    tree::{
        self, Thread,
        members::{Access, LOCAL_PRINCIPAL},
        read::head::Head,
    },
};

/// How often the row of a run is read that another process executes.
const POLL: Duration = Duration::from_millis(500);
/// How long the result of a run waits for memory, if not for a client.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after the storage failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the result of an ended run is read before it counts as one without values.
const TRIES: usize = 10;

impl Service {
    /// The result of a run of this process. A run that was deleted or rolled back meanwhile is not
    /// found; `temporary` ones are always deleted by then.
    pub async fn result(&self, run: Target, temporary: bool, handle: RunHandle) -> RunResult {
        let result = handle.ended().await;
        if let Some(result) = &result
            && result.status != Status::Interrupted
        {
            return (**result).clone();
        }
        let row = self.find_row(run.thread, run.run).await;
        match (row, result) {
            (Ok(None), _) if !temporary => RunResult::not_found(),
            (Ok(Some(row)), None) if !row.status.is_final() => RunResult::handed_over(),
            (_, Some(result)) => (*result).clone(),
            // What became of it is not known here.
            (Err(_), None) => RunResult::handed_over(),
            (_, None) => RunResult::empty(Status::Interrupted),
        }
    }

    /// The result of a run, whichever process executes it, once it has ended. Large values that are read for
    /// it take `memory`, as long as the result is there.
    ///
    /// # Errors
    /// No such thread, or none of the client's; or the storage failed before the wait began.
    pub async fn join(
        &self,
        access: &Access,
        run: Target,
        memory: Option<ReadMemory>,
    ) -> Result<Option<BoxFuture<'static, RunResult>>, Error> {
        self.authorize_stream(access, run).await?;
        let service = self.clone();
        // From here on no run that begins here is missed, however soon it ends.
        let mut begun = self.awaited(run);
        if let Ok(handle) = begun.try_recv() {
            let result = async move { service.result(run, false, handle).await };
            return Ok(Some(result.boxed()));
        }
        let Some(row) = self.find_row(run.thread, run.run).await? else {
            if let Ok(handle) = begun.try_recv() {
                let result = async move { service.result(run, true, handle).await };
                return Ok(Some(result.boxed()));
            }
            if self.ended(access, run).await?.is_none() {
                return Ok(None);
            }
            let result = self.result_of_log(run).await?;
            return Ok(result.map(|result| std::future::ready(result).boxed()));
        };
        Ok(Some(
            async move { service.remote_result(run, row, begun, memory).await }.boxed(),
        ))
    }

    /// The result of a run that this process did not execute when its `row` was read: the row is read
    /// until it is final, or until this process takes the run over, as `begun` tells.
    async fn remote_result(
        &self,
        run: Target,
        row: Run,
        mut begun: oneshot::Receiver<RunHandle>,
        memory: Option<ReadMemory>,
    ) -> RunResult {
        let is_past = row.status.is_final();
        let mut changes = self.shared.hints.watch(run.thread);
        self.await_end_of(&row).await;
        loop {
            let waits = match self.find_row(run.thread, run.run).await {
                Ok(Some(row)) if row.status.is_final() => {
                    return self.result_read_in(row, memory.as_ref(), is_past).await;
                }
                Ok(Some(_)) => true,
                Ok(None) => false,
                Err(ref error) => {
                    tracing::warn!(%error, "a run could not be read");
                    tokio::time::sleep(PAUSE).await;
                    true
                }
            };
            tokio::select! {
                biased;
                Ok(handle) = &mut begun, if !begun.is_terminated() => {
                    return self.result(run, row.temporary, handle).await;
                }
                () = async {}, if !waits => return self.result_of_gone(run).await,
                () = changes.wait(POLL) => {}
            }
        }
    }

    /// Has the result of a run outlive it, if the run goes with its thread: this process reads it after its
    /// end.
    pub(in crate::runs) async fn await_end_of(&self, row: &Run) {
        if !row.temporary || row.status.is_final() {
            return;
        }
        if let Err(error) = self.shared.parts.runs.await_end(row.id).await {
            tracing::warn!(%error, run = %row.id, "the end of a run may be missed");
        }
    }

    /// The result of a run whose row is gone: a temporary one may have left its log.
    async fn result_of_gone(&self, run: Target) -> RunResult {
        let read = || async { Ok(self.result_of_log(run).await?) };
        let result = patiently(read).await.unwrap_or_else(|error| {
            tracing::warn!(%error, run = %run.run, "the log of a run could not be read");
            None
        });
        result.unwrap_or_else(RunResult::not_found)
    }

    /// The result of a run by its final row, read once. Values that are large are read once there is memory for
    /// them: the run's principal pays for it. Where its other runs have that for long, such values are read one by one
    /// beside it.
    pub(in crate::runs) async fn result_of_row(&self, row: &Run) -> RunResult {
        result_with(row, self.head_in_time(row).await)
    }

    /// The same for a client that waits, in its memory if it has any. One that came after the run's end gets what the
    /// thread shows now.
    async fn result_read_in(
        &self,
        row: Run,
        memory: Option<&ReadMemory>,
        is_past: bool,
    ) -> RunResult {
        let own = self.memory_of(&row);
        let memory = memory.unwrap_or(&own);
        let read = || async {
            let thread = if is_past {
                self.shared.thread(row.thread).await?
            } else {
                self.thread_left_by(&row).await?
            };
            self.shared.head_read_in(&thread, memory).await
        };
        RunResult {
            is_past,
            ..result_with(&row, patiently(read).await)
        }
    }

    /// The memory for what is read of a run for nobody's response.
    pub(in crate::runs) fn memory_of(&self, row: &Run) -> ReadMemory {
        let payer = row.principal.clone();
        let payer = payer.unwrap_or_else(|| LOCAL_PRINCIPAL.into());
        self.shared.states.read_by(payer)
    }

    /// The thread as a run left it: on the run's branch, at its last checkpoint if it left one, and with its graph. Other
    /// branches and later runs may have moved on meanwhile.
    async fn thread_left_by(&self, row: &Run) -> Result<Thread, Error> {
        let mut thread = self.shared.thread(row.thread).await?;
        if let Some(branch) = row.branch {
            thread.active_branch = branch;
            thread.head = row.last_checkpoint;
            if let Some(graph) = row.metadata.get("graph_id") {
                thread.metadata.insert("graph_id", graph.clone());
            }
        }
        Ok(thread)
    }

    async fn head_in_time(&self, row: &Run) -> Result<(Head, Option<Reservation>), Error> {
        let thread = self.thread_left_by(row).await?;
        let Some(weighed) = self.shared.weighed_head(&thread, BATCH_BYTES).await? else {
            return Ok((Head::default(), None));
        };
        let memory = self.memory_of(row);
        let mut waiting = pin!(memory.wait(weighed.weight()));
        let in_time = tokio::time::timeout(PATIENCE, &mut waiting).await;
        let (memory, _beside) = match in_time {
            Ok(memory) => (memory, None),
            Err(_) => tokio::select! {
                memory = &mut waiting => (memory, None),
                beside = self.shared.states.result_beside() => (None, beside),
            },
        };
        let head = self.shared.read_head(&thread, &weighed, None).await?;
        Ok((head, memory))
    }

    /// Publishes the result of a run that waits here and was executed elsewhere, and shows its end to those
    /// who read its stream: what they have is the log's, or nothing.
    pub(in crate::runs) fn publish_left(&self, pending: PendingRun, result: RunResult) {
        let publisher = &pending.handle.publisher;
        if let Some((class, message)) = result.failure() {
            publisher.error(class, message);
        } else if result.status == Status::Success && !publisher.is_logged() {
            for values in result.streamed_values() {
                publisher.values(&values);
            }
        }
        self.publish_result(pending, result);
    }

    /// Publishes the result of a run that waits here to everybody who waits for it, and closes its
    /// stream.
    pub(in crate::runs) fn publish_result(&self, pending: PendingRun, result: RunResult) {
        let publisher = &pending.handle.publisher;
        publisher.ends_as(result.shown_end());
        publisher.close();
        self.inner.hub.finish(publisher);
        pending.result.send_replace(Some(Arc::new(result)));
    }
}

/// The result of a run of this row with the values that were read; without any if they could not be.
fn result_with(row: &Run, head: Result<(Head, Option<Reservation>), Error>) -> RunResult {
    let (head, reserved) = head.unwrap_or_else(|error| {
        tracing::warn!(%error, "the values of a run could not be read");
        (Head::default(), None)
    });
    RunResult {
        memory: reserved.map(Into::into),
        ..RunResult::of_row(row, head)
    }
}

/// Reads again while the storage is away or the principal has its share of it: a result without its values would be
/// taken for the true one.
async fn patiently<T, F>(read: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    for _ in 1..TRIES {
        match read().await {
            Err(error) if is_busy(&error) => {
                tracing::info!(%error, "the result of a run is read again");
                tokio::time::sleep(PAUSE).await;
            }
            read => return read,
        }
    }
    read().await
}

/// Whether the storage is away or the principal has its share of it. What took too long would again.
fn is_busy(error: &Error) -> bool {
    let (Error::Storage(error)
    | Error::Tree(
        tree::Error::Storage(error) | tree::Error::Engine(engine::Error::Storage(error)),
    )
    | Error::Engine(engine::Error::Storage(error))) = error
    else {
        return false;
    };
    matches!(
        error,
        checkpoint::Error::Unavailable(_) | checkpoint::Error::ShareUsed(_)
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// How often something is read that fails with this error, when the third time would succeed.
    async fn reads(error: impl Fn() -> Error) -> (usize, bool) {
        let count = AtomicUsize::new(0);
        let (count, error) = (&count, &error);
        let read = || async move {
            match count.fetch_add(1, Ordering::Relaxed) {
                2.. => Ok(()),
                _ => Err(error()),
            }
        };
        let is_read = patiently(read).await.is_ok();
        (count.load(Ordering::Relaxed), is_read)
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_client_waits_for_is_read_until_the_storage_has_time_for_it() {
        let away = || checkpoint::Error::Unavailable("it is away".to_owned());
        assert_eq!(reads(|| away().into()).await, (3, true));
        let wrapped = || Error::Tree(tree::Error::Storage(away()));
        assert_eq!(reads(wrapped).await, (3, true));
        let too_long = || checkpoint::Error::TookTooLong.into();
        assert_eq!(reads(too_long).await, (1, false));
    }
}
