//! Error handlers: tasks that run in place of those that failed for good.

use super::{
    error::{Error, Mistake},
    level::Level,
    names::{ERROR, ERROR_SOURCE},
    plan::{self, Origin, Planned},
    wiring::Wiring,
};
use crate::{checkpoint::Pending, extract::Failure, id::CheckpointId, value::Value};

/// Whether an error handler may see this error. What stops the run itself it may not, nor an
/// answer that did not fit: its question stays open.
pub fn takes(error: &Error) -> bool {
    let stops = matches!(
        error,
        Error::ParentCommand(_) | Error::Cancelled | Error::Storage(_)
    );
    !stops && error.kind() != Some(Mistake::AnswerShape)
}

/// The task of the handler of a node whose task failed; none when the node has no handler.
pub fn handler(level: &Level, failed: &Planned, error: &Value) -> Option<Planned> {
    let index = level.wiring.handler_of(failed.node)?;
    let node = level.wiring.node(index)?;
    // A handler that has a view of its own reads that, as far as the failed task read the state.
    let input = match (&failed.origin, &node.reads) {
        (Origin::Pull, Some(names)) => Value::map(level.live.read(names)),
        _ => level.input(failed),
    };
    let place = (level.current.id, level.current.step + 1);
    let failure = failure(failed, error);
    plan::handler(&level.wiring, place, failed, (input, failure))
}

fn failure(failed: &Planned, error: &Value) -> Failure {
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

/// The handlers of tasks that failed in an earlier run: they run in place of those.
pub fn resumed(level: &Level, tasks: &[Planned]) -> Vec<Planned> {
    if level.replaying {
        return vec![];
    }
    let of = |task| {
        let error = handed_over(level.pending.iter(), task)?;
        handler(level, task, error)
    };
    tasks.iter().filter_map(of).collect()
}

/// Whether a handler runs in place of this task.
pub fn stands_in(level: &Level, task: &Planned) -> bool {
    !level.replaying
        && level.wiring.handler_of(task.node).is_some()
        && handed_over(level.pending.iter(), task).is_some()
}

/// The error of a task that was handed over to its handler.
fn handed_over<'a>(
    pending: impl Iterator<Item = &'a Pending> + Clone,
    task: &Planned,
) -> Option<&'a Value> {
    let mut own = pending.filter(|write| write.task == task.id);
    own.clone().find(|write| &*write.channel == ERROR_SOURCE)?;
    let error = own.find(|write| &*write.channel == ERROR)?;
    Some(&error.value)
}

/// For states that are read: by position of the task that failed, the handler in its place.
pub fn standing_in(
    wiring: &Wiring,
    place: (CheckpointId, i64),
    planned: &[Planned],
    pending: &[&Pending],
) -> Vec<(usize, Planned)> {
    let of = |(index, task): (usize, &Planned)| {
        let error = handed_over(pending.iter().copied(), task)?;
        let given = (Value::Null, failure(task, error));
        Some((index, plan::handler(wiring, place, task, given)?))
    };
    planned.iter().enumerate().filter_map(of).collect()
}
