//! One thread: runs its graph, reads its states and updates them.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Error, History, Parts, RunOptions, Running, Shared};
use crate::{
    checkpoint::{At, List, Query, Slot, frame::Decoded},
    engine::{self, Ended, Finished, Input, StateUpdate, StateUpdater, message_ids, update::COPY},
    graph::Compiled,
    id::{CheckpointId, ThreadId},
    runs, threads,
    tree::{
        self, Outcome, StateReader, ThreadState, load,
        read::{self, Rules},
        start,
    },
    value::{Map, Value},
};

/// A thread that runs one graph.
#[derive(Clone)]
pub struct Thread {
    pub(super) parts: Parts,
    pub(super) services: Option<Arc<runs::Parts>>,
    pub(super) shared: Arc<Shared>,
    pub(super) graph: Arc<Compiled>,
    pub(super) id: ThreadId,
    /// The options of [`invoke`](Self::invoke), [`resume`](Self::resume) and [`stream`](Self::stream).
    pub(super) options: RunOptions,
}

impl Thread {
    pub(super) fn new(
        parts: Parts,
        services: Option<Arc<runs::Parts>>,
        shared: Arc<Shared>,
        graph: Arc<Compiled>,
        id: ThreadId,
    ) -> Self {
        Self {
            parts,
            services,
            shared,
            graph,
            id,
            options: RunOptions::default(),
        }
    }

    /// Its id.
    pub fn id(&self) -> ThreadId {
        self.id
    }

    /// Runs the graph until it ends, interrupts, stops or fails. Earlier runs on the thread can
    /// write nothing more.
    ///
    /// # Errors
    /// The checkpoint to run from does not exist, or the storage failed before the run began.
    pub async fn run(&self, input: Input, options: RunOptions) -> Result<Finished, Error> {
        let _running = Running::new(&self.shared, self.id);
        let slot = self.parts.take(self.id).await?;
        let base = self.base(slot, &"".into(), options.at).await?;
        self.check_message_ids(base.as_ref(), &input)?;
        let saver = self.parts.saver.clone();
        let mut start = start::start(saver, slot, options.at, base, options.run);
        start.inside.clone_from(&options.inside);
        let items = self.parts.items.clone();
        let reuse = Some(self.shared.reuse.clone());
        let request = options.request(self.graph.clone(), input, items, reuse);
        let finished = Box::pin(engine::run(request, Some(start))).await;
        let (outcome, error) = match &finished.result {
            Ok(Ended::Done) => (Outcome::Idle, None),
            Ok(Ended::Interrupted(_)) => (Outcome::Interrupted, None),
            Ok(Ended::Breakpoint) | Err(engine::Error::Cancelled) => {
                (Outcome::left_with(&finished.next), None)
            }
            Err(error) => (Outcome::Error, Some(error.to_value())),
        };
        self.store_outcome(finished.slot.unwrap_or(slot), outcome, error)
            .await?;
        Ok(finished)
    }

    /// The state at a checkpoint, or at the head; `None` when nothing was stored. `inside` adds
    /// the states of the graphs inside its tasks.
    ///
    /// # Errors
    /// No graph runs in `ns`, or stored values do not fit the graph, or the storage failed.
    pub async fn state(
        &self,
        ns: &Arc<str>,
        at: Option<CheckpointId>,
        inside: bool,
    ) -> Result<Option<ThreadState>, Error> {
        let graph = self.graph_at(ns)?;
        let Some(thread) = self.parts.tree.thread(self.id).await? else {
            return Ok(None);
        };
        let ns = read::stored_ns(&graph, ns);
        let reader = self.reader(&thread);
        let state = reader.state(&graph, &ns, at, inside).await;
        Ok(state.map_err(threads::Error::from)?)
    }

    /// States, newest first.
    ///
    /// # Errors
    /// Stored values do not fit the graph, or the storage failed.
    pub async fn history(&self, page: History) -> Result<Vec<ThreadState>, Error> {
        let Some(thread) = self.parts.tree.thread(self.id).await? else {
            return Ok(vec![]);
        };
        let list = List {
            tree: thread.tree,
            thread: self.id,
            ns: page.ns,
            before: page.before,
            id: page.at,
            metadata: page.metadata,
            limit: page.limit,
        };
        let states = self.reader(&thread).history(&self.graph, list).await;
        Ok(states.map_err(threads::Error::from)?)
    }

    /// Applies an update as if `as_node` had written it (LangGraph's `update_state`): a new
    /// checkpoint after `at`, or after the head.
    ///
    /// # Errors
    /// An update that the engine refuses, a run that is under way, a checkpoint or subgraph that is
    /// not there, the storage.
    pub async fn update_state(
        &self,
        ns: &Arc<str>,
        at: Option<CheckpointId>,
        update: StateUpdate,
    ) -> Result<CheckpointId, Error> {
        self.bulk_update_state(ns, at, vec![vec![update]]).await
    }

    /// Applies several supersteps of updates, one checkpoint each.
    ///
    /// # Errors
    /// As [`update_state`](Self::update_state).
    pub async fn bulk_update_state(
        &self,
        ns: &Arc<str>,
        at: Option<CheckpointId>,
        supersteps: Vec<Vec<StateUpdate>>,
    ) -> Result<CheckpointId, Error> {
        let graph = self.graph_at(ns)?;
        if self.shared.running.lock().contains(&self.id) {
            return Err(Error::Running(self.id));
        }
        let ns = read::stored_ns(&graph, ns);
        let slot = self.parts.take(self.id).await?;
        let mut base = self.base(slot, &ns, at).await?;
        if let Some(base) = &mut base {
            load::keep_own_writes(base, slot.branch);
        }
        let newest = if ns.is_empty() {
            slot.head
        } else if at.is_some() {
            self.newest(slot, &ns).await?
        } else {
            None
        };
        let edit = StateUpdater {
            saver: self.parts.saver.clone(),
            slot,
            ns: ns.clone(),
            graph,
            superseded: at.is_some() && at != newest,
            base,
            index: Some(Arc::new(tree::Indexer::default())),
            metadata: Map::new(),
            run: None,
        };
        let edited = edit.apply(supersteps).await?;
        if ns.is_empty() {
            self.store_outcome(edited.slot, Outcome::left_with(&edited.next), None)
                .await?;
        }
        Ok(edited.checkpoint)
    }

    /// Clones a checkpoint beside itself, then applies `(values, as_node)` to the clone.
    ///
    /// # Errors
    /// As [`update_state`](Self::update_state).
    pub async fn copy(
        &self,
        ns: &Arc<str>,
        at: Option<CheckpointId>,
        updates: Vec<(Value, Arc<str>)>,
    ) -> Result<CheckpointId, Error> {
        let updates = updates
            .into_iter()
            .map(|(values, node)| Value::list(vec![values, Value::Str(node)]))
            .collect();
        let update = StateUpdate {
            values: Some(Value::list(updates)),
            as_node: Some(COPY.into()),
            ..StateUpdate::default()
        };
        self.update_state(ns, at, update).await
    }

    /// Refuses input with messages whose ids are longer than new messages may have.
    fn check_message_ids(&self, base: Option<&Decoded>, input: &Input) -> Result<(), Error> {
        let stored = |name: &str| base.and_then(|base| base.checkpoint.values.get(name));
        match input {
            Input::Value(input) => message_ids::check_input(&self.graph, stored, input)?,
            Input::Null => {}
            Input::Command(command) => {
                for (channel, value) in &command.update {
                    message_ids::check(&self.graph, stored, channel, value)?;
                }
            }
        }
        Ok(())
    }

    fn reader<'a>(&'a self, thread: &'a tree::Thread) -> StateReader<'a> {
        let saver = &self.parts.saver;
        StateReader {
            saver,
            thread,
            rules: Rules::Library,
            memory: None,
            reserved: Mutex::default(),
        }
    }

    fn graph_at(&self, ns: &Arc<str>) -> Result<Arc<Compiled>, Error> {
        read::graph_at(&self.graph, ns).ok_or_else(|| Error::NoSubgraph(ns.clone()))
    }

    /// The addressed checkpoint, or the newest one of the namespace.
    async fn base(
        &self,
        slot: Slot,
        ns: &Arc<str>,
        at: Option<CheckpointId>,
    ) -> Result<Option<Decoded>, Error> {
        let at_base = match (at, slot.head, ns.is_empty()) {
            (Some(id), ..) => At::Id(id),
            (None, Some(head), true) => At::Id(head),
            (None, None, true) => return Ok(None),
            (None, _, false) => At::Newest,
        };
        let found = self.load(slot, ns, at_base).await?;
        match (at, found) {
            (Some(id), None) => Err(Error::NoCheckpoint(id)),
            (_, found) => Ok(found),
        }
    }

    async fn newest(&self, slot: Slot, ns: &Arc<str>) -> Result<Option<CheckpointId>, Error> {
        let found = self.load(slot, ns, At::Newest).await?;
        Ok(found.map(|found| found.checkpoint.id))
    }

    async fn load(&self, slot: Slot, ns: &Arc<str>, at: At) -> Result<Option<Decoded>, Error> {
        let query = Query {
            tree: slot.tree,
            thread: self.id,
            ns: ns.clone(),
            at,
            values: true,
        };
        Ok(load::uncounted(&self.parts.saver, query).await?)
    }

    async fn store_outcome(
        &self,
        slot: Slot,
        outcome: Outcome,
        error: Option<Value>,
    ) -> Result<(), Error> {
        match self.parts.tree.record_outcome(slot, outcome, error).await {
            // Another writer has the thread now and stores its outcome.
            Ok(()) | Err(crate::checkpoint::Error::Fenced) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
