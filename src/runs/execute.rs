//! Executing a claimed run: its stream, its request to the engine, and its end.

mod engine_request;
mod memory;
mod reattempt;
mod starting_point;

pub use memory::RunMemory;

use std::{
    pin::{Pin, pin},
    sync::Arc,
};

use futures::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

pub(crate) use self::engine_request::{command_of, context_properties};
use self::{
    engine_request::{config_of, input_of, names},
    reattempt::{AttemptLimit, Reattempt, Wish},
};
use super::{
    ClaimedRun, Error, Finish, Run, RunHandle, Service, Status, Strategy,
    active::PendingRun,
    cancel::PERMISSION_DENIED,
    request::{self, Kwargs, identity},
};
use crate::{
    assistants::{self, GraphConfig, Purpose, Registered},
    checkpoint::{self, Slot},
    contention::shares,
    engine::{self, Request, Tolerance},
    fail_point,
    stream::{self, Publisher, RunOwner, log::ATTEMPT_FRAMES},
    trace,
    tree::{self, Outcome},
    value::Value,
};

/// How an attempt of a run ended, and the graph that it executed.
type AttemptEnd = Result<(Arc<Registered>, engine::Finished), Error>;

/// How a run comes to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// By the request that created it.
    Created,
    /// From the queue, where more of its kind may wait.
    Queued,
    /// From the queue, and its principal may no longer write to the thread.
    Denied,
}

/// Why a run is not executed.
enum NotTaken {
    /// Its graph is gone, or its stored request cannot be read.
    NoGraph,
    /// Somebody has ended it since its row was written, and its end was shown.
    Ended,
}

impl Start {
    fn of(claimed: &ClaimedRun) -> Self {
        if claimed.is_permitted {
            Self::Queued
        } else {
            Self::Denied
        }
    }
}

impl Service {
    /// Executes a run that holds its slot, on a task of its own, when the ends of those that it superseded are shown.
    pub(super) fn execute(&self, run: Run, slot: Slot, start: Start) {
        let service = self.clone();
        let (pending, superseded) = match self.take_up(&run, slot, start) {
            Ok((pending, superseded)) => (Some(pending), superseded),
            Err(NotTaken::NoGraph) => (None, vec![]),
            Err(NotTaken::Ended) => {
                self.wake_thread(run.thread);
                self.use_free_slots();
                return;
            }
        };
        self.inner.tracker.spawn(async move {
            let thread = run.thread;
            if !superseded.is_empty() {
                // Also when it was superseded itself meanwhile. On the heap, because few runs have any.
                let ends = Box::pin(service.show_ends_of(superseded));
                let _ = service.inner.hand_over.run_until_cancelled(ends).await;
            }
            service.run_to_end(run, slot, start, pending).await;
            let (waits, taken) = {
                let active = service.inner.active.lock();
                (active.may_wait_on(thread), active.taken())
            };
            // Until this moment there may have been no room for others.
            let full = taken + 1 >= service.inner.options.slots;
            // Claiming from the queue is a write, so it is done when a run is known to wait;
            // what other processes queued is found by the poll.
            if start != Start::Created || full || waits {
                service.wake_thread(thread);
            }
            // It may have taken several slots, and others may have ended in the same moment.
            service.use_free_slots();
        });
    }

    /// Executes runs that were taken from the queue.
    pub(super) fn execute_claimed(&self, claimed: Vec<ClaimedRun>) {
        for claimed in claimed {
            let start = Start::of(&claimed);
            self.execute(claimed.run, claimed.slot, start);
        }
    }

    /// The pending run with its stream, made here if another process created the run, and the runs of its thread that
    /// are about to end for it.
    fn take_up(
        &self,
        run: &Run,
        slot: Slot,
        start: Start,
    ) -> Result<(PendingRun, Vec<RunHandle>), NotTaken> {
        let slots = self.slots_of(&run.kwargs);
        let mut active = self.inner.active.lock();
        active.release(run.id);
        if start == Start::Created && !active.pending.contains_key(&run.id) {
            return Err(NotTaken::Ended);
        }
        let earlier = u64::try_from(run.attempt - 1).unwrap_or(0);
        let mut pending = match active.pending.remove(&run.id) {
            Some(mut pending) => {
                if run.attempt > 1 {
                    pending
                        .handle
                        .publisher
                        .begin_attempt(run.attempt, earlier * ATTEMPT_FRAMES);
                    pending.handle.cancel = CancellationToken::new();
                }
                pending
            }
            None => {
                active.found_left();
                let kwargs = Kwargs::from_value(&run.kwargs).map_err(|_| NotTaken::NoGraph)?;
                let registered = self.graph_of(run, &kwargs);
                let registered = registered.map_err(|_| NotTaken::NoGraph)?;
                let publisher = Publisher::new(stream::Options {
                    attempt: run.attempt,
                    after: earlier * ATTEMPT_FRAMES,
                    modes: kwargs.stream_mode,
                    temporary: run.temporary,
                    principal: run.principal.clone(),
                    subgraphs: kwargs.subgraphs,
                    resumable: kwargs.resumable,
                    graph_name: registered.name.clone(),
                    ..stream::Options::new(run.id, run.thread, registered.graph.clone())
                });
                self.inner.hub.replace(publisher.clone());
                let mut pending =
                    PendingRun::new(publisher, run.principal.clone(), self.new_lead());
                pending.handle.is_foreign = true;
                pending
            }
        };
        pending.handle.publisher.own(owner_of(slot));
        pending.handle.slots = slots;
        let superseded = match run.strategy {
            Strategy::Interrupt | Strategy::Rollback => active.cancelled_of(run.thread),
            Strategy::Enqueue | Strategy::Reject => vec![],
        };
        active.begin(run.id, &pending.handle);
        Ok((pending, superseded))
    }

    async fn run_to_end(
        &self,
        mut run: Run,
        mut slot: Slot,
        mut how: Start,
        pending: Option<PendingRun>,
    ) {
        let Some(pending) = pending else {
            // The graph is gone, or the row is from another version: the run fails and frees its slot.
            let error = engine::Error::value(if run.kwargs.is_null() {
                "the run's stored request cannot be read: it is damaged, or a newer server stored it"
            } else {
                "this server has no graph for the run's assistant"
            });
            let mut end = Finish {
                slot,
                run: run.id,
                status: Status::Error,
                outcome: Outcome::Error,
                error: Some(error.to_value()),
                delete_thread: run.temporary,
                committing: Arc::default(),
                left: None,
                frames: vec![],
            };
            self.write_final_row(&mut end, None).await;
            return;
        };
        let publisher = pending.handle.publisher.clone();
        // A stream that names its branch begins once that is known.
        let branching = run.kwargs.get("branching");
        if branching.is_none_or(Value::is_null) {
            publisher.start();
        }
        self.shared.notifier.notify(run.thread);
        let mut attempts = AttemptLimit::new(self.inner.options.timeout);
        let mut ended = None;
        let finished = loop {
            let span = trace::run(run.id, run.thread, run.attempt, run.traceparent());
            let mut finished = {
                let attempt = self.attempt(&run, slot, how, &pending.handle);
                let attempt = pin!(guarded(attempt).instrument(span.clone()));
                self.unless_handed_over(&run, attempt, &pending.handle)
                    .await
            };
            if let Some(Ok((_, finished))) = &mut finished {
                let ending = self.finish_with_rest(&run, slot, finished, &publisher);
                ended = ending.instrument(span.clone()).await;
            }
            record_end(&span, finished.as_ref());
            let next = match finished {
                Some(finished) if !attempts.allows(&finished, self.wish(&pending.handle)) => {
                    break Some(finished);
                }
                Some(lost) => {
                    // What it had in memory is read anew.
                    drop(lost);
                    self.reattempt(&run, slot, &pending.handle, &mut attempts)
                        .await
                }
                None => Reattempt::HandedOver,
            };
            match next {
                Reattempt::Claimed(claimed) => {
                    how = Start::of(&claimed);
                    (run, slot) = (claimed.run, claimed.slot);
                }
                Reattempt::Fenced => {
                    publisher.fence();
                    break None;
                }
                Reattempt::Cancelled => break Some(Err(checkpoint::Error::TookTooLong.into())),
                Reattempt::HandedOver => {
                    // The next process continues with what is stored, so readers miss what is not in the log. Those who
                    // wait here learn that the server has stopped.
                    self.flush_log(&publisher).await;
                    self.inner.active.lock().end(run.id);
                    return;
                }
            }
        };
        let result = match finished {
            Some(finished) => {
                let handle = &pending.handle;
                self.finish(&run, slot, finished, handle, ended).await
            }
            None => None,
        };
        self.shared.notifier.notify(run.thread);
        let Some(result) = result else {
            // Those who wait here get the result that another attempt writes.
            {
                let mut active = self.inner.active.lock();
                active.end(run.id);
                let since = Some(Instant::now());
                active
                    .pending
                    .insert(run.id, PendingRun { since, ..pending });
            }
            self.end_if_final(run.thread, run.id).await;
            return;
        };
        self.inner.active.lock().end(run.id);
        self.publish_result(pending, result);
    }

    /// Whether somebody has cancelled a run, and nothing else cuts it.
    pub(super) fn is_cancelled(&self, handle: &RunHandle) -> bool {
        self.wish(handle) == Wish::Cancel
    }

    /// What is to become of a run. Whether this process stops is looked at first: it cancels its runs to leave them to
    /// another process.
    fn wish(&self, handle: &RunHandle) -> Wish {
        if self.inner.hand_over.is_cancelled() {
            Wish::HandOver
        } else if handle.cancel.is_cancelled() {
            Wish::Cancel
        } else {
            Wish::GoOn
        }
    }

    /// The end of an attempt; `None` when the run is left to another process. It stops then at its next await, and the
    /// supersteps that it has done by now are durable when this returns.
    async fn unless_handed_over(
        &self,
        run: &Run,
        mut attempt: Pin<&mut impl Future<Output = AttemptEnd>>,
        handle: &RunHandle,
    ) -> Option<AttemptEnd> {
        tokio::select! {
            biased;
            finished = &mut attempt => return Some(finished),
            () = self.inner.hand_over.cancelled() => {}
        }
        let is_cancelled = handle.cancel.is_cancelled();
        let kwargs = Kwargs::from_value(&run.kwargs);
        let is_exit = kwargs.is_ok_and(|kwargs| kwargs.durability == request::Durability::Exit);
        if is_exit && !is_cancelled {
            // Nothing of it is stored before its end: the next attempt begins with all that this one was given, such as
            // the answer of a human, which a state between would say has been used.
            return None;
        }
        handle.cancel.cancel();
        let finished = attempt.await;
        let was_cut = match &finished {
            Ok((_, finished)) => matches!(finished.result, Err(engine::Error::Cancelled)),
            Err(_) => false,
        };
        (is_cancelled || !was_cut).then_some(finished)
    }

    /// The graph that a run was created for, whatever became of its assistant.
    fn graph_of(&self, run: &Run, kwargs: &Kwargs) -> Result<Arc<Registered>, Error> {
        let assistants = &self.shared.assistants;
        let configurable = kwargs.config.get("configurable").and_then(Value::as_map);
        let graph = configurable.and_then(|map| map.get("graph_id"));
        match graph.and_then(Value::as_str) {
            Some(name) => Ok(assistants.required(name)?),
            None => {
                let found = assistants.system(run.assistant);
                found.ok_or(Error::NoThreadOrAssistant)
            }
        }
    }

    /// The graph of a run, for its config.
    ///
    /// # Errors
    /// The run's, when the graph cannot be made.
    async fn made_graph_of(&self, run: &Run, kwargs: &Kwargs) -> Result<Arc<Registered>, Error> {
        let registered = self.graph_of(run, kwargs)?;
        let assistants = &self.shared.assistants;
        if !assistants.has_factory(&registered.name) {
            return Ok(registered);
        }
        let config = GraphConfig::of(&kwargs.config, &kwargs.context);
        let made = assistants.made(&registered.name, config, Purpose::Run(run.id), None);
        made.await.map_err(|error| match error {
            assistants::Error::NotMade { .. } => {
                let message = error.to_string();
                Error::Engine(engine::Error::failed("GraphFactoryError", &message))
            }
            other => other.into(),
        })
    }

    async fn attempt(&self, run: &Run, slot: Slot, how: Start, handle: &RunHandle) -> AttemptEnd {
        if how == Start::Denied {
            let principal = run.principal.as_deref().unwrap_or_default();
            tracing::info!(
                principal,
                request_id = run.request_id(),
                run = %run.id,
                thread = %run.thread,
                "access was refused to a queued run"
            );
            let [class, message] = PERMISSION_DENIED;
            return Err(Error::Engine(engine::Error::failed(class, message)));
        }
        let kwargs = Kwargs::from_value(&run.kwargs)
            .map_err(|error| Error::Invalid(format!("the stored request: {error}")))?;
        let registered = self.made_graph_of(run, &kwargs).await?;
        fail_point!("runs::claimed");
        // It may wait for memory and connections that other runs have, which end in their time.
        let start = self.starting_point(run, slot, &kwargs, handle).boxed();
        let mut start = in_its_name(run, handle, start).await?;
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
            run_ahead: self.inner.options.run_ahead,
            lead: handle.lead.clone(),
            items: Some(
                self.shared
                    .parts
                    .items
                    .of(identity::principal(&kwargs.config)),
            ),
            reuse: Some(self.inner.reuse.clone()),
            tolerance: Tolerance {
                // Clients of LangGraph resume twice and expect the state.
                idle_resumes: true,
                unknown_names: false,
            },
            leaves_rest: true,
            max_tasks: self.inner.options.max_tasks,
            sink: handle.publisher.clone(),
            cancel: handle.cancel.clone(),
        };
        let work = engine::run(request, Some(start));
        let mut work = Box::pin(in_its_name(run, handle, Box::pin(work)));
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

/// What an attempt of a run does, in the name of the principal who created the run.
fn in_its_name<T>(
    run: &Run,
    handle: &RunHandle,
    work: impl Future<Output = T>,
) -> impl Future<Output = T> {
    shares::run_on_behalf_of(run.principal.clone(), handle.cancel.clone(), work)
}

fn record_end(span: &Span, finished: Option<&AttemptEnd>) {
    let status = match finished {
        None => "handed_over",
        Some(Ok((_, finished))) => match &finished.result {
            Ok(engine::Ended::Done) => "success",
            Ok(_) => "interrupted",
            Err(error) => {
                trace::failed(span, error);
                "error"
            }
        },
        Some(Err(error)) => {
            trace::failed(span, error);
            "error"
        }
    };
    span.record("status", status);
}

/// The right to write the log of a run that holds this slot.
fn owner_of(slot: Slot) -> RunOwner {
    RunOwner {
        tree: slot.tree,
        epoch: slot.epoch,
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
