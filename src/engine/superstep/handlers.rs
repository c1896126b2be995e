//! The tasks of a superstep that run error handlers.

use crate::{
    engine::{
        error_handler::{failure, handed_over},
        execution::Execution,
        plan::{self, PlannedTask, TaskOrigin},
    },
    value::Value,
};

/// The task of the handler of a node whose task failed; none when the node has no handler.
pub fn handler(execution: &Execution, failed: &PlannedTask, error: &Value) -> Option<PlannedTask> {
    let topology = &execution.topology;
    let node = topology.node(topology.handler_of(failed.node)?)?;
    // A handler that has a view of its own reads that, as far as the failed task read the state.
    let input = match (&failed.origin, &node.reads) {
        (TaskOrigin::Pull, Some(names)) => Value::map(execution.channels.read(names)),
        _ => execution.input_of(failed),
    };
    let position = (execution.current.id, execution.current.step + 1);
    plan::handler(topology, position, failed, (input, failure(failed, error)))
}

/// The handlers of tasks that failed in an earlier run: they run in place of those.
pub fn of_failed_before(execution: &Execution, tasks: &[PlannedTask]) -> Vec<PlannedTask> {
    if execution.replaying {
        return vec![];
    }
    let of = |task: &PlannedTask| {
        let error = handed_over(&execution.pending, task.id)?;
        handler(execution, task, error)
    };
    tasks.iter().filter_map(of).collect()
}

/// Whether a handler runs in place of this task, which failed in an earlier run.
pub fn replaces(execution: &Execution, task: &PlannedTask) -> bool {
    !execution.replaying
        && execution.topology.handler_of(task.node).is_some()
        && handed_over(&execution.pending, task.id).is_some()
}
