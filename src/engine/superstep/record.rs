//! Recording how a task ended: its writes become pending, are queued for the storage, and its events
//! are emitted.

use std::{collections::HashMap, sync::Arc};

use super::handlers;
use crate::{
    checkpoint::Pending,
    engine::{
        apply::Writes,
        barrier::Barrier,
        callback, emit,
        error::{Error, Mistake},
        error_handler,
        event::{Interrupt, Kind},
        execution::Execution,
        fan_out, node_cache, output, persist,
        plan::PlannedTask,
        reserved::{ERROR, ERROR_SOURCE, INTERRUPT, RESUME},
        task::job::{TaskEnd, TaskResult},
        topology::START_NODE,
    },
    id::TaskId,
    value::Value,
};

/// How the tasks of a superstep ended, by their position.
#[derive(Default)]
pub struct Results {
    /// Errors of tasks that failed for good.
    pub failures: Vec<(usize, Error)>,
    /// Interrupts at which tasks wait; none of a task at a static breakpoint of a graph inside.
    pub interrupts: Vec<(usize, Vec<Interrupt>)>,
    /// Handlers of tasks that failed, yet to be run.
    pub handlers: Vec<PlannedTask>,
    /// Messages that were there before.
    pub present: emit::PresentMessages,
    /// Where the node cache stores results.
    pub cache_keys: HashMap<usize, node_cache::Key>,
}

/// Records the end of one task; `others_run` when its siblings still do.
pub async fn record(
    execution: &mut Execution,
    results: &mut Results,
    index: usize,
    (end, control): TaskResult,
    others_run: bool,
) -> Result<(), Error> {
    let task = execution.tasks[index].clone();
    let end = match end {
        TaskEnd::Returned(output) => {
            let (topology, channels) = (&execution.topology, &execution.channels);
            let (tolerance, config) = (execution.context.tolerance, &execution.context.config);
            let written =
                output::writes(topology, channels, (tolerance, config), task.node, output);
            match written {
                Ok(writes) => TaskEnd::Wrote(writes),
                Err(error) => TaskEnd::Failed(error),
            }
        }
        end => end,
    };
    let end = match end {
        TaskEnd::Wrote(writes) => {
            let who = format!("node `{}` starts", task.name);
            match fan_out::check(execution, &who, fan_out::count(&writes)) {
                Ok(()) => TaskEnd::Wrote(writes),
                Err(error) => TaskEnd::Failed(error),
            }
        }
        end => end,
    };
    match end {
        TaskEnd::Returned(_) => {}
        TaskEnd::Wrote(output) => {
            let key = results.cache_keys.remove(&index);
            let node = execution.topology.node(task.node);
            if let (Some(key), Some(cache), Some(node)) = (key, &execution.context.reuse, node) {
                cache.put(key, node, &output);
            }
            let mut writes = control;
            writes.extend(output);
            let rows = execution.put_writes(task.id, &task.path, writes.clone());
            let mut barrier = None;
            if task.node != START_NODE {
                barrier = persist::barrier(execution);
                callback::node_end(execution, index, &writes);
                emit::messages(execution, index, &writes, &mut results.present);
                emit::update(execution, index, &writes, false);
            }
            enqueue(execution, &task, (rows, barrier), others_run).await;
        }
        TaskEnd::Interrupted(interrupts) => {
            if !interrupts.is_empty() {
                let stored = Value::list(interrupts.iter().map(Interrupt::to_value).collect());
                let mut writes = vec![(INTERRUPT.into(), stored)];
                writes.extend(control.into_iter().filter(|(name, _)| &**name == RESUME));
                let rows = execution.put_writes(task.id, &task.path, writes);
                // Their ids are made of the checkpoint's: after a crash before its commit nobody could answer them.
                for kind in [Kind::Updates, Kind::Values, Kind::Tasks] {
                    persist::before_naming(execution, kind).await?;
                }
                let barrier = persist::barrier(execution);
                emit::interrupts(execution, index, &interrupts);
                enqueue(execution, &task, (rows, barrier), others_run).await;
            }
            results.interrupts.push((index, interrupts));
        }
        TaskEnd::Failed(error @ (Error::ParentCommand(_) | Error::Cancelled)) => {
            results.failures.push((index, error));
        }
        TaskEnd::Failed(error) => {
            let error = error.at(|| execution.location_of(&task));
            if error.kind() == Some(Mistake::ResumeShape) {
                withdraw_client_resume(execution).await;
            }
            let failure = error.to_value();
            let barrier = persist::barrier(execution);
            let mut writes: Writes = control;
            if !writes.is_empty() && task.node != START_NODE {
                // A resume value was used: LangGraph emits an update without content.
                emit::empty_update(execution, &task);
            }
            writes.push((ERROR.into(), failure.clone()));
            let handler = if error_handler::handles(&error) {
                handlers::handler(execution, &task, &failure)
            } else {
                None
            };
            if handler.is_some() {
                writes.push((ERROR_SOURCE.into(), Value::Str(task.name.clone())));
            }
            let rows = execution.put_writes(task.id, &task.path, writes);
            if task.node != START_NODE {
                // Its text may say at which checkpoint that was.
                persist::before_naming(execution, Kind::Tasks).await?;
                emit::failure(execution, &task, failure);
            }
            enqueue(execution, &task, (rows, barrier), others_run).await;
            match handler {
                Some(handler) => results.handlers.push(handler),
                None => results.failures.push((index, error)),
            }
        }
    }
    Ok(())
}

/// Queues what a task wrote, with the record that it has used the client's resume value if it has.
async fn enqueue(
    execution: &Execution,
    task: &PlannedTask,
    (rows, barrier): (Vec<Pending>, Option<Barrier>),
    others_run: bool,
) {
    // What is not stored of the task needs no record either.
    let used = if execution.stores {
        execution.context.recovery.record_use(&task.ns)
    } else {
        None
    };
    persist::enqueue(execution, rows, barrier, used, others_run).await;
}

/// The node that used the client's resume value refused it: no later run uses it.
async fn withdraw_client_resume(execution: &mut Execution) {
    let mut own = execution.pending.of(TaskId::NULL).iter();
    if !own.any(|write| &*write.channel == RESUME) {
        return;
    }
    let none = vec![(RESUME.into(), Value::Null)];
    let rows = execution.put_writes(TaskId::NULL, &Arc::from(""), none);
    persist::enqueue(execution, rows, None, None, false).await;
}
