//! Executing a claimed run from its base checkpoint to its final row.

use std::{sync::Arc, time::Duration};

use serde_json::Value as Json;

use super::{
    Claimed, End, Error, Finish, Run, Service, Status,
    live::{Held, Live},
    request::{self, Kwargs, Nodes},
    service::Registered,
    view,
};
use crate::{
    checkpoint::{
        At, Query, Slot,
        frame::{self, Decoded},
    },
    engine::{self, Command, Ended, Input, Request, Start, Tolerance},
    extract::RunConfig,
    fail_point,
    graph::{Compiled, Goto, Names},
    id::CheckpointId,
    stream::{self, Publisher},
    tree::{self, Outcome, address::auto_name},
    value::{Map, Value},
};

/// Pauses between attempts to store the end of a run.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);
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
/// Attempts when the storage refuses for a reason that may stay.
const TRIES: u32 = 8;

impl Service {
    /// Executes a run that holds its slot, on a task of its own. `queued`: it came from the
    /// queue, where more of its kind may wait.
    pub(super) fn execute(&self, run: Run, slot: Slot, queued: bool) {
        let service = self.clone();
        let held = self.take_up(&run);
        self.inner.tracker.spawn(async move {
            let thread = run.thread;
            service.run_to_end(run, slot, held).await;
            // Looking at the queue is a write, so it is done when somebody is known to wait;
            // what other processes queued is found by the poll.
            if queued || service.inner.active.lock().waits_on(thread) {
                service.inner.wake.notify_one();
            }
        });
    }

    /// Executes runs that were taken from the queue.
    pub(super) fn execute_claimed(&self, claimed: Vec<Claimed>) {
        for claimed in claimed {
            self.execute(claimed.run, claimed.slot, true);
        }
    }

    /// The stream and the end of a run, made here if somebody else created it.
    fn take_up(&self, run: &Run) -> Option<Held> {
        let mut active = self.inner.active.lock();
        let held = match active.waiting.remove(&run.id) {
            Some(held) => held,
            None => {
                let kwargs = Kwargs::from_value(&run.kwargs).ok()?;
                let (_, registered) = self
                    .registered(&request::Assistant::Id(run.assistant))
                    .ok()?;
                let graph = registered.graph.clone();
                let publisher = Publisher::new(stream::Options {
                    attempt: run.attempt,
                    modes: kwargs.stream_mode,
                    temporary: run.temporary,
                    subgraphs: kwargs.subgraphs,
                    resumable: kwargs.resumable,
                    ..stream::Options::new(run.id, run.thread, graph)
                });
                self.inner.hub.insert(publisher.clone());
                Held::new(publisher)
            }
        };
        active.running.insert(run.id, held.live.clone());
        Some(held)
    }

    async fn run_to_end(&self, run: Run, slot: Slot, held: Option<Held>) {
        let Some(held) = held else {
            // The graph is gone, or the row is from another version: say so and free the slot.
            let error = engine::Error::value("this server has no graph for the run's assistant");
            self.finish(
                &run,
                slot,
                Status::Error,
                Outcome::Error,
                Some(error.to_value()),
            )
            .await;
            return;
        };
        let publisher = held.live.publisher.clone();
        // A stream that names its branch begins once that is known.
        let branching = run.kwargs.get("branching");
        if branching.is_none_or(Value::is_null) {
            publisher.start();
        }
        self.inner.news.tell(run.thread);
        let finished = self.attempt(&run, slot, &held.live).await;
        let end = self.conclude(&run, slot, finished, &held.live).await;
        self.inner.news.tell(run.thread);
        publisher.close();
        self.inner.hub.finish(&publisher);
        self.inner.active.lock().running.remove(&run.id);
        held.end.send_replace(Some(Arc::new(end)));
    }

    async fn attempt(
        &self,
        run: &Run,
        slot: Slot,
        live: &Live,
    ) -> Result<(Arc<Registered>, engine::Finished), Error> {
        let (_, registered) = self.registered(&request::Assistant::Id(run.assistant))?;
        let kwargs = Kwargs::from_value(&run.kwargs)
            .map_err(|error| Error::Invalid(format!("the stored request: {error}")))?;
        fail_point!("runs::claimed");
        let mut start = self
            .starting_point(run, slot, &kwargs, &live.publisher)
            .await?;
        if run.temporary {
            // Nothing of it stays, so nobody looks anything up.
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
            items: self.inner.parts.items.clone(),
            reuse: Some(self.inner.reuse.clone()),
            tolerance: Tolerance {
                // Clients of LangGraph send an answer twice and expect the state.
                idle_answers: true,
                unknown_names: false,
            },
            sink: live.publisher.clone(),
            cancel: live.cancel.clone(),
        };
        let work = engine::run(request, Some(start));
        let finished = match tokio::time::timeout(self.inner.options.timeout, Box::pin(work)).await
        {
            Ok(finished) => finished,
            Err(_) => {
                live.cancel.cancel();
                engine::Finished {
                    result: Err(engine::Error::failed(
                        "TimeoutError",
                        "the run took longer than this server allows",
                    )),
                    slot: None,
                    next: vec![],
                    values: Value::Null,
                    last: None,
                }
            }
        };
        Ok((registered, finished))
    }

    /// The base checkpoint of a run, and the branch it will write to.
    async fn starting_point(
        &self,
        run: &Run,
        slot: Slot,
        kwargs: &Kwargs,
        publisher: &Publisher,
    ) -> Result<Start, Error> {
        let mut base = match run.address.or(slot.head) {
            Some(id) => Some(self.load(run, slot, id).await?),
            None => None,
        };
        if run.address.is_none() || run.address == slot.head {
            // Questions of other branches that stand here are not this one's.
            if let Some(base) = &mut base {
                base.writes.retain(|(branch, _)| *branch == slot.branch);
            }
        }
        let saver = self.inner.parts.saver.clone();
        let mut start = tree::base::start(saver, slot, run.address, base, Some(run.id));
        start.inside = kwargs.inside();
        let resumes = kwargs.command.as_ref().is_some_and(|command| {
            command
                .get("resume")
                .is_some_and(|answer| !answer.is_null())
        });
        if resumes {
            tree::base::ask_again(&mut start);
        }
        if let Some(branching) = kwargs.branching {
            let name = self.branch_of(&mut start, branching.activate).await?;
            publisher.name_branch(name);
            publisher.start();
        }
        Ok(start)
    }

    /// The name of the branch that a run works on. One that is yet to be made is given its name
    /// here, so that it can be told before the first write.
    async fn branch_of(&self, start: &mut Start, activate: bool) -> Result<Arc<str>, Error> {
        let mut reader = self.inner.parts.tree.reader().await?;
        let Some(open) = &mut start.open else {
            let branch = reader.branch(start.slot.tree, start.slot.branch).await?;
            return Ok(branch.ok_or(crate::checkpoint::Error::Fenced)?.name);
        };
        let source = open.source;
        let taken = reader.branches(source.tree, source.thread).await?;
        let from = taken.iter().find(|branch| branch.id == source.branch);
        let from = from.ok_or(crate::checkpoint::Error::Fenced)?;
        let name = auto_name(&from.name, taken.iter().map(|branch| &*branch.name));
        open.name = Some(name.clone());
        open.activate = activate;
        Ok(name)
    }

    /// A checkpoint with its pending writes; its values come from the cache when they can.
    async fn load(&self, run: &Run, slot: Slot, id: CheckpointId) -> Result<Decoded, Error> {
        let cached = self.inner.cache.get(slot.tree, id);
        let stored = self
            .inner
            .parts
            .saver
            .load(Query {
                tree: slot.tree,
                thread: run.thread,
                ns: "".into(),
                at: At::Id(id),
                values: cached.is_none(),
            })
            .await?
            .ok_or(Error::NoCheckpoint(id))?;
        let decoded = match cached {
            Some(cached) => frame::with_writes(&cached, &stored)?,
            None => frame::decode(&stored)?,
        };
        self.resolve(slot.tree, &"".into(), decoded).await
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

    /// Writes the final row, tells the stream of a failure, and sums up.
    async fn conclude(
        &self,
        run: &Run,
        slot: Slot,
        finished: Result<(Arc<Registered>, engine::Finished), Error>,
        live: &Live,
    ) -> End {
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
                    self.inner.cache.put(slot.tree, last);
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
            // Somebody cancelled or took over: their row is the truth, and the stream just ends.
            status = Status::Interrupted;
        } else if let Some(failure) = &error {
            live.publisher.error(failure.class(), &failure.message());
        }
        End {
            status,
            values,
            interrupts,
            error: shown.filter(|_| !fenced),
        }
    }

    /// Writes the final row; false when somebody else has written it. While the storage is not
    /// available this goes on trying: the run holds its slot until its row is final.
    async fn finish(
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
pub(super) fn command_of(command: &Value) -> Result<Command, Error> {
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
pub(super) fn known_context(graph: &Compiled) -> Option<&serde_json::Map<String, Json>> {
    let schema = graph.schemas.context.as_ref()?;
    schema.get("properties")?.as_object()
}

/// The context as far as the graph knows it.
fn context_of(graph: &Compiled, context: &Map) -> Value {
    let map = match known_context(graph) {
        Some(known) => context
            .iter()
            .filter(|(key, _)| known.contains_key(&***key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        None => context.clone(),
    };
    Value::map(map)
}
