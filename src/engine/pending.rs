//! Reading the pending writes at a checkpoint: which tasks have finished, which wait at an interrupt,
//! and what a task that runs anew has from before.

use std::{collections::HashMap, sync::Arc};

use super::{
    apply::Writes,
    event::Interrupt,
    reserved::{INTERRUPT, RESUME, STEP, control_index},
};
use crate::{checkpoint::Pending, id::TaskId, value::Value};

/// What a task has from earlier runs and attempts.
#[derive(Clone, Debug, Default)]
pub struct TaskMemory {
    /// Resume values of its interrupts, in order.
    pub resume_values: Vec<Value>,
    /// Results of its steps.
    pub steps: HashMap<String, Value>,
    /// Graphs that earlier attempts called: a further call has a namespace of its own.
    pub calls: usize,
}

impl TaskMemory {
    /// Reads what is stored of a task.
    pub fn load<'a>(pending: impl IntoIterator<Item = &'a Pending>, task: TaskId) -> Self {
        let mut memory = Self::default();
        for write in pending.into_iter().filter(|write| write.task == task) {
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

/// The output of a task, control writes left out; empty when it has not finished.
pub fn output_of<'a>(pending: impl IntoIterator<Item = &'a Pending>, task: TaskId) -> Writes {
    pending
        .into_iter()
        .filter(|write| write.task == task)
        .filter(|write| control_index(&write.channel).is_none())
        .map(|write| (write.channel.clone(), write.value.clone()))
        .collect()
}

/// All that is pending of a task: the client's own writes are those of the null task.
pub fn writes_of<'a>(pending: impl IntoIterator<Item = &'a Pending>, task: TaskId) -> Writes {
    pending
        .into_iter()
        .filter(|write| write.task == task)
        .map(|write| (write.channel.clone(), write.value.clone()))
        .collect()
}

/// Whether a task has finished.
pub fn has_output<'a>(pending: impl IntoIterator<Item = &'a Pending>, task: TaskId) -> bool {
    pending
        .into_iter()
        .any(|write| write.task == task && control_index(&write.channel).is_none())
}

/// How many interrupts of tasks that have not finished are open.
pub fn count_open_interrupts(pending: &[Pending]) -> usize {
    pending
        .iter()
        .filter(|write| &*write.channel == INTERRUPT)
        .filter(|write| !has_output(pending, write.task))
        .map(|write| write.value.as_list().map_or(1, <[Value]>::len))
        .sum()
}

/// The interrupts that one pending write holds; none if it is of another channel.
pub fn interrupts_in(write: &Pending) -> impl Iterator<Item = Interrupt> {
    let list = (&*write.channel == INTERRUPT).then(|| write.value.as_list());
    let values = list.flatten().unwrap_or_default();
    values.iter().filter_map(Interrupt::from_value)
}

/// The client's resume value for whichever task interrupts first.
pub fn client_resume(pending: &[Pending]) -> Option<&Value> {
    pending
        .iter()
        .find(|write| write.task == TaskId::NULL && &*write.channel == RESUME)
        // A node refused it: a null has replaced it.
        .filter(|write| !write.value.is_null())
        .map(|write| &write.value)
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
