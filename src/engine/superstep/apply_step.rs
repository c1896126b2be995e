//! Applying the writes of a superstep's tasks to the state of an execution.

use std::sync::Arc;

use crate::{
    engine::{
        apply::{TaskWrites, Writes, apply},
        channels::ROOT,
        error::Error,
        execution::Execution,
    },
    value::Value,
};

/// Applies the writes of the current tasks, which are in their order.
///
/// # Errors
/// A channel refuses what was written to it.
pub fn apply_step(execution: &mut Execution, writes: &[Writes]) -> Result<(), Error> {
    let tasks = execution.tasks.iter().zip(writes);
    let applied: Vec<TaskWrites<'_>> = tasks.map(|(task, writes)| task.writing(writes)).collect();
    // In `Exit` durability the state of a failed superstep is stored: a channel that failed stays
    // what it was.
    let before = execution
        .stores_at_exit()
        .then(|| execution.channels.clone());
    match apply(&execution.topology, &mut execution.channels, applied) {
        Ok(updated) => {
            execution.updated = Some(updated);
            Ok(())
        }
        Err(error) => {
            let error = match &error {
                Error::Channel { channel, .. } => {
                    let location = execution.writers_of(channel, writes);
                    error.at(|| location)
                }
                _ => error,
            };
            if let Some(before) = before {
                execution.channels.mend(before);
            }
            Err(error)
        }
    }
}

/// Whether the writes that were just applied show in the graph's output.
pub fn shows<'a>(
    execution: &Execution,
    writes: impl IntoIterator<Item = &'a (Arc<str>, Value)>,
) -> bool {
    let graph = execution.graph();
    let is_output =
        |name: &Arc<str>| graph.output.contains(name) || (graph.root_state && &**name == ROOT);
    let updated = execution.updated.as_ref();
    updated.is_some_and(|updated| updated.iter().any(is_output))
        && writes.into_iter().any(|(name, _)| is_output(name))
}
