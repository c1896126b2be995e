//! Creating runs: resolve the assistant, write the row, and start at once when the slot is free.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use super::{
    Created, Error, NewRun, Run, Service,
    execute::known_context,
    live::Live,
    request::{self, Ids, IfNotExists, Kwargs, OnCompletion},
    spot::Spot,
};
use crate::{
    checkpoint,
    id::{BranchId, RunId, ThreadId},
    stream,
    tree::{self, IfExists, NewThread, resolve},
    value::{Map, Value},
};

/// A run that was just created.
pub struct New {
    /// The row.
    pub run: Run,
    /// Its stream and its end.
    pub live: Live,
    /// Its stream from the first event on, if it is to be watched.
    pub frames: Option<stream::Subscription>,
}

impl Service {
    /// Creates a run on `thread`, or on a new one that goes with the run. It is durable when
    /// this returns, and already running if its slot was free.
    ///
    /// # Errors
    /// No such thread, assistant or checkpoint; the slot is taken and the request says
    /// `reject`; the storage failed.
    pub async fn create(
        &self,
        thread: Option<ThreadId>,
        mut request: request::Run,
        watch: bool,
    ) -> Result<New, Error> {
        if self.inner.drain.is_cancelled() {
            return Err(Error::Draining);
        }
        let (assistant, registered) = self.registered(&request.assistant)?;
        let temporary = thread.is_none() && request.on_completion == OnCompletion::Delete;
        let ids = Ids {
            run: request.id.unwrap_or_else(RunId::mint),
            // A request that is sent again must find it.
            thread: thread
                .or(request.id.map(ThreadId::of_run))
                .unwrap_or_else(ThreadId::mint),
            assistant,
            graph: registered.name.clone(),
        };
        if let Some(command) = &request.command {
            request::Command::parse(command).map_err(Error::Invalid)?;
        }
        let spot = match thread {
            Some(thread) => self.spot(thread, &request).await?,
            None => Spot::default(),
        };
        // Until the run is written: of those who answer at the same time one is let in.
        let _turn = match thread.filter(|_| answers(&request)) {
            Some(thread) => self.only_answer(thread, spot.pin).await?,
            None => None,
        };
        let stated = request.address.root();
        // A run is one of the root graph, wherever its address was.
        request.address.checkpoint = spot.checkpoint;
        request.address.ns = "".into();
        request.address.map = None;
        let metadata = run_metadata(&request, &ids, temporary);
        let known = known_context(&registered.graph);
        let kwargs = Kwargs::of(&request, &ids, &metadata, known, temporary);
        let stored = kwargs
            .to_value()
            .map_err(|error| Error::Invalid(error.to_string()))?;
        let live = self.expect(&ids, &request, registered.graph.clone(), temporary);
        let publisher = &live.publisher;
        let frames = watch.then(|| publisher.subscribe(stream::Since::Start, &[]));
        let new = NewRun {
            id: ids.run,
            thread: ids.thread,
            create_thread: new_thread(&request, &ids, thread),
            assistant,
            metadata,
            kwargs: stored,
            address: spot.checkpoint,
            branch: spot.pin,
            strategy: request.multitask_strategy,
            after: request.after,
            temporary,
            claim: self.claims(),
            said: (!temporary).then(|| said(&request)),
            thread_metadata: thread_metadata(&ids),
            thread_config: thread_config(&request),
        };
        let created = match spot.changes() {
            true => self.create_with(new, &spot).await,
            false => {
                let created = self.inner.parts.runs.create_run(new).await;
                created.map_err(Error::from)
            }
        };
        match created {
            Ok(Created::NoThread) => {
                self.discard(ids.run);
                Err(spot.gone())
            }
            Ok(created) => {
                let run = self.launch(&request, ids.run, created).await?;
                Ok(New { run, live, frames })
            }
            Err(error) => {
                self.discard(ids.run);
                Err(match error {
                    // The request named it, and it went since it was looked up.
                    Error::Storage(checkpoint::Error::Pruned(id)) if stated == Some(id) => {
                        Error::NoCheckpoint(id)
                    }
                    error => error,
                })
            }
        }
    }

    /// Waits for its turn to answer on a branch, the active one without `branch`; nobody has to
    /// on a thread that is yet to be made.
    ///
    /// # Errors
    /// 409 `head_conflict`: a run that answers there is under way or waits.
    async fn only_answer(
        &self,
        thread: ThreadId,
        branch: Option<BranchId>,
    ) -> Result<Option<OwnedMutexGuard<()>>, Error> {
        let mut reader = self.inner.parts.tree.reader().await?;
        let Some(row) = reader.thread_row(thread).await? else {
            return Ok(None);
        };
        drop(reader);
        let turn = self.inner.turns.of(row.tree).await;
        let mut reader = self.inner.parts.tree.reader().await?;
        let row = resolve::thread(&mut *reader, thread).await?;
        let open = reader.open_runs(row.tree, thread).await?;
        drop(reader);
        let here = branch.or(row.active_branch);
        for open in open {
            if open.branch.or(row.active_branch) != here {
                continue;
            }
            let run = self.inner.parts.runs.run(thread, open.id).await?;
            let kwargs = run.and_then(|run| Kwargs::from_value(&run.kwargs).ok());
            let answer = kwargs.and_then(|kwargs| kwargs.command?.get("resume").cloned());
            if answer.is_some_and(|answer| !answer.is_null()) {
                return Err(tree::Error::conflict(
                    "head_conflict",
                    "Another answer is being given here: wait for its run and look at the state",
                )
                .into());
            }
        }
        Ok(Some(turn))
    }

    /// Stops what a run with strategy `interrupt` or `rollback` has ended in the storage.
    pub(super) async fn supersede(&self, request: &request::Run, run: &Run) {
        use super::Strategy::{Interrupt, Rollback};
        if !matches!(request.multitask_strategy, Interrupt | Rollback) {
            return;
        }
        let others: Vec<Live> = {
            let active = self.inner.active.lock();
            let same = |live: &Live| {
                live.publisher.thread() == run.thread && live.publisher.run() != run.id
            };
            let running = active.running.values().filter(|live| same(live)).cloned();
            let waiting = active
                .waiting
                .values()
                .map(|held| held.live.clone())
                .filter(same);
            running.chain(waiting).collect()
        };
        for other in others {
            // Runs of other branches go on.
            let id = other.publisher.run();
            let ended = match self.find_run(run.thread, id).await {
                Ok(Some(row)) => row.status.is_final(),
                Ok(None) => true,
                Err(_) => false,
            };
            if ended {
                other.cancel.cancel();
                self.forget_waiting(id);
            }
        }
    }

    /// Ends the stream of a run that was cancelled before it started.
    pub(super) fn forget_waiting(&self, run: RunId) {
        let held = self.inner.active.lock().waiting.remove(&run);
        if let Some(held) = held {
            held.live.publisher.close();
            self.inner.hub.finish(&held.live.publisher);
            held.end.send_replace(Some(Arc::new(super::End {
                status: super::Status::Interrupted,
                values: Value::map(Map::new()),
                interrupts: vec![],
                error: None,
            })));
        }
    }
}

/// Whether a run answers a question and takes its turn behind others.
fn answers(request: &request::Run) -> bool {
    let command = request.command.as_ref();
    let answer = command.and_then(|command| command.get("resume"));
    let enqueues = request.multitask_strategy == super::Strategy::Enqueue;
    enqueues && answer.is_some_and(|answer| !answer.is_null())
}

fn new_thread(request: &request::Run, ids: &Ids, thread: Option<ThreadId>) -> Option<NewThread> {
    let wanted = thread.is_none() || request.if_not_exists == IfNotExists::Create;
    wanted.then(|| {
        let mut metadata = thread_metadata(ids);
        if let Some(Value::Map(own)) = request.config.get("metadata") {
            metadata.extend(own.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        metadata.extend(
            request
                .metadata
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        NewThread {
            id: ids.thread,
            metadata,
            owner: request.principal.to_string(),
            if_exists: IfExists::DoNothing,
        }
    })
}

pub(super) fn thread_metadata(ids: &Ids) -> Map {
    let mut map = Map::with_capacity(2);
    map.insert("graph_id", Value::Str(ids.graph.clone()));
    map.insert("assistant_id", ids.assistant.to_string());
    map
}

/// What a thread collects of its runs' config: everything but `configurable`.
pub(super) fn thread_config(request: &request::Run) -> Map {
    let mut config = request.config.clone();
    config.remove("configurable");
    config.insert("configurable", Value::map(Map::new()));
    config
}

/// Ids in metadata that are those of the run, whatever a client calls so.
const IDS: [&str; 5] = ["graph_id", "assistant_id", "run_id", "thread_id", "cron_id"];

/// Metadata that a request gives its run: config's and the request's; later wins.
fn given(request: &request::Run) -> Map {
    let of_config = request.config.get("metadata").and_then(Value::as_map);
    let all = of_config.into_iter().chain([&request.metadata]).flatten();
    let own = all.filter(|(key, _)| !IDS.contains(&&***key));
    own.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Keys of a run's metadata that it does not have of its thread.
pub(super) fn said(request: &request::Run) -> Vec<Arc<str>> {
    let given = given(request);
    let ids = IDS.into_iter().map(Arc::from);
    given.keys().cloned().chain(ids).collect()
}

/// Metadata of a run: assistant's, what the request gives, ids. The storage adds the thread's.
pub(super) fn run_metadata(request: &request::Run, ids: &Ids, temporary: bool) -> Map {
    let mut map = Map::new();
    map.insert("created_by", "system");
    map.extend(given(request));
    if !temporary {
        map.insert("graph_id", Value::Str(ids.graph.clone()));
    }
    map.insert("assistant_id", ids.assistant.to_string());
    map
}
