//! Bounds on fan-outs: how many tasks a superstep may have, and how the loop over them gives way.

use std::sync::Arc;

use super::{
    error::{Error, Mistake},
    execution::Execution,
    reserved::TASKS,
};
use crate::value::Value;

/// The most tasks of one superstep when nobody chose another number.
pub const MAX_TASKS: usize = 10_000;

/// Tasks after which the loop over them lets others run.
const STRIDE: usize = 64;

/// How many tasks writes start by fanning out.
pub fn count<'a>(writes: impl IntoIterator<Item = &'a (Arc<str>, Value)>) -> usize {
    let channels = writes.into_iter().map(|(channel, _)| &**channel);
    channels.filter(|channel| *channel == TASKS).count()
}

/// Whether a superstep may have as many tasks.
///
/// # Errors
/// It may not; the error names `who` starts them.
pub fn check(execution: &Execution, who: &str, tasks: usize) -> Result<(), Error> {
    let most = execution.context.max_tasks;
    if tasks <= most {
        return Ok(());
    }
    Err(Error::mistake(
        Mistake::FanOut,
        format!(
            "{who} {tasks} tasks in one superstep, and at most {most} are allowed: start fewer at \
             a time, or let the operator raise BACKSTITCH_MAX_TASKS"
        ),
    ))
}

/// Lets other work of the runtime go on after every few tasks of a loop.
///
/// # Errors
/// The run was cancelled.
pub async fn let_others_run(execution: &Execution, done: usize) -> Result<(), Error> {
    if done % STRIDE != STRIDE - 1 {
        return Ok(());
    }
    tokio::task::yield_now().await;
    if execution.context.cancel.is_cancelled() {
        return Err(Error::Cancelled);
    }
    Ok(())
}
