//! The first phase of a run: input, commands, resuming, forking (LangGraph's `_first`).

use std::sync::Arc;

use super::{
    apply::{TaskWrites, apply, apply_input},
    emit,
    error::Error,
    execution::Execution,
    input::Input,
    persist,
    recovery::CommandRecord,
    reserved::{INPUT, INTERRUPT, RESUME, START},
};
use crate::{
    checkpoint::Source,
    id::{CheckpointId, TaskId},
    value::Value,
};

mod command;

/// How an execution begins.
pub struct Beginning {
    /// What it begins with.
    pub input: Input,
    /// It is a graph inside another one.
    pub nested: bool,
    /// For graphs inside: whether the parent resumes, which is decided in its first superstep only.
    pub parent_resuming: Option<bool>,
    /// The request names a checkpoint.
    pub addressed: bool,
    /// The thread has moved past that checkpoint.
    pub superseded: bool,
    /// The execution starts at a checkpoint that an earlier attempt of the run has stored: the input
    /// is in it.
    pub input_is_stored: bool,
}

impl Beginning {
    /// A root graph begins with `input`.
    pub fn of_root(input: Input) -> Self {
        Self {
            input,
            nested: false,
            parent_resuming: None,
            addressed: false,
            superseded: false,
            input_is_stored: false,
        }
    }

    /// Whether there is new input. A graph inside that has none resumes.
    fn has_input(&self) -> bool {
        match &self.input {
            Input::Value(input) => !(self.nested && input.is_null()),
            Input::Null | Input::Command(_) => false,
        }
    }
}

/// Brings input, command or resume into the state, and stores the checkpoint that belongs to it.
///
/// # Errors
/// Nothing to do, an ambiguous resume value, a channel that refuses the input, a storage failure.
pub async fn begin(execution: &mut Execution, mut beginning: Beginning) -> Result<(), Error> {
    let started = !execution.is_blank();
    if let Input::Command(command) = &beginning.input
        && !started
        && let Some(input) = command.as_input()
    {
        beginning.input = Input::Value(input);
    }
    let nested = beginning.nested;
    if beginning.input_is_stored && started {
        execution.resuming = Some(true);
        emit::values(execution);
        return Ok(());
    }
    let record = if nested {
        None
    } else {
        let recovery = &execution.context.recovery;
        recovery.command_record(&execution.pending)
    };
    if record.is_some() {
        // An earlier attempt has brought the command to this checkpoint.
        (beginning.addressed, beginning.superseded) = (false, false);
    }
    let has_input = beginning.has_input();
    let resuming = started && beginning.parent_resuming.unwrap_or(!has_input);
    let resumes_interrupt =
        matches!(&beginning.input, Input::Command(command) if command.resume.is_some());
    let travelling = beginning.addressed && !resumes_interrupt;
    execution.replaying = travelling || beginning.superseded;
    if execution.replaying {
        // Old resume values do not count: the tasks interrupt anew, or use the new value.
        execution.pending.drop_channel(RESUME);
    }
    let forks = resuming
        && travelling
        && (!matches!(execution.current.source, Source::Update | Source::Fork)
            || beginning.superseded);
    let current = &execution.current;
    let old = (current.source, current.parent, current.id);

    let mut is_command = false;
    let mut rows = vec![];
    if let Input::Command(command) = &beginning.input {
        is_command = true;
        if record.is_none() {
            rows = command::put(execution, command)?;
        }
    }
    apply_client_writes(execution)?;
    // Only what the channels have accepted: a stored write that they refuse would fail every run
    // from here on.
    let from_here = is_command && !forks && execution.current.exists;
    if from_here && record.is_none() {
        let recovery = &execution.context.recovery;
        let record = recovery.record_command(execution.current.id);
        persist::enqueue(execution, rows, None, record, false).await;
    }

    if resuming {
        resume(execution, forks).await?;
    } else if let Input::Value(input) = beginning.input
        && has_input
    {
        take_input(execution, input).await?;
    } else if is_command && !execution.is_blank() {
        // A command on an empty thread may update and route without any input.
    } else if beginning.parent_resuming.is_none() {
        return Err(Error::failed(
            "EmptyInputError",
            "Received no input for __start__",
        ));
    }
    if nested {
        execution.resuming = beginning.parent_resuming;
        return Ok(());
    }
    execution.resuming = Some(resuming);
    if travelling {
        execution.replay.bound = Some(if resuming {
            replay_bound(execution, old, forks)
        } else {
            execution.current.id
        });
    }
    if record != Some(CommandRecord::ResumeUsed)
        && let Some(value) = execution.pending.client_resume()
    {
        let record_at = from_here.then_some(execution.current.id);
        let recovery = &execution.context.recovery;
        recovery.offer_resume(value.clone(), record_at);
    }
    Ok(())
}

/// What graphs inside stored from this checkpoint on does not count in a replay. A fork or state
/// update was made after the checkpoints of graphs inside, so the one before it bounds.
fn replay_bound(
    execution: &Execution,
    (source, parent, id): (Source, Option<CheckpointId>, CheckpointId),
    forks: bool,
) -> CheckpointId {
    let forks_at_exit = forks && execution.stores_at_exit();
    match parent {
        Some(parent) if matches!(source, Source::Update | Source::Fork) => parent,
        Some(parent) if forks_at_exit => parent,
        None if forks_at_exit => execution.current.id,
        _ => id,
    }
}

/// Applies the client's own writes to the state; all of them or, when one is refused, none.
fn apply_client_writes(execution: &mut Execution) -> Result<(), Error> {
    let writes = execution.pending.writes_of(TaskId::NULL);
    if writes.is_empty() {
        return Ok(());
    }
    let mut channels = execution.channels.clone();
    let applied = apply_input(&execution.topology, &mut channels, &writes)
        .map_err(|error| error.at(|| execution.location()))?;
    execution.channels = channels;
    if let Some(updated) = &mut execution.updated {
        updated.extend(applied);
    }
    Ok(())
}

/// Goes on from the present state, or from a copy of its checkpoint when the run `forks`.
async fn resume(execution: &mut Execution, forks: bool) -> Result<(), Error> {
    pass_breakpoints(execution);
    if forks {
        execution.pending.drop_channel(INTERRUPT);
        // The row has none; the superstep that follows starts from those of the original.
        let updated = execution.updated.take();
        persist::checkpoint(execution, Source::Fork, None).await?;
        persist::before_superstep(execution).await?;
        execution.updated = updated;
    }
    emit::values(execution);
    Ok(())
}

/// Marks all versions as passed, so that breakpoints of the present state do not stop once more.
fn pass_breakpoints(execution: &mut Execution) {
    let channels = &mut execution.channels;
    let passed = channels
        .consumed_versions
        .entry(INTERRUPT.into())
        .or_default();
    for name in channels.by_name.keys() {
        if let Some(version) = channels.versions.get(name) {
            passed.insert(name.clone(), *version);
        }
    }
}

/// New input: tasks that were waiting are discarded, then the input is applied.
async fn take_input(execution: &mut Execution, input: Value) -> Result<(), Error> {
    // Every node is looked at, not only those that the channels of the last checkpoint start: another graph may have written
    // that checkpoint.
    execution.updated = None;
    let discarded = execution.plan();
    let node: Arc<str> = INPUT.into();
    let writes = [(START.into(), input)];
    let mut tasks: Vec<TaskWrites<'_>> = discarded.iter().map(|task| task.writing(&[])).collect();
    tasks.push(TaskWrites {
        path: "~",
        node: &node,
        writes: &writes,
        triggers: &[],
    });
    let updated = apply(&execution.topology, &mut execution.channels, tasks)?;
    execution.updated = Some(updated);
    // Resume values and results of the discarded tasks belong to the checkpoint before.
    execution.pending.clear();
    persist::checkpoint(execution, Source::Input, None).await
}
