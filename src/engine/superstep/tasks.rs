//! One superstep: its tasks run side by side, their writes are applied together and committed.

use std::sync::Arc;

use tokio::task::JoinSet;
use tracing::Instrument;

use super::{
    apply_step::{apply_step, shows},
    prepare::{Prepared, job_of, prepare},
    record::{Results, record},
};
use crate::{
    checkpoint::Source,
    contention::shares,
    engine::{
        apply::Writes,
        callback, emit,
        error::Error,
        event::Interrupt,
        execution::Execution,
        fan_out, output, persist,
        plan::PlannedTask,
        task::{
            self,
            job::{Job, TaskEnd, TaskResult},
        },
        topology::START_NODE,
    },
};

/// Runs the planned tasks, applies their writes and commits; the interrupts when tasks wait at some.
/// The superstep adds `counts` to those the graph has done.
pub async fn run(execution: &mut Execution, counts: u32) -> Result<Option<Vec<Interrupt>>, Error> {
    let results = run_tasks(execution).await?;
    if execution.context.cancel.is_cancelled() {
        persist::flush(execution).await?;
        return Err(Error::Cancelled);
    }
    let Results {
        mut failures,
        mut interrupts,
        ..
    } = results;
    failures.sort_by_key(|(index, _)| *index);
    if let Some((_, error)) = failures.into_iter().next() {
        persist::flush(execution).await?;
        return Err(error);
    }
    if !interrupts.is_empty() {
        let path = |index: usize| &execution.tasks[index].path;
        interrupts.sort_by(|(a, _), (b, _)| path(*a).cmp(path(*b)));
        persist::flush(execution).await?;
        return Ok(Some(
            interrupts.into_iter().flat_map(|(_, of)| of).collect(),
        ));
    }
    let tasks = execution.tasks.iter();
    let writes: Vec<Writes> = tasks.map(|task| execution.output_of(task.id)).collect();
    let all = fan_out::count(writes.iter().flatten());
    let applied = fan_out::check(execution, "the nodes of this superstep start", all)
        .map_err(|error| error.at(|| execution.location()))
        .and_then(|()| apply_step(execution, &writes));
    if let Err(error) = applied {
        persist::flush(execution).await?;
        return Err(error);
    }
    let barrier = persist::barrier(execution);
    if shows(execution, writes.iter().flatten()) {
        emit::values(execution);
    }
    execution.pending.clear();
    if execution.ns.is_empty() {
        // The client's resume value was for the tasks of this superstep.
        execution.context.recovery.withdraw_resume();
    }
    execution.replaying = false;
    execution.supersteps += counts;
    persist::checkpoint(execution, Source::Loop, barrier).await?;
    Ok(None)
}

/// Runs the tasks whose results are not stored, and error handlers of those that fail.
async fn run_tasks(execution: &mut Execution) -> Result<Results, Error> {
    let tasks = execution.tasks.clone();
    let prepared = prepare(execution, &tasks).await?;
    let mut set = JoinSet::new();
    let mut alone = None;
    let mut results = Results::default();
    let mut starts = vec![];
    let mut state = None;
    let runs = |task: &&Prepared| task.stored.is_empty() && !task.failed;
    let several = prepared.iter().filter(runs).count() != 1;
    let planned = prepared.iter().zip(&tasks);
    let planned = planned
        .filter(|(task, _)| runs(task))
        .map(|(_, planned)| planned.id);
    execution.context.recovery.plan(planned);
    for (index, task) in prepared.into_iter().enumerate() {
        fan_out::let_others_run(execution, index).await?;
        let planned = &tasks[index];
        if task.failed {
            continue;
        }
        if !task.stored.is_empty() {
            emit::update(execution, index, &task.stored, true);
            continue;
        }
        if planned.node == START_NODE {
            starts.push((index, task.input));
            continue;
        }
        results
            .cache_keys
            .extend(task.cache_key.map(|key| (index, key)));
        callback::node_start(execution, &task.info, &task.input);
        let job = job_of(execution, planned, (task.info, task.input), &mut state)?;
        if several {
            spawn(&mut set, execution, index, job);
        } else {
            alone = Some((index, job));
        }
    }
    for (index, input) in starts {
        let end = match output::of_input(&execution.topology, &input) {
            Ok(output) => TaskEnd::Returned(output),
            Err(error) => TaskEnd::Failed(error),
        };
        let others_run = !set.is_empty() || alone.is_some();
        record(execution, &mut results, index, (end, vec![]), others_run).await?;
    }
    if let Some((index, job)) = alone {
        // Nothing to run beside it: no need for a task of the runtime.
        let result = task::run(execution.context.clone(), job).await;
        record(execution, &mut results, index, result, false).await?;
    }
    loop {
        for (index, job) in handler_jobs(execution, &mut results).await? {
            spawn(&mut set, execution, index, job);
        }
        let Some(joined) = set.join_next().await else {
            return Ok(results);
        };
        // Those that have finished by now are recorded in the order of the tasks. Tasks that need
        // no more than their turn get it first, or the runtime would show the one it ran last.
        let mut ready = vec![joined];
        let mut count = 0;
        while count < ready.len() && !set.is_empty() {
            count = ready.len();
            tokio::task::yield_now().await;
            ready.extend(std::iter::from_fn(|| set.try_join_next()));
        }
        let ready: Result<Vec<_>, _> = ready.into_iter().collect();
        let mut ready = ready.map_err(|_| Error::Cancelled)?;
        ready.sort_by_key(|(index, _)| *index);
        let others_run = !set.is_empty();
        for (done, (index, result)) in ready.into_iter().enumerate() {
            record(execution, &mut results, index, result, others_run).await?;
            // What has finished is recorded though the run is cancelled.
            let _ = fan_out::let_others_run(execution, done).await;
        }
    }
}

/// Runs a task in a task of the runtime: a node that computes does not hold up its siblings.
fn spawn(set: &mut JoinSet<(usize, TaskResult)>, execution: &Execution, index: usize, job: Job) {
    let context = execution.context.clone();
    let work = async move {
        let id = job.info.id;
        let result = task::run(context.clone(), job).await;
        context.recovery.finish(id);
        (index, result)
    };
    set.spawn(shares::in_this_run(work).in_current_span());
}

/// Error handlers of tasks that failed by now, as tasks of this superstep. The failures are durable
/// before the handlers run, so that a later run runs nothing but the handlers.
async fn handler_jobs(
    execution: &mut Execution,
    results: &mut Results,
) -> Result<Vec<(usize, Job)>, Error> {
    let handlers = std::mem::take(&mut results.handlers);
    if handlers.is_empty() {
        return Ok(vec![]);
    }
    persist::flush(execution).await?;
    let first = execution.tasks.len();
    execution.tasks.extend(handlers);
    let added = execution.tasks.iter().enumerate().skip(first);
    let job = |(index, planned): (usize, &PlannedTask)| {
        let info = Arc::new(execution.info(planned));
        let input = execution.input_of(planned);
        callback::node_start(execution, &info, &input);
        let job = job_of(execution, planned, (info, input), &mut None)?;
        Ok((index, job))
    };
    added.map(job).collect()
}
