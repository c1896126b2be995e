//! The pending writes of an execution: results of tasks that are not part of a checkpoint yet.

use std::sync::Arc;

use super::Execution;
use crate::{
    checkpoint::{Pending, earlier},
    engine::{
        apply::Writes,
        pending::{self, TaskMemory},
        reserved::{STEP, control_index},
    },
    id::TaskId,
    value::Value,
};

impl Execution {
    /// The stored output of a task; empty when it has not finished.
    pub fn output_of(&self, task: TaskId) -> Writes {
        self.pending.output_of(task)
    }

    /// What a task has from earlier runs.
    pub fn memory_of(&self, task: TaskId) -> TaskMemory {
        TaskMemory {
            earlier: self.earlier_of(task),
            ..TaskMemory::load(&self.pending, task)
        }
    }

    /// What was pending of a task before this run wrote to it, to be stored beside what the run writes; `None` at a
    /// checkpoint of the run's own, which goes with the run.
    fn earlier_of(&self, task: TaskId) -> Option<Value> {
        let run = self.context.recovery.run()?;
        if !self.current.was_found() {
            return None;
        }
        earlier::image(run, self.pending.of(task))
    }

    /// Replaces what is pending of a task (LangGraph's `put_writes`); returns what is to be stored.
    pub fn put_writes(
        &mut self,
        task: TaskId,
        path: &Arc<str>,
        mut writes: Writes,
    ) -> Vec<Pending> {
        if writes.iter().all(|(name, _)| control_index(name).is_some()) {
            writes = last_of_each(writes);
        }
        writes.extend(
            self.earlier_of(task)
                .map(|earlier| (earlier::CHANNEL.into(), earlier)),
        );
        if task == TaskId::NULL {
            // Regular writes of earlier commands stay in front with the positions they have.
            // Control writes go last: a resume value that is gone the next time must not move them.
            writes.sort_by_key(|(name, _)| control_index(name).is_some());
            let mut all = self.output_of(task);
            all.extend(writes);
            writes = all;
        }
        let mut earlier = self.pending.of(task).iter();
        let steps = earlier.find(|write| &*write.channel == STEP).cloned();
        let all = pending::indexed(task, path, &writes);
        self.memory.add(&all);
        let now_pending = steps.into_iter().chain(all.iter().cloned());
        self.pending.replace(task, now_pending.collect());
        if self.topology.untracked.is_empty() {
            return all;
        }
        pending::indexed(task, path, &self.topology.without_untracked(&writes))
    }
}

/// The last write of each channel.
fn last_of_each(writes: Writes) -> Writes {
    let mut last = Writes::new();
    for (name, value) in writes {
        match last.iter_mut().find(|(other, _)| *other == name) {
            Some(slot) => slot.1 = value,
            None => last.push((name, value)),
        }
    }
    last
}
