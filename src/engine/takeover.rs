//! A run that an earlier attempt began and whose process is gone: what the next attempt must not
//! do again, and where it has to stop.
//!
//! The next attempt stands either where the run began, with what its tasks have finished there,
//! or on the last checkpoint of the run itself. On the former its command must be given once; on
//! the latter breakpoints hold that the earlier attempt had come to.

use std::sync::Arc;

use super::{
    drive::{Stop, breakpoints, stops_at},
    error::Error,
    journal::Waiting,
    level::{Current, Level},
    live::Live,
    names::{GIVEN, control_index},
    plan::{self, Planned},
    subgraph::without_tasks,
};
use crate::{
    checkpoint::{At, Pending, Query, Source, frame},
    graph::Names,
    id::{CheckpointId, TaskId},
    value::Value,
};

/// What an earlier attempt noted where the run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// The command is among the pending writes.
    Given,
    /// A task has taken the answer in it, too.
    Taken,
}

/// The note of an earlier attempt of this run.
pub fn noted(level: &Level) -> Option<Noted> {
    let run = TaskId(level.scope.run?.0);
    let mut pending = level.pending.iter();
    let note = pending.find(|write| write.task == run && &*write.channel == GIVEN)?;
    Some(match note.value {
        Value::Bool(true) => Noted::Taken,
        _ => Noted::Given,
    })
}

/// The note, to be stored with the writes of the command or with those of whoever took its answer.
/// A run without an id has no second attempt.
pub fn note(level: &Level, taken: bool) -> Option<Pending> {
    Some(Pending {
        task: TaskId(level.scope.run?.0),
        path: "".into(),
        idx: control_index(GIVEN)?,
        channel: GIVEN.into(),
        value: Value::Bool(taken),
    })
}

/// The client's answer: where it was given and who has taken it.
pub struct Given {
    /// The checkpoint of the root graph.
    pub at: CheckpointId,
    /// Namespace of the task that took it.
    pub taker: Option<Arc<str>>,
}

/// To be stored with what a task wrote: that it, or a task of a graph inside it, has taken the
/// client's answer.
pub fn taken(level: &Level, task: &Planned) -> Option<Waiting> {
    if !level.stores {
        // Nor is what it wrote.
        return None;
    }
    let mut given = level.scope.given.lock();
    let taker = given.as_ref()?.taker.as_ref()?;
    if !holds(&task.ns, taker) {
        return None;
    }
    let given = given.take()?;
    Some(Waiting {
        ns: "".into(),
        checkpoint: given.at,
        writes: note(level, true).into_iter().collect(),
    })
}

/// Whether a task is another one or has it inside. Tasks of a graph that keeps its state per thread
/// do not name the tasks around them.
fn holds(task: &str, inside: &str) -> bool {
    let begins = |with: &str| {
        let rest = inside.strip_prefix(with);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
    };
    begins(task) || begins(&without_tasks(task))
}

/// Whether the earlier attempt had come to a breakpoint behind the tasks that led to the present
/// checkpoint, and died before it could say so.
///
/// # Errors
/// The storage failed.
pub async fn stopped(level: &mut Level) -> Result<Option<Stop>, Error> {
    let names = breakpoints(level, false);
    let (Some(parent), Source::Loop) = (level.current.parent, level.current.source) else {
        return Ok(None);
    };
    if names == Names::None {
        return Ok(None);
    }
    let next = level.plan();
    let stops = match level.exits_late() {
        // All of it was stored at once, when it had ended: nobody knows which tasks came last.
        true => !next.is_empty(),
        false => ran(level, parent).await?.is_some_and(|ran| {
            let ran = ran.iter().map(|task| (task.node, &task.name));
            stops_at(level, &names, ran)
        }),
    };
    if !stops {
        return Ok(None);
    }
    level.tell_checkpoint(&next);
    Ok(Some(Stop::Breakpoint))
}

/// The tasks that ran from a checkpoint of this graph.
async fn ran(level: &Level, from: CheckpointId) -> Result<Option<Vec<Planned>>, Error> {
    let Some(journal) = &level.scope.journal else {
        return Ok(None);
    };
    let slot = journal.slot().await;
    let query = Query {
        tree: slot.tree,
        thread: slot.thread,
        ns: level.ns.clone(),
        at: At::Id(from),
        values: true,
    };
    let Some(stored) = journal.saver().load(query).await? else {
        return Ok(None);
    };
    let checkpoint = frame::decode(&stored)?.checkpoint;
    let live = Live::restore(&level.wiring, &checkpoint)?;
    let current = Current::of(&checkpoint);
    let updated = checkpoint.updated.filter(|names| !names.is_empty());
    let updated = updated.map(|names| names.into_iter().collect());
    Ok(Some(plan::plan(
        &level.wiring,
        &live,
        current.id,
        &level.ns,
        current.step + 1,
        updated.as_ref(),
    )))
}
