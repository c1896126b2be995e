//! One graph of a run, between and during supersteps: its state, its checkpoint, its pending writes.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    apply::Writes,
    channels::{Channels, updated_by},
    error::{Error, ErrorLocation},
    event::TaskInfo,
    parent_execution::{ParentExecution, Replay},
    pending::PendingWrites,
    plan::{self, PlannedTask, TaskOrigin},
    reserved::START,
    run_context::RunContext,
    topology::Topology,
};
use crate::{
    budget::Reservation,
    checkpoint::frame::{Decoded, Frame},
    graph::Compiled,
    id::TaskId,
    value::{Map, Value},
};

mod current;
mod memory;
mod writes;

pub use current::{CurrentCheckpoint, WrittenRow};
pub use memory::{StateMemory, counted};

/// A graph of a run.
pub struct Execution {
    /// What the whole run shares.
    pub context: Arc<RunContext>,
    /// The graph.
    pub topology: Arc<Topology>,
    /// Namespace; empty for the root graph.
    pub ns: Arc<str>,
    /// Whether it stores checkpoints.
    pub stores: bool,
    /// Checkpoints of the graphs around it, by namespace.
    pub parents: Map,
    /// For graphs inside: the task that runs the graph, as the metadata of checkpoints tells it.
    pub of_task: Map,
    /// The task that runs it, when it stores its state per thread.
    pub task: Option<TaskId>,
    /// Channels.
    pub channels: Channels,
    /// The checkpoint the state belongs to.
    pub current: CurrentCheckpoint,
    /// What is stored of it: the base of the next commit's deltas.
    pub frame: Frame,
    /// Writes of tasks that are not part of a checkpoint yet.
    pub pending: PendingWrites,
    /// What the last superstep updated; `None` after a fork or a state update.
    pub updated: Option<BTreeSet<Arc<str>>>,
    /// Tasks of the current superstep.
    pub tasks: Vec<PlannedTask>,
    /// Whether this run has stored a checkpoint of the graph.
    pub stored_any: bool,
    /// Supersteps of nodes that the graph has done in this run; those of earlier attempts count.
    pub supersteps: u32,
    /// The first superstep runs its tasks though results of them are stored.
    pub replaying: bool,
    /// Whether the run resumes from a checkpoint instead of starting with input, once it is decided.
    pub resuming: Option<bool>,
    /// For graphs inside: the state emitted last, which is what the graph returns.
    pub emitted: Option<Value>,
    /// The replay around it.
    pub replay: Replay,
    /// What its state takes.
    pub memory: StateMemory,
}

impl Execution {
    /// The execution of a graph that starts from `base`, a stored checkpoint, or else from the state
    /// before the first input. What its state takes is counted in `memory`, if there is one.
    ///
    /// # Errors
    /// A stored value does not fit its channel.
    pub fn new(
        context: Arc<RunContext>,
        topology: Arc<Topology>,
        ns: Arc<str>,
        base: Option<Decoded>,
        memory: Option<Reservation>,
    ) -> Result<Self, Error> {
        let mut new = Self {
            channels: Channels::empty(&topology),
            context,
            topology,
            ns,
            stores: false,
            parents: Map::new(),
            of_task: Map::new(),
            task: None,
            current: CurrentCheckpoint::none(),
            frame: Frame::default(),
            pending: PendingWrites::default(),
            updated: None,
            tasks: vec![],
            stored_any: false,
            supersteps: 0,
            replaying: false,
            resuming: None,
            emitted: None,
            replay: Replay::default(),
            memory: StateMemory::new(memory, base.as_ref()),
        };
        if let Some(base) = base {
            new.channels = Channels::restore(&new.topology, &base.checkpoint)?;
            new.channels.know_message_ids(&base.frame);
            new.current = CurrentCheckpoint::of(&base.checkpoint);
            new.updated = updated_by(&base.checkpoint);
            new.frame = base.frame;
            new.pending = base.writes.into_iter().map(|(_, write)| write).collect();
        }
        Ok(new)
    }

    /// The graph.
    pub fn graph(&self) -> &Arc<Compiled> {
        &self.topology.graph
    }

    /// Whether nothing was ever written to the channels.
    pub fn is_blank(&self) -> bool {
        self.channels.versions.is_empty()
    }

    /// Plans the tasks that follow the current checkpoint.
    pub fn plan(&self) -> Vec<PlannedTask> {
        plan::plan(
            &self.topology,
            &self.channels,
            self.current.id,
            &self.ns,
            self.current.step + 1,
            self.updated.as_ref(),
        )
    }

    /// How events describe a task.
    pub fn info(&self, task: &PlannedTask) -> TaskInfo {
        TaskInfo {
            id: task.id,
            name: task.name.clone(),
            triggers: task.triggers.clone(),
            path: task.path_value(),
            ns: task.ns.clone(),
            step: self.current.step + 1,
        }
    }

    /// The current checkpoint, for errors that no task is at fault for.
    pub fn location(&self) -> ErrorLocation {
        ErrorLocation {
            tasks: vec![],
            checkpoint: self.current.exists.then_some(self.current.id),
        }
    }

    /// Where a task runs, for errors.
    pub fn location_of(&self, task: &PlannedTask) -> ErrorLocation {
        ErrorLocation {
            tasks: vec![(task.name.clone(), task.id)],
            checkpoint: Some(self.current.id),
        }
    }

    /// The tasks of this superstep that wrote to a channel; `writes` are in their order.
    pub fn writers_of(&self, channel: &str, writes: &[Writes]) -> ErrorLocation {
        let writes_it = |writes: &Writes| writes.iter().any(|(name, _)| &**name == channel);
        let tasks = self.tasks.iter().zip(writes);
        ErrorLocation {
            tasks: tasks
                .filter(|(_, writes)| writes_it(writes))
                .map(|(task, _)| (task.name.clone(), task.id))
                .collect(),
            checkpoint: Some(self.current.id),
        }
    }

    /// The input of a task: its argument, or the channels its node reads.
    pub fn input_of(&self, task: &PlannedTask) -> Value {
        if let TaskOrigin::Push { arg: own, .. } | TaskOrigin::ErrorHandler { input: own, .. } =
            &task.origin
        {
            return own.clone();
        }
        let Some(node) = self.topology.node(task.node) else {
            return self.channels.get(START).cloned().unwrap_or_default();
        };
        if self.graph().root_state {
            return self.channels.output(&self.topology);
        }
        if let Some(names) = &node.reads {
            return Value::map(self.channels.read(names));
        }
        let mut map = Map::with_capacity(self.graph().channels.len());
        for spec in &self.graph().channels {
            if let Some(value) = self.channels.get(&spec.name) {
                map.insert(spec.name.clone(), value.clone());
            }
        }
        Value::map(map)
    }

    /// What graphs inside the tasks of this superstep see of the execution.
    pub fn as_parent(&self) -> ParentExecution {
        let mut parents = self.parents.clone();
        parents.insert(self.ns.clone(), self.current.id.to_string());
        ParentExecution {
            parents,
            checkpoint: self.current.id,
            ns: self.ns.clone(),
            resuming: self.resuming,
            replay: self.replay.clone(),
            stores: self.stores,
            task_retry: false,
            interrupts: Arc::default(),
        }
    }

    /// The error of a run that reached its limit of supersteps.
    pub fn recursion_error(&self) -> Error {
        let limit = self.context.config.recursion_limit;
        Error::failed(
            "GraphRecursionError",
            format!(
                "Recursion limit of {limit} reached without hitting a stop condition. \
                 You can increase the limit by setting the `recursion_limit` config key."
            ),
        )
    }
}
