//! One graph of a run, between and during supersteps: its state, its checkpoint, its pending
//! writes.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    drive::Writes,
    error::{Error, Place},
    event::{Body, CheckpointInfo, Kind, TaskInfo, TaskState},
    live::Live,
    names::{RESUME, START, STEP, control_index},
    plan::{self, Origin, Planned},
    scope::Scope,
    subgraph::Nested,
    task::Memory,
    view,
    wiring::Wiring,
};
use crate::{
    checkpoint::{Checkpoint, Pending, Source, frame::Frame},
    graph::Compiled,
    id::{CheckpointId, TaskId},
    time::Timestamp,
    value::{Map, Value},
};

/// A graph of a run.
pub struct Level {
    /// What the whole run shares.
    pub scope: Arc<Scope>,
    /// The graph.
    pub wiring: Arc<Wiring>,
    /// Namespace; empty for the root graph.
    pub ns: Arc<str>,
    /// Whether it stores checkpoints.
    pub stores: bool,
    /// Checkpoints of the graphs around it, by namespace.
    pub parents: Map,
    /// Channels.
    pub live: Live,
    /// The checkpoint the state belongs to.
    pub current: Current,
    /// What is stored of it: the base of the next commit's deltas.
    pub frame: Frame,
    /// Writes of tasks that are not part of a checkpoint yet.
    pub pending: Vec<Pending>,
    /// What the last superstep updated; `None` after a fork or a state edit.
    pub updated: Option<BTreeSet<Arc<str>>>,
    /// Tasks of the current superstep.
    pub tasks: Vec<Planned>,
    /// A checkpoint of the present state was stored by this run.
    pub saved: bool,
    /// Supersteps of nodes run so far in this call.
    pub ran: u32,
    /// Saved results are not handed back in the first superstep.
    pub replaying: bool,
    /// The run continues from a checkpoint instead of starting with input.
    pub resuming: Option<bool>,
    /// For graphs inside: the state told last, which is what they answer.
    pub told: Option<Value>,
    /// For graphs inside: what it shares with its parent's other visits.
    pub replay: super::subgraph::Replay,
}

/// The checkpoint a level stands on.
#[derive(Clone, Debug)]
pub struct Current {
    /// Its id; one is made up before the first input.
    pub id: CheckpointId,
    /// It has been stored (or would have been, by a graph that stores).
    pub exists: bool,
    /// The checkpoint before it.
    pub parent: Option<CheckpointId>,
    /// The one events name as such: in `Exit` durability that of the checkpoint a run began at.
    pub shown_parent: Option<CheckpointId>,
    /// What made it.
    pub source: Source,
    /// Its superstep, -2 before the first input.
    pub step: i64,
    /// Distance from the root of its path, -1 before the first input.
    pub depth: i32,
    /// In `Exit` durability the last checkpoint that is stored.
    pub stored: Option<CheckpointId>,
    /// Checkpoints of the graphs around it, as stored with it; not known of one made in this run.
    pub shown_parents: Option<Map>,
    /// The checkpoint event was sent.
    pub told: bool,
    /// Newest message of the index.
    pub last_node: Option<crate::id::NodeId>,
    /// Newest event.
    pub event_number: i64,
}

impl Level {
    /// The graph.
    pub fn graph(&self) -> &Arc<Compiled> {
        &self.wiring.graph
    }

    /// Plans the tasks that follow the current checkpoint.
    pub fn plan(&self) -> Vec<Planned> {
        plan::plan(
            &self.wiring,
            &self.live,
            self.current.id,
            &self.ns,
            self.current.step + 1,
            self.updated.as_ref(),
        )
    }

    /// How events describe a task.
    pub fn info(&self, task: &Planned) -> TaskInfo {
        TaskInfo {
            id: task.id,
            name: task.name.clone(),
            triggers: task.triggers.clone(),
            path: task.path_value(),
            ns: task.ns.clone(),
            step: self.current.step + 1,
        }
    }

    /// Where a task runs, for errors.
    pub fn place(&self, task: &Planned) -> Place {
        Place {
            tasks: vec![(task.name.clone(), task.id)],
            checkpoint: Some(self.current.id),
        }
    }

    /// The tasks of this superstep that wrote to a channel; `writes` are in their order.
    pub fn writers(&self, channel: &str, writes: &[Writes]) -> Place {
        let writes_it = |writes: &Writes| writes.iter().any(|(name, _)| &**name == channel);
        let tasks = self.tasks.iter().zip(writes);
        Place {
            tasks: tasks
                .filter(|(_, writes)| writes_it(writes))
                .map(|(task, _)| (task.name.clone(), task.id))
                .collect(),
            checkpoint: Some(self.current.id),
        }
    }

    /// What a task gets: its argument, or the channels its node reads.
    pub fn input(&self, task: &Planned) -> Value {
        if let Origin::Push { arg: own, .. } | Origin::Rescue { input: own, .. } = &task.origin {
            return own.clone();
        }
        let Some(node) = self.wiring.node(task.node) else {
            return self.live.get(START).cloned().unwrap_or_default();
        };
        if self.graph().root_state {
            return self.live.output(&self.wiring);
        }
        match &node.reads {
            Some(names) => Value::map(self.live.read(names)),
            None => {
                let mut map = Map::with_capacity(self.graph().channels.len());
                for spec in &self.graph().channels {
                    if let Some(value) = self.live.get(&spec.name) {
                        map.insert(spec.name.clone(), value.clone());
                    }
                }
                Value::map(map)
            }
        }
    }

    /// Saved output of a task, control writes left out; empty when it has not finished.
    pub fn saved(&self, task: TaskId) -> Vec<(Arc<str>, Value)> {
        self.pending
            .iter()
            .filter(|write| write.task == task)
            .filter(|write| control_index(&write.channel).is_none())
            .map(|write| (write.channel.clone(), write.value.clone()))
            .collect()
    }

    /// Answers and steps a task had before.
    pub fn memory(&self, task: TaskId) -> Memory {
        let mut memory = Memory::default();
        for write in self.pending.iter().filter(|write| write.task == task) {
            match &*write.channel {
                RESUME => {
                    memory.answers = write
                        .value
                        .as_list()
                        .map(<[Value]>::to_vec)
                        .unwrap_or_default();
                }
                STEP => {
                    if let Some(map) = write.value.as_map() {
                        memory.steps = map
                            .iter()
                            .map(|(key, value)| (key.to_string(), value.clone()))
                            .collect();
                    }
                }
                _ => {}
            }
        }
        memory
    }

    /// Replaces what is pending of a task (LangGraph's `put_writes`); answers what is to be
    /// stored, with the index of each write.
    pub fn put_writes(
        &mut self,
        task: TaskId,
        path: &Arc<str>,
        mut writes: Vec<(Arc<str>, Value)>,
    ) -> Vec<Pending> {
        if writes.iter().all(|(name, _)| control_index(name).is_some()) {
            // The last one per control channel counts.
            let mut last: Vec<(Arc<str>, Value)> = vec![];
            for (name, value) in writes {
                match last.iter_mut().find(|(other, _)| *other == name) {
                    Some(slot) => slot.1 = value,
                    None => last.push((name, value)),
                }
            }
            writes = last;
        }
        if task == TaskId::NULL {
            // Regular writes of earlier commands keep their positions in front.
            // Control writes go last: an answer that is gone the next time must not move them.
            writes.sort_by_key(|(name, _)| control_index(name).is_some());
            let mut all: Vec<(Arc<str>, Value)> = self
                .pending
                .iter()
                .filter(|write| write.task == task && control_index(&write.channel).is_none())
                .map(|write| (write.channel.clone(), write.value.clone()))
                .collect();
            all.extend(writes);
            writes = all;
        }
        let keep_steps = self
            .pending
            .iter()
            .find(|write| write.task == task && &*write.channel == STEP)
            .cloned();
        self.pending.retain(|write| write.task != task);
        self.pending.extend(keep_steps);
        let pending = |writes: Vec<(Arc<str>, Value)>| -> Vec<Pending> {
            writes
                .into_iter()
                .enumerate()
                .map(|(position, (channel, value))| Pending {
                    task,
                    path: path.clone(),
                    idx: control_index(&channel)
                        .unwrap_or_else(|| i32::try_from(position).unwrap_or(i32::MAX)),
                    channel,
                    value,
                })
                .collect()
        };
        let rows = match self.wiring.untracked.is_empty() {
            true => pending(writes),
            false => {
                let stored = self.wiring.without_untracked(&writes);
                self.pending.extend(pending(writes));
                return pending(stored);
            }
        };
        self.pending.extend(rows.iter().cloned());
        rows
    }

    /// The level as graphs inside see it.
    pub fn nested(&self) -> Nested {
        let mut parents = self.parents.clone();
        parents.insert(self.ns.clone(), self.current.id.to_string());
        Nested::new(
            parents,
            self.current.id,
            self.ns.clone(),
            self.resuming,
            self.replay.clone(),
            self.stores,
        )
    }

    /// Tasks with what is known of them, for checkpoint events.
    pub fn task_states(&self, tasks: &[Planned]) -> Vec<TaskState> {
        let pending: Vec<&Pending> = self.pending.iter().collect();
        tasks
            .iter()
            .map(|task| view::task_state(&self.wiring, task, &pending))
            .collect()
    }

    /// Tells of the current checkpoint, once.
    pub fn tell_checkpoint(&mut self, tasks: &[Planned]) {
        if self.current.told || !self.stores || !self.current.exists {
            return;
        }
        self.current.told = true;
        let scope = self.scope.clone();
        scope.emit(Kind::Checkpoints, &self.ns, || {
            Body::Checkpoint(Box::new(CheckpointInfo {
                id: self.current.id,
                parent: self.current.shown_parent,
                source: self.current.source,
                step: self.current.step,
                parents: match &self.current.shown_parents {
                    Some(parents) => parents.clone(),
                    None => self.parents.clone(),
                },
                values: self.live.output(&self.wiring),
                next: tasks.iter().map(|task| task.name.clone()).collect(),
                tasks: self.task_states(tasks),
            }))
        });
    }

    /// Sends the state. A graph inside answers what it told last.
    pub fn tell_values(&mut self) {
        if !self.ns.is_empty() {
            self.told = Some(self.live.output(&self.wiring));
        }
        self.scope.emit(Kind::Values, &self.ns, || {
            Body::Values(self.live.output(&self.wiring))
        });
    }

    /// Stands on a new checkpoint of the present state.
    pub fn stand_on(&mut self, source: Source) -> Checkpoint {
        let step = self.current.step + 1;
        let above = self
            .current
            .exists
            .then_some(self.current.id)
            .into_iter()
            .chain(self.scope.floor);
        let id = CheckpointId::mint(step, above);
        let parent = self.current.exists.then_some(self.current.id);
        let stored_parent = match self.exits_late() {
            true => self.current.stored,
            false => parent,
        };
        // What is never stored is no step on the way from the root.
        let skipped = self.exits_late()
            && self.current.exists
            && self.current.stored != Some(self.current.id);
        self.current = Current {
            id,
            exists: true,
            shown_parent: match self.exits_late() {
                true => self.current.shown_parent,
                false => parent,
            },
            parent,
            source,
            step,
            depth: self.current.depth + i32::from(!skipped),
            stored: self.current.stored,
            shown_parents: None,
            told: false,
            last_node: self.current.last_node,
            event_number: self.current.event_number,
        };
        self.checkpoint(stored_parent)
    }

    /// In `Exit` durability checkpoints are stored when the run ends.
    pub fn exits_late(&self) -> bool {
        self.scope
            .journal
            .as_ref()
            .is_some_and(|journal| journal.durability() == super::journal::Durability::Exit)
    }

    /// The present state as a checkpoint that follows `parent`.
    pub fn checkpoint(&self, parent: Option<CheckpointId>) -> Checkpoint {
        let mut metadata = self.scope.metadata.clone();
        if !self.parents.is_empty() {
            metadata.insert("parents", Value::map(self.parents.clone()));
        }
        let (thread, branch) = (self.scope.thread, self.scope.branch);
        Checkpoint {
            id: self.current.id,
            parent,
            step: self.current.step,
            source: self.current.source,
            created_at: Timestamp::now(),
            values: self.live.snapshot(&self.wiring),
            versions: self.live.versions.clone(),
            consumed_versions: self.live.seen.clone(),
            updated: self
                .updated
                .as_ref()
                .map(|updated| updated.iter().cloned().collect()),
            metadata,
            run: self.scope.run,
            thread,
            branch,
            depth: self.current.depth,
            root: match self.ns.is_empty() {
                true => None,
                false => *self.scope.root.lock(),
            },
            last_node: self.current.last_node,
            event_number: self.current.event_number,
            run_supersteps: self.ran,
        }
    }

    /// Runs out of supersteps.
    pub fn out_of_steps(&self) -> Error {
        let limit = self.scope.config.recursion_limit;
        Error::failed(
            "GraphRecursionError",
            format!(
                "Recursion limit of {limit} reached without hitting a stop condition. \
                 You can increase the limit by setting the `recursion_limit` config key."
            ),
        )
    }
}
