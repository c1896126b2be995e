//! Error handlers: tasks that run in place of those that failed for good.

use std::collections::BTreeMap;

use super::{
    error::{Error, Mistake},
    pending::PendingWrites,
    plan::{self, PlannedTask},
    reserved::{ERROR, ERROR_SOURCE},
    topology::Topology,
};
use crate::{
    extract::Failure,
    id::{CheckpointId, TaskId},
    value::Value,
};

/// Whether an error handler may handle this error. What stops the run itself it may not, nor a
/// resume value that did not fit: its interrupt stays open.
pub fn handles(error: &Error) -> bool {
    let stops = matches!(
        error,
        Error::ParentCommand(_) | Error::Cancelled | Error::Storage(_)
    );
    !stops && error.kind() != Some(Mistake::ResumeShape)
}

/// The stored error of a task, as the handler of its node receives it.
pub fn failure(failed: &PlannedTask, error: &Value) -> Failure {
    let text = |key| {
        let text = error.get(key).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    Failure {
        node: failed.name.clone(),
        task: failed.id,
        class: text("error"),
        message: text("message"),
    }
}

/// The stored error of a task that was handed over to its node's handler.
pub fn handed_over(pending: &PendingWrites, task: TaskId) -> Option<&Value> {
    let own = pending.of(task);
    own.iter().find(|write| &*write.channel == ERROR_SOURCE)?;
    let error = own.iter().find(|write| &*write.channel == ERROR)?;
    Some(&error.value)
}

/// For states that are read: by position of the task that failed, the handler in its place. The
/// tasks run from `checkpoint` in superstep `step`.
pub fn replacements_of_failed(
    topology: &Topology,
    (checkpoint, step): (CheckpointId, i64),
    planned: &[PlannedTask],
    pending: &PendingWrites,
) -> BTreeMap<usize, PlannedTask> {
    let of = |(index, task): (usize, &PlannedTask)| {
        let error = handed_over(pending, task.id)?;
        let input = (Value::Null, failure(task, error));
        let handler = plan::handler(topology, (checkpoint, step), task, input)?;
        Some((index, handler))
    };
    planned.iter().enumerate().filter_map(of).collect()
}
