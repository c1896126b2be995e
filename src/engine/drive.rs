//! The loop: plan the tasks of a superstep, run them, apply what they wrote, commit.

use std::sync::{Arc, atomic::Ordering};

use tokio::task::JoinSet;

use super::{
    apply::{TaskWrites, apply},
    error::Error,
    event::{Body, Interrupt, Kind},
    level::Level,
    live::ROOT,
    names::{ERROR, INTERRUPT, RESUME},
    output, save,
    task::{self, Control, Ended, Job},
    tell,
    wiring::START_NODE,
};
use crate::{
    checkpoint::Source,
    graph::{Body as NodeBody, Names, Node, Output, Writers},
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
        let tasks = level.plan();
        level.tell_checkpoint(&tasks);
        if level.ran >= limit {
            return Err(level.out_of_steps());
        }
        if tasks.is_empty() {
            return Ok(Stop::Done);
        }
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
        let hidden = tasks.iter().any(|task| task.node == START_NODE);
        let left = limit.saturating_sub(level.ran + u32::from(!hidden));
        level.scope.remaining.store(left, Ordering::Relaxed);
        level.tasks = tasks;
        if let Some(stop) = superstep(level).await? {
            return Ok(stop);
        }
        level.ran += u32::from(!hidden);
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

/// Runs the planned tasks, applies their writes and commits; `Some` when tasks ask.
async fn superstep(level: &mut Level) -> Result<Option<Stop>, Error> {
    let tasks = level.tasks.clone();
    let mut jobs = vec![];
    for task in &tasks {
        let info = Arc::new(level.info(task));
        let saved = match level.replaying {
            true => vec![],
            false => level.saved(task.id),
        };
        let input = level.input(task);
        if task.node != START_NODE {
            level
                .scope
                .emit(Kind::Tasks, &level.ns, || Body::TaskStart {
                    task: info.clone(),
                    input: input.clone(),
                });
        }
        jobs.push((info, input, saved));
    }
    let mut set = JoinSet::new();
    let mut alone = None;
    let fresh = jobs.iter().filter(|(_, _, saved)| saved.is_empty()).count();
    let mut failures: Vec<(usize, Error)> = vec![];
    let mut questions: Vec<(usize, Vec<Interrupt>)> = vec![];
    let mut start = None;
    for (index, (info, input, saved)) in jobs.into_iter().enumerate() {
        let planned = &tasks[index];
        if !saved.is_empty() {
            tell::update(level, index, &saved, true);
            continue;
        }
        if planned.node == START_NODE {
            start = Some((index, input));
            continue;
        }
        let job = Job {
            planned: planned.clone(),
            info,
            input,
            graph_ns: level.ns.clone(),
            node: level
                .wiring
                .node(planned.node)
                .cloned()
                .unwrap_or_else(|| missing(&planned.name)),
            memory: level.memory(planned.id),
            nested: level.nested(),
            deps: level.graph().deps.clone(),
        };
        let scope = level.scope.clone();
        if fresh == 1 {
            alone = Some((index, job));
        } else {
            // Real parallelism: a node that computes does not hold up its siblings.
            set.spawn(async move { (index, task::run(scope, job).await) });
        }
    }
    if let Some((index, input)) = start {
        let ended = match output::of_input(&level.wiring, &input) {
            Ok(output) => Ended::Done(output),
            Err(error) => Ended::Failed(error),
        };
        settle(
            level,
            index,
            ended,
            vec![],
            false,
            &mut failures,
            &mut questions,
        )
        .await?;
    }
    if let Some((index, job)) = alone {
        // Nothing to run beside it: no need for a task of the runtime.
        let (ended, control) = task::run(level.scope.clone(), job).await;
        settle(
            level,
            index,
            ended,
            control,
            false,
            &mut failures,
            &mut questions,
        )
        .await?;
    }
    while let Some(joined) = set.join_next().await {
        let Ok((index, (ended, control))) = joined else {
            return Err(Error::Cancelled);
        };
        let others = !set.is_empty();
        settle(
            level,
            index,
            ended,
            control,
            others,
            &mut failures,
            &mut questions,
        )
        .await?;
    }
    if level.scope.cancel.is_cancelled() {
        save::flush(level).await?;
        return Err(Error::Cancelled);
    }
    failures.sort_by_key(|(index, _)| *index);
    if let Some((_, error)) = failures.into_iter().next() {
        save::flush(level).await?;
        return Err(error);
    }
    if !questions.is_empty() {
        questions.sort_by(|(a, _), (b, _)| tasks[*a].path.cmp(&tasks[*b].path));
        save::flush(level).await?;
        let all: Vec<Interrupt> = questions.into_iter().flat_map(|(_, asked)| asked).collect();
        return Ok(Some(Stop::Asked(all)));
    }
    let writes: Vec<Writes> = tasks.iter().map(|task| level.saved(task.id)).collect();
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
    save::checkpoint(level, Source::Loop).await?;
    Ok(None)
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
    index: usize,
    ended: Ended,
    control: Control,
    others_run: bool,
    failures: &mut Vec<(usize, Error)>,
    questions: &mut Vec<(usize, Vec<Interrupt>)>,
) -> Result<(), Error> {
    let task = level.tasks[index].clone();
    let ended = match ended {
        Ended::Done(output) => finished(level, task.node, output),
        Ended::Asked(asked) => Err(Ended::Asked(asked)),
        Ended::Failed(error) => Err(Ended::Failed(error)),
    };
    match ended {
        Ok(outputs) => {
            let mut writes = control;
            writes.extend(outputs);
            let rows = level.put_writes(task.id, &task.path, writes.clone());
            if task.node != START_NODE {
                tell::messages(level, index, &writes);
                tell::update(level, index, &writes, false);
            }
            save::keep(level, rows, others_run).await?;
        }
        Err(Ended::Asked(asked)) => {
            if !asked.is_empty() {
                let stored = Value::list(asked.iter().map(Interrupt::to_value).collect());
                let mut writes = vec![(INTERRUPT.into(), stored)];
                writes.extend(control.into_iter().filter(|(name, _)| &**name == RESUME));
                let rows = level.put_writes(task.id, &task.path, writes);
                tell::question(level, index, &asked);
                save::keep(level, rows, others_run).await?;
            }
            questions.push((index, asked));
        }
        Err(Ended::Failed(error @ (Error::ParentCommand(_) | Error::Cancelled))) => {
            failures.push((index, error));
        }
        Err(Ended::Failed(error)) => {
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
            save::keep(level, rows, others_run).await?;
            failures.push((index, error));
        }
        Err(Ended::Done(_)) => {}
    }
    Ok(())
}

fn finished(level: &Level, node: usize, output: Output) -> Result<Writes, Ended> {
    output::writes(&level.wiring, &level.live, node, output).map_err(Ended::Failed)
}

/// The static breakpoints that hold: the request's, else the graph's.
fn breakpoints(level: &Level, before: bool) -> Names {
    let (asked, own) = match before {
        true => (
            &level.scope.interrupt_before,
            &level.graph().interrupt_before,
        ),
        false => (&level.scope.interrupt_after, &level.graph().interrupt_after),
    };
    match asked {
        Some(names) if level.ns.is_empty() => names.clone(),
        _ => own.clone(),
    }
}

/// Whether a breakpoint holds: something changed since the last resume, and a task is named.
fn stops_at<'a>(
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
    changed && tasks.any(|(node, name)| node != START_NODE && names.contains(name))
}

/// Stands in for a node that vanished between planning and running; cannot happen.
fn missing(name: &Arc<str>) -> Node {
    let message = format!("there is no node `{name}`");
    Node {
        name: name.clone(),
        body: NodeBody::Function(Arc::new(move |_| {
            let message = message.clone();
            Box::pin(async move { Err(anyhow::anyhow!(message)) })
        })),
        writers: Writers::default(),
        joins: vec![],
        defer: false,
        retry: vec![],
        timeout: None,
        idle_timeout: None,
        cache: None,
        reads: None,
        destinations: vec![],
        calls: vec![],
    }
}
