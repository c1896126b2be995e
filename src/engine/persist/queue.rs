//! What waits in a run's writer until it is written: results of tasks, and checkpoints of graphs inside.

use std::{collections::HashMap, sync::Arc};

use crate::{
    budget::Reservation,
    checkpoint::{Commit, Pending, earlier, frame},
    engine::{barrier::Barrier, reserved::RESUME},
    id::{CheckpointId, TaskId},
};

/// Writes of one task, to be written with the next commit or flush.
pub struct QueuedWrites {
    /// Namespace of its checkpoint.
    pub ns: Arc<str>,
    /// The checkpoint it runs from.
    pub checkpoint: CheckpointId,
    /// What it wrote.
    pub writes: Vec<Pending>,
    /// What tells of it is shown once it is stored.
    pub barrier: Option<Barrier>,
}

/// In `Exit` durability: a checkpoint of a graph inside, to be stored after that of the root.
pub struct DeferredCheckpoint {
    /// Its namespace.
    pub ns: Arc<str>,
    /// The rows, unless it is stored already.
    pub commit: Option<Commit>,
    /// The same, for the next time the run comes to the graph.
    pub decoded: frame::Decoded,
    /// What it takes.
    pub _memory: Option<Reservation>,
}

/// All that waits, in order.
#[derive(Default)]
pub struct Queue {
    /// Results of tasks.
    writes: Vec<QueuedWrites>,
    /// Where those of each task are among them.
    by_task: HashMap<TaskId, Vec<usize>>,
    /// Checkpoints of graphs inside.
    pub deferred: Vec<DeferredCheckpoint>,
}

impl Queue {
    /// Adds writes in place of the control values that wait and that they replace: one statement
    /// cannot write a row twice.
    pub fn push(&mut self, new: QueuedWrites) {
        let Some(task) = new.writes.first().map(|write| write.task) else {
            return;
        };
        let own = self.by_task.entry(task).or_default();
        let is_control = new.writes.iter().all(|write| write.idx < 0);
        let replaced = |old: &Pending| new.writes.iter().any(|write| write.idx == old.idx);
        for at in own.iter() {
            let old = &mut self.writes[*at];
            if old.checkpoint == new.checkpoint && old.ns == new.ns {
                let retains = !is_control || old.writes.iter().any(|write| write.idx >= 0);
                // What the run has found replaces what waits beside output, too.
                let retains = |idx| retains && idx != earlier::IDX;
                old.writes
                    .retain(|write| retains(write.idx) || !replaced(write));
            }
        }
        own.push(self.writes.len());
        self.writes.push(new);
    }

    /// Whether results of tasks wait.
    pub fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// The results of tasks.
    pub fn writes(&self) -> &[QueuedWrites] {
        &self.writes
    }

    /// Takes the results of tasks, and their barriers apart.
    pub fn take_writes(&mut self) -> (Vec<QueuedWrites>, Vec<Barrier>) {
        let mut writes = self.take_all();
        let barriers = writes.iter_mut().filter_map(|one| one.barrier.take());
        let barriers = barriers.collect();
        (writes, barriers)
    }

    fn take_all(&mut self) -> Vec<QueuedWrites> {
        self.by_task.clear();
        std::mem::take(&mut self.writes)
    }

    /// Drops the writes at a checkpoint.
    pub fn discard_at(&mut self, ns: &str, checkpoint: CheckpointId) {
        for queued in self.take_all() {
            if queued.checkpoint != checkpoint || &*queued.ns != ns {
                self.push(queued);
            }
        }
    }

    /// Drops the client's resume value from the writes.
    pub fn discard_resume(&mut self) {
        for queued in &mut self.writes {
            queued
                .writes
                .retain(|write| write.task != TaskId::NULL || &*write.channel != RESUME);
        }
    }

    /// The newest checkpoint of a namespace.
    pub fn find_deferred(&self, ns: &str) -> Option<frame::Decoded> {
        let mut newest = self.deferred.iter().rev();
        newest
            .find(|deferred| *deferred.ns == *ns)
            .map(|deferred| deferred.decoded.clone())
    }
}

impl Drop for Queue {
    /// What is left will never be stored.
    fn drop(&mut self) {
        let (_, barriers) = self.take_writes();
        barriers.into_iter().for_each(Barrier::keep_up);
    }
}
