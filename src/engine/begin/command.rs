//! Turning a client's command into pending writes.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::{
    checkpoint::Pending,
    engine::{
        apply::Writes,
        error::{Error, Mistake},
        execution::Execution,
        fan_out,
        input::ClientCommand,
        output,
        pending::interrupts_in,
        reserved::{RESUME, START},
    },
    graph::{END, edge_channel},
    id::TaskId,
    message,
    value::Value,
};

/// Makes a command pending as writes of the null task; returns the rows to store.
pub fn put(execution: &mut Execution, command: &ClientCommand) -> Result<Vec<Pending>, Error> {
    let writes = writes_of(execution, command)?;
    if writes.is_empty() {
        return Ok(vec![]);
    }
    Ok(execution.put_writes(TaskId::NULL, &Arc::from(""), writes))
}

fn writes_of(execution: &Execution, command: &ClientCommand) -> Result<Writes, Error> {
    if command.to_parent {
        return Err(Error::invalid_update(
            "There is no parent graph a command could be sent to",
        ));
    }
    let sends = command.goto.iter().filter(|goto| goto.arg.is_some());
    fan_out::check(execution, "the command starts", sends.count())?;
    let mut writes = Writes::new();
    let here = || execution.location();
    let tolerance = execution.context.tolerance;
    for goto in &command.goto {
        output::check_goto(&execution.topology, tolerance, goto).map_err(|error| error.at(here))?;
        let target =
            output::target(goto, START.into(), tolerance).map_err(|error| error.at(here))?;
        // Routing to the end is a command too, though nothing follows from it.
        writes.push(target.unwrap_or_else(|| (edge_channel(END), START.into())));
    }
    let by_id = command.resume_by_id();
    if let Some(resume) = &command.resume {
        if execution.context.writer.is_none() {
            return Err(Error::failed(
                "RuntimeError",
                "Cannot resume without a checkpointer",
            ));
        }
        check_resume(execution, command, by_id.as_ref()).map_err(|error| error.at(here))?;
        if by_id.is_none() {
            if execution.pending.count_open_interrupts() > 1 {
                // Clients compare the text, so it names no location.
                return Err(Error::mistake(
                    Mistake::AmbiguousResume,
                    "When there are multiple pending interrupts, you must specify the interrupt \
                     id when resuming.",
                ));
            }
            writes.push((RESUME.into(), resume.clone()));
        }
    }
    for (name, value) in &command.update {
        let value = if execution.graph().messages.contains(name) {
            let minted = message::mint_ids(value);
            minted.map_err(|error| Error::channel(name, error.into()).at(here))?
        } else {
            value.clone()
        };
        writes.push((name.clone(), value));
    }
    if writes.is_empty() && by_id.is_none() {
        return Err(Error::failed(
            "EmptyInputError",
            "The command is empty: give resume, update or goto",
        ));
    }
    Ok(writes)
}

/// Resume values need interrupts: those with ids the interrupts of the checkpoint, one without an id
/// a node that waits.
fn check_resume(
    execution: &Execution,
    command: &ClientCommand,
    by_id: Option<&HashMap<String, Value>>,
) -> Result<(), Error> {
    let tolerance = execution.context.tolerance;
    if !tolerance.idle_resumes
        && execution.current.exists
        && command.goto.is_empty()
        && execution.plan().is_empty()
    {
        return Err(Error::mistake(
            Mistake::NothingToResume,
            "there is nothing to resume: no node waits for an answer",
        ));
    }
    let Some(by_id) = by_id.filter(|_| !tolerance.unknown_names) else {
        return Ok(());
    };
    let open: HashSet<Arc<str>> = execution
        .pending
        .iter()
        .flat_map(interrupts_in)
        .map(|interrupt| interrupt.id)
        .collect();
    let mut unknown: Vec<&str> = by_id
        .keys()
        .map(String::as_str)
        .filter(|id| !open.contains(*id))
        .collect();
    if unknown.is_empty() || (open.is_empty() && tolerance.idle_resumes) {
        // Without any interrupt it is a duplicate of the command that has resumed the run.
        return Ok(());
    }
    unknown.sort_unstable();
    Err(Error::mistake(
        Mistake::UnknownInterrupt,
        format!("no question has the id {}", unknown.join(", ")),
    ))
}
