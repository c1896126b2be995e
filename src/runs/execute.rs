//! Executing a claimed run: its stream, its request to the engine, and its end.

mod engine_request;

use std::sync::Arc;

use futures::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use self::engine_request::{command_of, context_properties};
use self::engine_request::{config_of, input_of, names};
use super::{
    Claimed, Error, Run, RunHandle, Service, Status,
    active::PendingRun,
    request::{self, Kwargs},
};
use crate::{
    assistants::{Assistant, Registered},
    checkpoint::Slot,
    engine::{self, Request, Tolerance},
    fail_point,
    stream::{self, Publisher},
    tree::{self, Outcome},
    value::Value,
};

/// Numbers of frames that each attempt has to itself: a client that received some of an earlier
/// attempt is shown all of this one.
const FRAMES: u64 = 1_000_000_000;
impl Service {
    /// Executes a run that holds its slot, on a task of its own. `queued`: it came from the
    /// queue, where more of its kind may wait.
    pub(super) fn execute(&self, run: Run, slot: Slot, queued: bool) {
        let service = self.clone();
        let pending = self.take_up(&run);
        self.inner.tracker.spawn(async move {
            let thread = run.thread;
            service.run_to_end(run, slot, pending).await;
            let (waits, running) = {
                let active = service.inner.active.lock();
                (active.waits_on(thread), active.running.len())
            };
            // Until this moment there was no room for others.
            let full = running + 1 >= service.inner.options.slots;
            // Claiming from the queue is a write, so it is done when a run is known to wait;
            // what other processes queued is found by the poll.
            if queued || full || waits {
                service.wake();
            }
        });
    }

    /// Executes runs that were taken from the queue.
    pub(super) fn execute_claimed(&self, claimed: Vec<Claimed>) {
        for claimed in claimed {
            self.execute(claimed.run, claimed.slot, true);
        }
    }

    /// The pending run with its stream, made here if another process created the run.
    fn take_up(&self, run: &Run) -> Option<PendingRun> {
        let mut active = self.inner.active.lock();
        let earlier = u64::try_from(run.attempt - 1).unwrap_or(0);
        let pending = match active.pending.remove(&run.id) {
            Some(mut pending) => {
                if run.attempt > 1 {
                    pending
                        .handle
                        .publisher
                        .begin_attempt(run.attempt, earlier * FRAMES);
                    pending.handle.cancel = CancellationToken::new();
                }
                pending
            }
            None => {
                let kwargs = Kwargs::from_value(&run.kwargs).ok()?;
                let (_, registered) = self
                    .shared
                    .assistants
                    .find(&Assistant::Id(run.assistant))
                    .ok()?;
                let graph = registered.graph.clone();
                let publisher = Publisher::new(stream::Options {
                    attempt: run.attempt,
                    after: earlier * FRAMES,
                    modes: kwargs.stream_mode,
                    temporary: run.temporary,
                    subgraphs: kwargs.subgraphs,
                    resumable: kwargs.resumable,
                    ..stream::Options::new(run.id, run.thread, graph)
                });
                self.inner.hub.insert(publisher.clone());
                PendingRun::new(publisher)
            }
        };
        active.running.insert(run.id, pending.handle.clone());
        self.inner.begun.notify_waiters();
        Some(pending)
    }

    async fn run_to_end(&self, run: Run, slot: Slot, pending: Option<PendingRun>) {
        let Some(pending) = pending else {
            // The graph is gone, or the row is from another version: the run fails and frees its slot.
            let error = engine::Error::value("this server has no graph for the run's assistant");
            let error = Some(error.to_value());
            let outcome = Outcome::Error;
            self.write_final_row(&run, slot, Status::Error, outcome, error)
                .await;
            return;
        };
        let publisher = pending.handle.publisher.clone();
        // A stream that names its branch begins once that is known.
        let branching = run.kwargs.get("branching");
        if branching.is_none_or(Value::is_null) {
            publisher.start();
        }
        self.shared.notifier.notify(run.thread);
        let finished = tokio::select! {
            biased;
            finished = guarded(self.attempt(&run, slot, &pending.handle)) => finished,
            () = self.inner.hand_over.cancelled() => {
                // The next process continues with what is stored. Those who wait here learn that
                // the server has stopped.
                self.inner.active.lock().running.remove(&run.id);
                return;
            }
        };
        let result = self.finish(&run, slot, finished, &pending.handle).await;
        self.shared.notifier.notify(run.thread);
        let Some(result) = result else {
            // Those who wait here get the result that another attempt writes.
            {
                let mut active = self.inner.active.lock();
                active.running.remove(&run.id);
                let since = Some(Instant::now());
                active
                    .pending
                    .insert(run.id, PendingRun { since, ..pending });
            }
            self.end_if_final(run.thread, run.id).await;
            return;
        };
        self.inner.active.lock().running.remove(&run.id);
        self.publish_result(pending, result);
    }

    async fn attempt(
        &self,
        run: &Run,
        slot: Slot,
        handle: &RunHandle,
    ) -> Result<(Arc<Registered>, engine::Finished), Error> {
        let (_, registered) = self.shared.assistants.find(&Assistant::Id(run.assistant))?;
        let kwargs = Kwargs::from_value(&run.kwargs)
            .map_err(|error| Error::Invalid(format!("the stored request: {error}")))?;
        fail_point!("runs::claimed");
        let mut start = self
            .starting_point(run, slot, &kwargs, &handle.publisher)
            .await?;
        if run.temporary {
            // Nothing of it stays, so no message is looked up.
            start.index = None;
        } else if let Some(announced) = &kwargs.announced {
            start.index = Some(Arc::new(tree::Indexer {
                announced: announced
                    .iter()
                    .filter_map(|(id, number)| Some((id.clone(), number.as_i64()?)))
                    .collect(),
                ..tree::Indexer::default()
            }));
        }
        let limit = self.inner.options.recursion_limit;
        let request = Request {
            graph: registered.graph.clone(),
            input: input_of(&kwargs)?,
            config: config_of(run, &kwargs, &registered.graph, limit),
            run: Some(run.id),
            interrupt_before: kwargs.interrupt_before.as_ref().map(names),
            interrupt_after: kwargs.interrupt_after.as_ref().map(names),
            durability: match kwargs.durability {
                request::Durability::Sync => engine::Durability::Sync,
                request::Durability::Async => engine::Durability::Async,
                request::Durability::Exit => engine::Durability::Exit,
            },
            items: self.shared.parts.items.clone(),
            reuse: Some(self.inner.reuse.clone()),
            tolerance: Tolerance {
                // Clients of LangGraph resume twice and expect the state.
                idle_resumes: true,
                unknown_names: false,
            },
            sink: handle.publisher.clone(),
            cancel: handle.cancel.clone(),
        };
        let work = engine::run(request, Some(start));
        let mut work = Box::pin(work);
        let limit = self.inner.options.timeout;
        let finished = match tokio::time::timeout(limit, &mut work).await {
            Ok(finished) => finished,
            Err(_) => {
                // It stops at the next await, and returns its last checkpoint.
                handle.cancel.cancel();
                engine::Finished {
                    result: Err(engine::Error::failed(
                        "TimeoutError",
                        "the run took longer than this server allows",
                    )),
                    ..work.await
                }
            }
        };
        Ok((registered, finished))
    }
}

/// A panic of this program ends its run, not the process, and the run has a result.
async fn guarded<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let done = std::panic::AssertUnwindSafe(work).catch_unwind().await;
    done.unwrap_or_else(|_| {
        let error = engine::Error::failed("InternalError", "the server failed over this run");
        Err(Error::Engine(error))
    })
}
