//! Executing a claimed run: its stream, its request to the engine, and its end.

use std::sync::Arc;

use futures::FutureExt;
use serde_json::Value as Json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Claimed, Error, Run, RunHandle, Service, Status,
    active::PendingRun,
    request::{self, Kwargs, Nodes},
};
use crate::{
    assistants::{Assistant, Registered},
    checkpoint::Slot,
    engine::{self, Command, Input, Request, Tolerance},
    extract::RunConfig,
    fail_point,
    graph::{Compiled, Goto, Names},
    stream::{self, Publisher},
    tree::{self, Outcome},
    value::{Map, Value},
};

/// Numbers of frames that each attempt has to itself: a client that received some of an earlier attempt is
/// shown all of this one.
const FRAMES: u64 = 1_000_000_000;
/// Fields of a config that are known. Nodes see others among what is configurable.
const FIELDS: [&str; 8] = [
    "tags",
    "metadata",
    "callbacks",
    "run_name",
    "run_id",
    "max_concurrency",
    "recursion_limit",
    "configurable",
];

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
        let request = Request {
            graph: registered.graph.clone(),
            input: input_of(&kwargs)?,
            config: self.config_of(run, &kwargs, &registered),
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

    fn config_of(&self, run: &Run, kwargs: &Kwargs, registered: &Registered) -> RunConfig {
        let map = |key: &str| {
            kwargs
                .config
                .get(key)
                .and_then(Value::as_map)
                .cloned()
                .unwrap_or_default()
        };
        let mut configurable = map("configurable");
        for (key, value) in &kwargs.config {
            if !FIELDS.contains(&&**key) && !configurable.contains_key(key) {
                configurable.insert(key.clone(), value.clone());
            }
        }
        configurable.insert("checkpoint_ns", "");
        configurable.remove("checkpoint_id");
        configurable.remove("checkpoint_map");
        let mut metadata = map("metadata");
        metadata.insert("run_attempt", i64::from(run.attempt));
        metadata.insert("run_id", run.id.to_string());
        let tags = kwargs
            .config
            .get("tags")
            .and_then(Value::as_list)
            .unwrap_or_default()
            .iter()
            .filter_map(Value::as_str)
            .map(Into::into)
            .collect();
        let limit = kwargs
            .recursion_limit()
            .and_then(|limit| u32::try_from(limit).ok())
            .or(registered.graph.recursion_limit)
            .unwrap_or(self.inner.options.recursion_limit);
        RunConfig {
            configurable,
            metadata,
            tags,
            recursion_limit: limit,
            context: context_of(&registered.graph, &kwargs.context),
        }
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

fn names(nodes: &Nodes) -> Names {
    match nodes {
        Nodes::All(_) => Names::All,
        Nodes::Named(names) => Names::Some(names.clone()),
    }
}

fn input_of(kwargs: &Kwargs) -> Result<Input, Error> {
    if let Some(command) = &kwargs.command {
        return Ok(Input::Command(command_of(command)?));
    }
    Ok(match &kwargs.input {
        Some(input) => Input::Value(input.clone()),
        None => Input::Null,
    })
}

/// A command as the engine takes it.
pub(crate) fn command_of(command: &Value) -> Result<Command, Error> {
    let command = request::Command::parse(command).map_err(Error::Invalid)?;
    let goto = command.goto.into_iter().map(|goto| match goto {
        request::Goto::Node(node) => Goto { node, arg: None },
        request::Goto::Send { node, input } => Goto {
            node,
            arg: Some(input),
        },
    });
    Ok(Command {
        resume: command.resume,
        update: command.update.unwrap_or_default(),
        goto: goto.collect(),
        to_parent: false,
    })
}

/// Keys that the graph's schema of its context knows; `None` without a schema.
pub(super) fn context_properties(graph: &Compiled) -> Option<&serde_json::Map<String, Json>> {
    let schema = graph.schemas.context.as_ref()?;
    schema.get("properties")?.as_object()
}

/// The context as far as the graph knows it.
fn context_of(graph: &Compiled, context: &Map) -> Value {
    let map = match context_properties(graph) {
        Some(known) => context
            .iter()
            .filter(|(key, _)| known.contains_key(&***key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        None => context.clone(),
    };
    Value::map(map)
}
