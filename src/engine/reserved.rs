//! Reserved names of LangGraph's engine and the indexes of control channels.

use crate::checkpoint::earlier;

/// Channel of a run's input, and the hidden node that copies it into the state.
pub const START: &str = "__start__";
/// Pseudo task that applies input.
pub const INPUT: &str = "__input__";
/// Interrupts of a task.
pub const INTERRUPT: &str = "__interrupt__";
/// Resume values of a task, or of the client for whichever task interrupts next.
pub const RESUME: &str = "__resume__";
/// Failure of a task.
pub const ERROR: &str = "__error__";
/// Beside a failure: the task was handed over to its node's error handler.
pub const ERROR_SOURCE: &str = "__error_source_node__";
/// Marks a finished task that wrote nothing.
pub const NO_WRITES: &str = "__no_writes__";
/// Results of memoised steps.
pub const STEP: &str = "__step__";
/// At the checkpoint where a run began, under the run's own id: the record that its command is
/// among the writes, and whether a task has used the resume value in it.
pub const COMMAND_RECORD: &str = "__given__";
/// Fan-out targets with their arguments.
pub const TASKS: &str = "__pregel_tasks";
/// Trigger and path head of fan-out tasks.
pub const PUSH: &str = "__pregel_push";
/// Path head of edge-triggered tasks.
pub const PULL: &str = "__pregel_pull";
/// In the path and the id of a task that runs an error handler.
pub const HANDLER: &str = "node_error_handler";

/// The fixed index of a control channel; `None` for channels of output.
pub fn control_index(channel: &str) -> Option<i32> {
    Some(match channel {
        ERROR => -1,
        "__scheduled__" => -2,
        INTERRUPT => -3,
        RESUME => -4,
        STEP => -5,
        // LangGraph files it among the output; here what is output has no negative index.
        ERROR_SOURCE => -6,
        COMMAND_RECORD => -7,
        earlier::CHANNEL => earlier::IDX,
        _ => return None,
    })
}

/// Names a task may write that are no state: skipped when writes are applied.
pub fn is_control(channel: &str) -> bool {
    channel == NO_WRITES || channel == PUSH || control_index(channel).is_some()
}
