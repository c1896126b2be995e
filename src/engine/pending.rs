//! The pending writes at a checkpoint: which tasks have finished, which wait at an interrupt, and what
//! a task that runs anew has from before.

use std::{collections::HashMap, sync::Arc};

use indexmap::IndexMap;

use super::{
    apply::Writes,
    event::Interrupt,
    reserved::{INTERRUPT, RESUME, STEP, control_index},
};
use crate::{checkpoint::Pending, id::TaskId, value::Value};

/// Pending writes by task: what concerns one task costs the same however many others there are.
#[derive(Clone, Debug, Default)]
pub struct PendingWrites {
    by_task: IndexMap<TaskId, Vec<Pending>>,
}

impl PendingWrites {
    /// The writes of one task, in their order.
    pub fn of(&self, task: TaskId) -> &[Pending] {
        self.by_task.get(&task).map_or(&[], Vec::as_slice)
    }

    /// All writes, those of one task together.
    pub fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.by_task.values().flatten()
    }

    /// Puts `writes` in place of what is pending of a task.
    pub fn replace(&mut self, task: TaskId, writes: Vec<Pending>) {
        self.by_task.insert(task, writes);
    }

    /// Drops the writes to a channel.
    pub fn drop_channel(&mut self, channel: &str) {
        for writes in self.by_task.values_mut() {
            writes.retain(|write| &*write.channel != channel);
        }
    }

    /// Drops all writes.
    pub fn clear(&mut self) {
        self.by_task.clear();
    }

    /// Whether nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.by_task.values().all(Vec::is_empty)
    }

    /// The output of a task, control writes left out; empty when it has not finished.
    pub fn output_of(&self, task: TaskId) -> Writes {
        let output = |write: &&Pending| control_index(&write.channel).is_none();
        let own = self.of(task).iter().filter(output);
        own.map(|write| (write.channel.clone(), write.value.clone()))
            .collect()
    }

    /// All that is pending of a task: the client's own writes are those of the null task.
    pub fn writes_of(&self, task: TaskId) -> Writes {
        let own = self.of(task).iter();
        own.map(|write| (write.channel.clone(), write.value.clone()))
            .collect()
    }

    /// Whether a task has finished.
    pub fn has_output(&self, task: TaskId) -> bool {
        let mut own = self.of(task).iter();
        own.any(|write| control_index(&write.channel).is_none())
    }

    /// How many interrupts of tasks that have not finished are open.
    pub fn count_open_interrupts(&self) -> usize {
        self.iter()
            .filter(|write| &*write.channel == INTERRUPT)
            .filter(|write| !self.has_output(write.task))
            .map(|write| write.value.as_list().map_or(1, <[Value]>::len))
            .sum()
    }

    /// The client's resume value for whichever task interrupts first.
    pub fn client_resume(&self) -> Option<&Value> {
        let mut own = self.of(TaskId::NULL).iter();
        own.find(|write| &*write.channel == RESUME)
            // A node refused it: a null has replaced it.
            .filter(|write| !write.value.is_null())
            .map(|write| &write.value)
    }
}

impl FromIterator<Pending> for PendingWrites {
    fn from_iter<I: IntoIterator<Item = Pending>>(writes: I) -> Self {
        let mut by_task: IndexMap<TaskId, Vec<Pending>> = IndexMap::new();
        for write in writes {
            by_task.entry(write.task).or_default().push(write);
        }
        Self { by_task }
    }
}

/// What a task has from earlier runs and attempts.
#[derive(Clone, Debug, Default)]
pub struct TaskMemory {
    /// Resume values of its interrupts, in order.
    pub resume_values: Vec<Value>,
    /// Results of its steps.
    pub steps: HashMap<String, Value>,
    /// Graphs that earlier attempts called: a further call has a namespace of its own.
    pub calls: usize,
    /// What was pending of it before this run, if that is to be stored beside what the run writes.
    pub earlier: Option<Value>,
}

impl TaskMemory {
    /// Reads what is stored of a task.
    pub fn load(pending: &PendingWrites, task: TaskId) -> Self {
        let mut memory = Self::default();
        for write in pending.of(task) {
            match &*write.channel {
                RESUME => {
                    let values = write.value.as_list();
                    memory.resume_values = values.map(<[Value]>::to_vec).unwrap_or_default();
                }
                STEP => {
                    let steps = write.value.as_map().into_iter().flat_map(|map| map.iter());
                    memory.steps = steps
                        .map(|(key, value)| (key.to_string(), value.clone()))
                        .collect();
                }
                _ => {}
            }
        }
        memory
    }
}

/// The interrupts that one pending write holds; none if it is of another channel.
pub fn interrupts_in(write: &Pending) -> impl Iterator<Item = Interrupt> {
    let list = (&*write.channel == INTERRUPT).then(|| write.value.as_list());
    let values = list.flatten().unwrap_or_default();
    values.iter().filter_map(Interrupt::from_value)
}

/// Writes of one task with the index that each has in the storage.
pub fn indexed(task: TaskId, path: &Arc<str>, writes: &[(Arc<str>, Value)]) -> Vec<Pending> {
    writes
        .iter()
        .enumerate()
        .map(|(position, (channel, value))| Pending {
            task,
            path: path.clone(),
            idx: control_index(channel)
                .unwrap_or_else(|| i32::try_from(position).unwrap_or(i32::MAX)),
            channel: channel.clone(),
            value: value.clone(),
        })
        .collect()
}
