//! The loop of a run: plan the tasks of a superstep, run them, apply what they wrote, commit.

use std::sync::atomic::Ordering;

use tracing::Instrument;

use super::{
    emit,
    error::Error,
    event::{Interrupt, Kind},
    execution::Execution,
    fan_out, persist,
    plan::PlannedTask,
};
use crate::trace;
use breakpoints::{Side, stops_at};

pub mod apply_step;
pub mod breakpoints;
mod handlers;
mod prepare;
mod record;
mod tasks;

/// How a graph stopped without failing.
#[derive(Debug)]
pub enum Stop {
    /// Nothing is left to run.
    Done,
    /// Tasks wait for resume values.
    Interrupted(Vec<Interrupt>),
    /// A static breakpoint.
    Breakpoint,
}

/// Runs supersteps until the graph stops.
///
/// # Errors
/// A task failed for good, a channel refused its writes, the limit was reached, or the storage
/// failed. What finished tasks wrote is durable, so that a resume runs only what is left.
pub async fn run_supersteps(execution: &mut Execution) -> Result<Stop, Error> {
    loop {
        let limit = execution.context.config.recursion_limit;
        let mut tasks = execution.plan();
        let many = fan_out::check(execution, "the state starts", tasks.len());
        many.map_err(|error| error.at(|| execution.location()))?;
        persist::before_naming(execution, Kind::Checkpoints).await?;
        emit::checkpoint(execution, &tasks);
        if execution.ns.is_empty() {
            let current = &execution.current;
            let checkpoint = current.exists.then_some(current.id);
            execution.context.sink.superstep(checkpoint);
        }
        if execution.supersteps >= limit {
            return Err(execution.recursion_error());
        }
        if tasks.is_empty() {
            return Ok(Stop::Done);
        }
        tasks.extend(handlers::of_failed_before(execution, &tasks));
        if stops_at(execution, Side::Before, &tasks) {
            // What finished tasks wrote shows, unless they are to run anew.
            execution.tasks = if execution.replaying { vec![] } else { tasks };
            persist::before_superstep(execution).await?;
            return Ok(Stop::Breakpoint);
        }
        let counts = u32::from(!tasks.iter().any(PlannedTask::takes_input));
        let left = limit.saturating_sub(execution.supersteps + counts);
        execution.context.remaining.store(left, Ordering::Relaxed);
        execution.tasks = tasks;
        persist::before_superstep(execution).await?;
        let span = trace::superstep(execution.supersteps + counts, &execution.ns);
        let ended = tasks::run(execution, counts).instrument(span.clone()).await;
        if let Err(error) = &ended {
            trace::failed(&span, error);
        }
        drop(span);
        if let Some(interrupts) = ended? {
            return Ok(Stop::Interrupted(interrupts));
        }
        let tasks = std::mem::take(&mut execution.tasks);
        if stops_at(execution, Side::After, &tasks) {
            let next = execution.plan();
            persist::before_naming(execution, Kind::Checkpoints).await?;
            emit::checkpoint(execution, &next);
            persist::before_superstep(execution).await?;
            return Ok(Stop::Breakpoint);
        }
        execution.resuming = None;
    }
}
