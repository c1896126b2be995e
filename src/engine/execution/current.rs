//! The checkpoint that an execution is at, and how it moves to the next one.

use super::Execution;
use crate::{
    checkpoint::{Checkpoint, Source, frame},
    engine::persist::writer::Durability,
    id::{CheckpointId, NodeId},
    time::Timestamp,
    value::{Map, Value},
};

/// The checkpoint that the state of an execution belongs to.
#[derive(Clone, Debug)]
pub struct CurrentCheckpoint {
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
    /// Checkpoints of the graphs around it, as stored with it; none of one made in this run.
    pub shown_parents: Option<Map>,
    /// The time and the weight of its row; `None` unless this execution has written it.
    pub written: Option<WrittenRow>,
    /// Its event was emitted.
    pub emitted: bool,
    /// Newest message of the index.
    pub last_node: Option<NodeId>,
    /// Newest event.
    pub event_number: i64,
}

/// What is known of the row of a checkpoint once it was made.
#[derive(Clone, Copy, Debug)]
pub struct WrittenRow {
    /// Its time.
    pub created_at: Timestamp,
    /// What it weighs.
    pub weight: u64,
}

impl CurrentCheckpoint {
    /// A stored checkpoint.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        let parents = checkpoint.metadata.get("parents").and_then(Value::as_map);
        Self {
            id: checkpoint.id,
            exists: true,
            parent: checkpoint.parent,
            shown_parent: checkpoint.parent,
            source: checkpoint.source,
            step: checkpoint.step,
            depth: checkpoint.depth,
            stored: Some(checkpoint.id),
            shown_parents: Some(parents.cloned().unwrap_or_default()),
            written: None,
            emitted: false,
            last_node: checkpoint.last_node,
            event_number: checkpoint.event_number,
        }
    }

    /// None: the state before the first input.
    pub fn none() -> Self {
        Self {
            id: CheckpointId::mint(-2, []),
            exists: false,
            parent: None,
            shown_parent: None,
            source: Source::Input,
            step: -2,
            depth: -1,
            stored: None,
            shown_parents: None,
            written: None,
            emitted: false,
            last_node: None,
            event_number: 0,
        }
    }

    /// Whether the execution has found it in the storage.
    pub fn was_found(&self) -> bool {
        self.shown_parents.is_some()
    }
}

impl Execution {
    /// Moves to a new checkpoint of the present state.
    pub fn advance(&mut self, source: Source) -> Checkpoint {
        let step = self.current.step + 1;
        let parent = self.current.exists.then_some(self.current.id);
        let id = CheckpointId::mint(step, parent.into_iter().chain(self.context.floor));
        let late = self.stores_at_exit();
        let (stored_parent, shown_parent) = if late {
            (self.current.stored, self.current.shown_parent)
        } else {
            (parent, parent)
        };
        // A checkpoint that is never stored is no step on the way from the root.
        let skipped = late && parent.is_some() && self.current.stored != parent;
        self.current = CurrentCheckpoint {
            id,
            exists: true,
            shown_parent,
            parent,
            source,
            step,
            depth: self.current.depth + i32::from(!skipped),
            stored: self.current.stored,
            shown_parents: None,
            written: None,
            emitted: false,
            last_node: self.current.last_node,
            event_number: self.current.event_number,
        };
        self.checkpoint(stored_parent)
    }

    /// The present checkpoint as its row has it, with what that weighs; `None` unless this execution has written it.
    pub fn written_checkpoint(&self) -> Option<(Checkpoint, u64)> {
        let written = self.current.written?;
        let made = self.checkpoint(self.current.parent);
        let checkpoint = Checkpoint {
            created_at: written.created_at,
            metadata: frame::metadata_as_stored(&made.metadata)?,
            ..made
        };
        Some((checkpoint, written.weight))
    }

    /// Whether checkpoints are stored when the run ends, and not before: in `Exit` durability.
    pub fn stores_at_exit(&self) -> bool {
        let writer = self.context.writer.as_ref();
        writer.is_some_and(|writer| writer.durability() == Durability::Exit)
    }

    /// The present state as a checkpoint that follows `parent`.
    pub fn checkpoint(&self, parent: Option<CheckpointId>) -> Checkpoint {
        let mut metadata = self.context.metadata.clone();
        metadata.extend(self.of_task.clone());
        if !self.parents.is_empty() {
            metadata.insert("parents", Value::map(self.parents.clone()));
        }
        let updated = self.updated.as_ref();
        Checkpoint {
            id: self.current.id,
            parent,
            step: self.current.step,
            source: self.current.source,
            created_at: Timestamp::now(),
            values: self.channels.snapshot(&self.topology),
            versions: self.channels.versions.clone(),
            consumed_versions: self.channels.consumed_versions.clone(),
            updated: updated.map(|updated| updated.iter().cloned().collect()),
            metadata,
            run: self.context.run,
            thread: self.context.thread,
            branch: self.context.branch,
            depth: self.current.depth,
            root: if self.ns.is_empty() {
                None
            } else {
                *self.context.root.lock()
            },
            last_node: self.current.last_node,
            event_number: self.current.event_number,
            run_supersteps: self.supersteps,
            task: self.task,
        }
    }
}
