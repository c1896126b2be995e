//! Updating the state of a thread without running nodes (LangGraph's `update_state`,
//! `bulk_update_state` and `__copy__`).

pub mod messages;

use std::sync::Arc;

use super::{
    apply::{Writes, apply, apply_input},
    channels::Channels,
    error::{Error, ErrorLocation, Mistake},
    error_handler::replacements_of_failed,
    input::ClientCommand,
    message_ids,
    message_index::{ChangeSource, MessageIndex},
    pending::{PendingWrites, indexed},
    plan::{PlannedTask, plan},
    reserved::{INPUT, START},
    snapshot,
    topology::Topology,
};
use crate::{
    checkpoint::{Saver, Slot, Source, frame::Decoded},
    graph::{Compiled, END},
    id::{CheckpointId, RunId, TaskId, input_task_id},
    value::{Map, Value},
};

mod commit;
mod copy;
mod node_writes;

/// As whom an update clones a checkpoint instead of changing it.
pub const COPY: &str = "__copy__";

/// One update of a superstep of updates.
#[derive(Clone, Debug, Default)]
pub struct StateUpdate {
    /// Channel to value; nothing leaves only the routing of the node. For `__copy__` a list of
    /// `[values, as_node]` to apply to the copy.
    pub values: Option<Value>,
    /// What the node is taken to have returned instead, when that was a command: its update and
    /// where it goes. A resume value in it is ignored.
    pub command: Option<ClientCommand>,
    /// The node that is taken to have written it; `None` for the one that ran last. `END` without
    /// values discards the tasks that wait, `__input__` applies the values as input, `__copy__`
    /// clones the checkpoint.
    pub as_node: Option<Arc<str>>,
    /// The id of the task under which the results are stored.
    pub task: Option<TaskId>,
}

/// What to update, and the right to.
pub struct StateUpdater {
    /// The storage.
    pub saver: Arc<dyn Saver>,
    /// The right to write.
    pub slot: Slot,
    /// Namespace; empty for the root graph.
    pub ns: Arc<str>,
    /// The graph of that namespace.
    pub graph: Arc<Compiled>,
    /// The checkpoint to start from, its writes those that count for the branch.
    pub base: Option<Decoded>,
    /// The thread has moved past it.
    pub superseded: bool,
    /// Makes the index of the conversation's messages.
    pub index: Option<Arc<dyn MessageIndex>>,
    /// Stored with the new checkpoints.
    pub metadata: Map,
    /// Stored with the new checkpoints.
    pub run: Option<RunId>,
}

/// The state after an update.
#[derive(Clone, Debug)]
pub struct UpdateOutcome {
    /// The last checkpoint made.
    pub checkpoint: CheckpointId,
    /// The slot as of the last write.
    pub slot: Slot,
    /// Nodes that would run next.
    pub next: Vec<Arc<str>>,
}

impl StateUpdater {
    /// Applies supersteps of updates, one checkpoint each.
    ///
    /// # Errors
    /// An update that makes no sense, a channel that refuses it, or the storage.
    pub async fn apply(
        mut self,
        supersteps: Vec<Vec<StateUpdate>>,
    ) -> Result<UpdateOutcome, Error> {
        if supersteps.is_empty() {
            return Err(Error::value("No supersteps provided"));
        }
        if supersteps.iter().any(Vec::is_empty) {
            return Err(Error::value("No updates provided"));
        }
        let topology = Topology::new(self.graph.clone());
        let count = supersteps.len();
        for (index, updates) in supersteps.into_iter().enumerate() {
            let moved_past = self.superseded && index == 0;
            let by = ChangeSource::Update {
                last: index + 1 == count,
            };
            let left = self.superstep(&topology, updates, moved_past, by).await?;
            if let Some(updates) = left {
                self.write_as_nodes(&topology, updates, false, by).await?;
            }
        }
        let Some(base) = &self.base else {
            return Err(Error::value("No updates provided"));
        };
        let channels = Channels::restore(&topology, &base.checkpoint)?;
        let next = self.planned(&topology, &channels, 1);
        Ok(UpdateOutcome {
            checkpoint: base.checkpoint.id,
            slot: self.slot,
            next: next.into_iter().map(|task| task.name).collect(),
        })
    }

    /// One superstep; returns the updates to apply to a copy it made.
    async fn superstep(
        &mut self,
        topology: &Topology,
        updates: Vec<StateUpdate>,
        moved_past: bool,
        by: ChangeSource,
    ) -> Result<Option<Vec<StateUpdate>>, Error> {
        let several = updates.len() > 1;
        let refuse = |what: &str| {
            if several {
                Err(Error::invalid_update(what))
            } else {
                Ok(())
            }
        };
        let first = updates.first().cloned().unwrap_or_default();
        match first.as_node.as_deref() {
            Some(END) if first.values.is_none() && first.command.is_none() => {
                refuse("Cannot apply multiple updates when clearing state")?;
                self.clear(topology, by).await?;
            }
            Some(INPUT) => {
                refuse("Cannot apply multiple updates when updating as input")?;
                let updated =
                    |command: ClientCommand| Value::map(command.update.into_iter().collect());
                let values = first.command.map(updated).or(first.values);
                self.input(topology, values, moved_past, by).await?;
            }
            Some(COPY) => {
                refuse("Cannot copy checkpoint with multiple updates")?;
                return self.copy(topology, first.values.as_ref(), by).await;
            }
            _ => {
                self.write_as_nodes(topology, updates, moved_past, by)
                    .await?
            }
        }
        Ok(None)
    }

    fn channels(&self, topology: &Topology) -> Result<Channels, Error> {
        match &self.base {
            Some(base) => Channels::restore(topology, &base.checkpoint),
            None => Ok(Channels::empty(topology)),
        }
    }

    /// A mistake at the checkpoint that was to be updated.
    fn mistake(&self, kind: Mistake, message: impl Into<String>) -> Error {
        let checkpoint = self.base.as_ref().map(|base| base.checkpoint.id);
        Error::mistake(kind, message).at(|| ErrorLocation {
            tasks: vec![],
            checkpoint,
        })
    }

    fn step(&self) -> i64 {
        self.base.as_ref().map_or(-1, |base| base.checkpoint.step)
    }

    /// Tasks that wait at the base, `ahead` supersteps after it.
    fn planned(&self, topology: &Topology, channels: &Channels, ahead: i64) -> Vec<PlannedTask> {
        let Some(base) = &self.base else {
            return vec![];
        };
        let step = base.checkpoint.step + ahead;
        plan(topology, channels, base.checkpoint.id, &self.ns, step, None)
    }

    /// Lets no task wait any more; what finished tasks wrote stays.
    async fn clear(&mut self, topology: &Topology, by: ChangeSource) -> Result<(), Error> {
        let mut channels = self.channels(topology)?;
        if let Some(base) = &self.base {
            let mut tasks = self.planned(topology, &channels, 1);
            let pending = base.writes.iter().map(|(_, write)| write.clone());
            let pending: PendingWrites = pending.collect();
            let position = (base.checkpoint.id, base.checkpoint.step + 1);
            let handlers = replacements_of_failed(topology, position, &tasks, &pending);
            tasks.extend(handlers.into_values());
            snapshot::apply_client_writes(topology, &mut channels, &pending)?;
            let writes: Vec<Writes> = tasks
                .iter()
                .map(|task| pending.output_of(task.id))
                .collect();
            let applied = tasks
                .iter()
                .zip(&writes)
                .map(|(task, writes)| task.writing(writes))
                .collect();
            apply(topology, &mut channels, applied)?;
        }
        let step = self.step() + 1;
        self.store(topology, channels, Source::Update, step, vec![], by)
            .await
    }

    async fn input(
        &mut self,
        topology: &Topology,
        values: Option<Value>,
        moved_past: bool,
        by: ChangeSource,
    ) -> Result<(), Error> {
        let Some(values) = values else {
            return Err(Error::invalid_update(
                "Received no input writes for __start__",
            ));
        };
        let mut channels = self.channels(topology)?;
        message_ids::check_input(&topology.graph, |name| channels.get(name), &values)?;
        let writes = [(START.into(), values)];
        apply_input(topology, &mut channels, &writes)?;
        let mut rows = vec![];
        if let Some(base) = self.base.as_ref().filter(|_| !moved_past) {
            let task = input_task_id(base.checkpoint.id);
            rows.push(indexed(task, &Arc::from(""), &writes));
        }
        let step = self
            .base
            .as_ref()
            .map_or(-1, |base| base.checkpoint.step + 1);
        self.store(topology, channels, Source::Input, step, rows, by)
            .await
    }
}
