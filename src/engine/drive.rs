//! The loop: plan the tasks of a superstep, run them, apply what they wrote, commit.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use tokio::task::JoinSet;

use super::{
    apply::{TaskWrites, apply},
    error::{Error, Mistake},
    event::{Body, Interrupt, Kind},
    level::Level,
    live::ROOT,
    names::{ERROR, ERROR_SOURCE, INTERRUPT, RESUME},
    output,
    plan::{Origin, Planned},
    prepare::{Prepared, job_of, prepare},
    rescue, reuse, save, takeover,
    task::{self, Control, Ended, Job},
    tell,
    wiring::START_NODE,
};
use crate::{
    checkpoint::{Pending, Source},
    graph::{Names, Output},
    id::TaskId,
    value::{Map, Value},
};

/// How a graph stopped without failing.
#[derive(Debug)]
pub enum Stop {
    /// Nothing is left to run.
    Done,
    /// Tasks wait for answers.
    Asked(Vec<Interrupt>),
    /// A static breakpoint.
    Breakpoint,
}

/// Channels and what is written to them, in order.
pub type Writes = Vec<(Arc<str>, Value)>;

/// Runs supersteps until the graph stops.
///
/// # Errors
/// A task failed for good, a channel refused its writes, the limit was reached, or the storage
/// failed. What finished tasks wrote is durable, so that a resume runs only what is left.
pub async fn drive(level: &mut Level) -> Result<Stop, Error> {
    loop {
        let limit = level.scope.config.recursion_limit;
        let mut tasks = level.plan();
        level.tell_checkpoint(&tasks);
        if level.ran >= limit {
            return Err(level.out_of_steps());
        }
        if tasks.is_empty() {
            return Ok(Stop::Done);
        }
        tasks.extend(rescue::resumed(level, &tasks));
        let before = breakpoints(level, true);
        if stops_at(
            level,
            &before,
            tasks.iter().map(|task| (task.node, &task.name)),
        ) {
            // What finished tasks wrote shows, unless they are to run again.
            level.tasks = match level.replaying {
                true => vec![],
                false => tasks,
            };
            return Ok(Stop::Breakpoint);
        }
        // The superstep that takes the input is not one of the graph's; a fan-out to the start is.
        let hidden = tasks
            .iter()
            .any(|task| task.node == START_NODE && matches!(task.origin, Origin::Pull));
        let left = limit.saturating_sub(level.ran + u32::from(!hidden));
        level.scope.remaining.store(left, Ordering::Relaxed);
        level.tasks = tasks;
        if let Some(stop) = superstep(level, hidden).await? {
            return Ok(stop);
        }
        let after = breakpoints(level, false);
        let ran = std::mem::take(&mut level.tasks);
        if stops_at(
            level,
            &after,
            ran.iter().map(|task| (task.node, &task.name)),
        ) {
            let next = level.plan();
            level.tell_checkpoint(&next);
            return Ok(Stop::Breakpoint);
        }
        level.resuming = None;
    }
}

/// What the tasks of a superstep came to.
#[derive(Default)]
struct Outcome {
    failures: Vec<(usize, Error)>,
    questions: Vec<(usize, Vec<Interrupt>)>,
    /// Handlers of tasks that failed, yet to be run.
    handlers: Vec<Planned>,
    /// Where results are kept, by task.
    keys: HashMap<usize, reuse::Key>,
}

/// Runs the planned tasks, applies their writes and commits; `Some` when tasks ask. A `hidden`
/// superstep does not count.
async fn superstep(level: &mut Level, hidden: bool) -> Result<Option<Stop>, Error> {
    let tasks = level.tasks.clone();
    let jobs = prepare(level, &tasks).await?;
    let mut set = JoinSet::new();
    let mut alone = None;
    let runs = |job: &&Prepared| job.saved.is_empty() && !job.failed;
    let fresh = jobs.iter().filter(runs).count();
    let mut outcome = Outcome::default();
    let mut starts = vec![];
    let mut state = None;
    for (index, job) in jobs.into_iter().enumerate() {
        let planned = &tasks[index];
        if job.failed {
            continue;
        }
        if !job.saved.is_empty() {
            tell::update(level, index, &job.saved, true);
            continue;
        }
        if planned.node == START_NODE {
            starts.push((index, job.input));
            continue;
        }
        outcome.keys.extend(job.key.map(|key| (index, key)));
        let job = job_of(level, planned, (job.info, job.input), &mut state);
        let scope = level.scope.clone();
        if fresh == 1 {
            alone = Some((index, job));
        } else {
            // Real parallelism: a node that computes does not hold up its siblings.
            set.spawn(async move { (index, task::run(scope, job).await) });
        }
    }
    for (index, input) in starts {
        let ended = match output::of_input(&level.wiring, &input) {
            Ok(output) => Ended::Done(output),
            Err(error) => Ended::Failed(error),
        };
        settle(level, &mut outcome, index, (ended, vec![]), false).await?;
    }
    if let Some((index, job)) = alone {
        // Nothing to run beside it: no need for a task of the runtime.
        let ended = task::run(level.scope.clone(), job).await;
        settle(level, &mut outcome, index, ended, false).await?;
    }
    loop {
        for (index, job) in handlers(level, &mut outcome).await? {
            let scope = level.scope.clone();
            set.spawn(async move { (index, task::run(scope, job).await) });
        }
        let Some(joined) = set.join_next().await else {
            break;
        };
        // Those that have finished by now are told in the order of the tasks. Tasks that need
        // no more than their turn get it first, or the runtime would show the one it ran last.
        let mut ready = vec![joined];
        let mut known = 0;
        while known < ready.len() && !set.is_empty() {
            known = ready.len();
            tokio::task::yield_now().await;
            ready.extend(std::iter::from_fn(|| set.try_join_next()));
        }
        let ready: Result<Vec<_>, _> = ready.into_iter().collect();
        let mut ready = ready.map_err(|_| Error::Cancelled)?;
        ready.sort_by_key(|(index, _)| *index);
        let others = !set.is_empty();
        for (index, ended) in ready {
            settle(level, &mut outcome, index, ended, others).await?;
        }
    }
    if level.scope.cancel.is_cancelled() {
        save::flush(level).await?;
        return Err(Error::Cancelled);
    }
    outcome.failures.sort_by_key(|(index, _)| *index);
    if let Some((_, error)) = outcome.failures.into_iter().next() {
        save::flush(level).await?;
        return Err(error);
    }
    let mut questions = outcome.questions;
    if !questions.is_empty() {
        let path = |index: usize| &level.tasks[index].path;
        questions.sort_by(|(a, _), (b, _)| path(*a).cmp(path(*b)));
        save::flush(level).await?;
        let all: Vec<Interrupt> = questions.into_iter().flat_map(|(_, asked)| asked).collect();
        return Ok(Some(Stop::Asked(all)));
    }
    let ran = level.tasks.iter();
    let writes: Vec<Writes> = ran.map(|task| level.saved(task.id)).collect();
    apply_step(level, &writes)?;
    if shows(level, writes.iter().flatten()) {
        level.tell_values();
    }
    level.pending.clear();
    if level.ns.is_empty() {
        // The client's answer was for the tasks of this superstep.
        *level.scope.answer.lock() = None;
    }
    level.replaying = false;
    level.ran += u32::from(!hidden);
    save::checkpoint(level, Source::Loop).await?;
    Ok(None)
}

/// Error handlers of tasks that failed by now, as tasks of this superstep. What they stand in
/// for is durable before they run, so that nothing but the handler runs again.
async fn handlers(level: &mut Level, outcome: &mut Outcome) -> Result<Vec<(usize, Job)>, Error> {
    let handlers = std::mem::take(&mut outcome.handlers);
    if handlers.is_empty() {
        return Ok(vec![]);
    }
    save::flush(level).await?;
    let first = level.tasks.len();
    level.tasks.extend(handlers);
    let added = level.tasks.iter().enumerate().skip(first);
    let job = |(index, planned): (usize, &Planned)| {
        let given = (Arc::new(level.info(planned)), level.input(planned));
        (index, job_of(level, planned, given, &mut None))
    };
    Ok(added.map(job).collect())
}

/// Applies the writes of the current tasks.
pub fn apply_step(level: &mut Level, writes: &[Writes]) -> Result<(), Error> {
    let applied: Vec<TaskWrites<'_>> = level
        .tasks
        .iter()
        .zip(writes)
        .map(|(task, writes)| TaskWrites {
            path: &task.path,
            node: &task.name,
            writes,
            triggers: &task.triggers,
        })
        .collect();
    // In `Exit` durability the state of a failed superstep is stored: a channel that failed
    // keeps what it had.
    let before = level.exits_late().then(|| level.live.clone());
    match (apply(&level.wiring, &mut level.live, applied), before) {
        (Ok(updated), _) => {
            level.updated = Some(updated);
            Ok(())
        }
        (Err(error), before) => {
            let error = match &error {
                Error::Channel { channel, .. } => {
                    let place = level.writers(channel, writes);
                    error.at(|| place)
                }
                _ => error,
            };
            if let Some(before) = before {
                level.live.mend(before);
            }
            Err(error)
        }
    }
}

/// Whether the writes that were just applied show in the graph's output.
pub fn shows<'a>(level: &Level, writes: impl IntoIterator<Item = &'a (Arc<str>, Value)>) -> bool {
    let graph = level.graph();
    let is_output =
        |name: &Arc<str>| graph.output.contains(name) || (graph.root_state && &**name == ROOT);
    let updated = level.updated.as_ref();
    updated.is_some_and(|updated| updated.iter().any(is_output))
        && writes.into_iter().any(|(name, _)| is_output(name))
}

/// Books the end of one task: its writes are pending, stored or on their way, and told.
async fn settle(
    level: &mut Level,
    outcome: &mut Outcome,
    index: usize,
    (ended, control): (Ended, Control),
    others_run: bool,
) -> Result<(), Error> {
    let task = level.tasks[index].clone();
    let ended = match ended {
        Ended::Done(output) => finished(level, task.node, output),
        Ended::Written(writes) => Ok(writes),
        Ended::Asked(asked) => Err(Ended::Asked(asked)),
        Ended::Failed(error) => Err(Ended::Failed(error)),
    };
    match ended {
        Ok(outputs) => {
            if let (Some(key), Some(results), Some(node)) = (
                outcome.keys.remove(&index),
                &level.scope.reuse,
                level.wiring.node(task.node),
            ) {
                results.put(key, node, &outputs);
            }
            let mut writes = control;
            writes.extend(outputs);
            let rows = level.put_writes(task.id, &task.path, writes.clone());
            if task.node != START_NODE {
                tell::messages(level, index, &writes);
                tell::update(level, index, &writes, false);
            }
            save::keep_with(level, rows, takeover::taken(level, &task), others_run).await;
        }
        Err(Ended::Asked(asked)) => {
            if !asked.is_empty() {
                let stored = Value::list(asked.iter().map(Interrupt::to_value).collect());
                let mut writes = vec![(INTERRUPT.into(), stored)];
                writes.extend(control.into_iter().filter(|(name, _)| &**name == RESUME));
                let rows = level.put_writes(task.id, &task.path, writes);
                tell::question(level, index, &asked);
                save::keep_with(level, rows, takeover::taken(level, &task), others_run).await;
            }
            outcome.questions.push((index, asked));
        }
        Err(Ended::Failed(error @ (Error::ParentCommand(_) | Error::Cancelled))) => {
            outcome.failures.push((index, error));
        }
        Err(Ended::Failed(error)) => {
            let error = error.at(|| level.place(&task));
            if error.kind() == Some(Mistake::AnswerShape) {
                take_answer_back(level).await;
            }
            let failure = error.to_value();
            let mut writes: Writes = control;
            if !writes.is_empty() && task.node != START_NODE {
                // An answer was taken: LangGraph tells of an update without content.
                level.scope.emit(Kind::Updates, &level.ns, || Body::Update {
                    node: task.name.clone(),
                    update: Value::Null,
                    cached: false,
                });
            }
            writes.push((ERROR.into(), failure.clone()));
            let takes = rescue::takes(&error);
            let handler = takes.then(|| rescue::handler(level, &task, &failure));
            let handler = handler.flatten();
            if handler.is_some() {
                writes.push((ERROR_SOURCE.into(), Value::Str(task.name.clone())));
            }
            let rows = level.put_writes(task.id, &task.path, writes);
            if task.node != START_NODE {
                let info = Arc::new(level.info(&task));
                level.scope.emit(Kind::Tasks, &level.ns, || Body::TaskEnd {
                    task: info,
                    error: Some(failure),
                    result: Value::map(Map::new()),
                    interrupts: vec![],
                });
            }
            save::keep_with(level, rows, takeover::taken(level, &task), others_run).await;
            match handler {
                Some(handler) => outcome.handlers.push(handler),
                None => outcome.failures.push((index, error)),
            }
        }
        Err(Ended::Done(_) | Ended::Written(_)) => {}
    }
    Ok(())
}

/// The client's answer was refused by the node that took it: it is not handed out again.
async fn take_answer_back(level: &mut Level) {
    let given = |write: &&Pending| write.task == TaskId::NULL && &*write.channel == RESUME;
    if !level.pending.iter().any(|write| given(&write)) {
        return;
    }
    let nothing = vec![(RESUME.into(), Value::Null)];
    let rows = level.put_writes(TaskId::NULL, &"".into(), nothing);
    save::keep(level, rows, false).await;
}

fn finished(level: &Level, node: usize, output: Output) -> Result<Writes, Ended> {
    let tolerance = level.scope.tolerance;
    output::writes(&level.wiring, &level.live, tolerance, node, output).map_err(Ended::Failed)
}

/// The static breakpoints that hold: the request's, else the graph's.
pub(super) fn breakpoints(level: &Level, before: bool) -> Names {
    let (asked, own) = match before {
        true => (
            &level.scope.interrupt_before,
            &level.graph().interrupt_before,
        ),
        false => (&level.scope.interrupt_after, &level.graph().interrupt_after),
    };
    // A run that asks for none gets the graph's own, as in LangGraph.
    match asked.as_ref().filter(|names| !names.is_empty()) {
        Some(names) if level.ns.is_empty() => names.clone(),
        _ => own.clone(),
    }
}

/// Whether a breakpoint holds: something changed since the last resume, and a task is named.
pub(super) fn stops_at<'a>(
    level: &Level,
    names: &Names,
    mut tasks: impl Iterator<Item = (usize, &'a Arc<str>)>,
) -> bool {
    if *names == Names::None {
        return false;
    }
    let seen = level.live.seen.get(INTERRUPT);
    let changed = level.live.versions.iter().any(|(name, version)| {
        let last = seen
            .and_then(|seen| seen.get(name))
            .map_or(0, |v| v.counter);
        version.counter > last
    });
    // The hidden start node is meant only where its name is given.
    let hidden = |node| node == START_NODE && *names == Names::All;
    changed && tasks.any(|(node, name)| !hidden(node) && names.contains(name))
}
