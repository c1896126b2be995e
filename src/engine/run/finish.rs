//! The end of a run: everything becomes durable, and the last events are emitted.

use super::{Ended, Finished};
use crate::{
    checkpoint::{cache::LastCheckpoint, frame},
    engine::{
        apply::Writes,
        callback, emit,
        error::Error,
        event::{Body, Kind},
        execution::Execution,
        persist::{at_exit::store_at_exit, writer::Durability},
        plan::PlannedTask,
        reserved::RESUME,
        superstep::{
            Stop,
            apply_step::{apply_step, shows},
        },
    },
};

/// Makes everything durable, emits what is left to emit and sums up. Of a run that is done the last
/// supersteps may be left to the caller.
pub async fn finish(
    mut execution: Execution,
    result: Result<Stop, Error>,
    leaves_rest: bool,
) -> Finished {
    let leaves_rest =
        leaves_rest && matches!(result, Ok(Stop::Done)) && !names_its_end_in_sync(&execution);
    let mut rest = None;
    let mut stored = store_at_exit(&mut execution, leaves_rest).await;
    let next = if matches!(result, Ok(Stop::Done)) {
        vec![]
    } else {
        execution.plan().into_iter().map(|task| task.name).collect()
    };
    let mut result = result.and_then(|stop| end_of(&mut execution, stop));
    let slot = match &execution.context.writer {
        Some(writer) => {
            // Nothing that is left to the caller opens a branch.
            let before = writer.existing_slot().await;
            if stored.is_ok() {
                let ended = if leaves_rest {
                    writer.finish_with_rest().await
                } else {
                    writer.finish().await.map(|_| None)
                };
                stored = ended.map(|left| rest = left).map_err(Error::from);
            }
            Some(if rest.is_some() {
                before
            } else {
                writer.existing_slot().await
            })
        }
        None => None,
    };
    // What was not stored did not happen, whatever the graph returned.
    if let Err(error) = stored {
        result = Err(error);
    }
    // A command may have changed the state without a checkpoint: then there is no last one.
    let is_last = execution.stored_any
        && matches!(result, Ok(Ended::Done))
        && execution.current.stored == Some(execution.current.id);
    let last = is_last.then(|| execution.written_checkpoint()).flatten();
    let last = last.map(|(checkpoint, row_weight)| LastCheckpoint {
        decoded: frame::Decoded {
            checkpoint,
            frame: execution.channels.with_message_ids(execution.frame.clone()),
            writes: vec![],
            references: vec![],
        },
        row_weight,
    });
    let values = execution.channels.output(&execution.topology);
    if result.is_ok() {
        callback::root_end(&execution.context, &values);
    }
    Finished {
        values,
        result,
        slot,
        next,
        last,
        rest,
        memory: execution.memory.take(),
    }
}

/// Whether somebody is told that the graph has ended before the caller has written the end, of a run each checkpoint of
/// which is durable before anything follows it.
fn names_its_end_in_sync(execution: &Execution) -> bool {
    let context = &execution.context;
    let writer = context.writer.as_ref();
    let is_sync = writer.is_some_and(|writer| writer.durability() == Durability::Sync);
    is_sync && context.sink.wants(Kind::Callbacks, &execution.ns)
}

/// How a run ended that stopped without failing.
fn end_of(execution: &mut Execution, stop: Stop) -> Result<Ended, Error> {
    match stop {
        Stop::Done => Ok(Ended::Done),
        Stop::Interrupted(interrupts) if !interrupts.is_empty() => {
            show_finished_siblings(execution, true)?;
            Ok(Ended::Interrupted(interrupts))
        }
        // A breakpoint of a graph inside is no interrupt.
        Stop::Interrupted(_) | Stop::Breakpoint => {
            show_finished_siblings(execution, false)?;
            let (context, ns) = (&execution.context, &execution.ns);
            context.emit(Kind::Updates, ns, || Body::UpdateInterrupt(vec![]));
            Ok(Ended::Breakpoint)
        }
    }
}

/// When tasks wait, the results of their finished siblings show in the state, though no checkpoint
/// has them.
fn show_finished_siblings(execution: &mut Execution, ran: bool) -> Result<(), Error> {
    let tasks = &execution.tasks;
    let writes: Vec<Writes> = tasks
        .iter()
        .map(|task| execution.output_of(task.id))
        .collect();
    // A task that was resumed and interrupts anew has passed its triggers as well.
    let uses_resume = |task: &PlannedTask| {
        let mut own = execution.pending.of(task.id).iter();
        own.any(|write| &*write.channel == RESUME)
    };
    let resumed = ran && tasks.iter().any(uses_resume);
    if writes.iter().all(Vec::is_empty) && !resumed {
        return Ok(());
    }
    apply_step(execution, &writes)?;
    if shows(execution, writes.iter().flatten()) {
        emit::values(execution);
    }
    Ok(())
}
