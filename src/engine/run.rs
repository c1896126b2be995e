//! A whole run: from a slot and a base checkpoint to the state it leaves.

use std::{collections::HashMap, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{
    begin::begin,
    callback,
    error::Error,
    event::{Interrupt, Sink},
    execution::Execution,
    input::Input,
    long_term_memory::Items,
    message_index::MessageIndex,
    node_cache::Results,
    persist::{pipeline::Rest, writer::Durability},
    recovery::Attempt,
    superstep::{Stop, breakpoints, run_supersteps},
    tolerance::Tolerance,
};
use crate::{
    budget::Reservation,
    checkpoint::{NewBranch, Saver, Slot, cache::LastCheckpoint, frame},
    extract::RunConfig,
    graph::{Compiled, Names},
    id::{CheckpointId, RunId},
    value::Value,
};
use open::open;

mod finish;
mod open;

pub use open::{CREATED_BY, FIRST_ATTEMPT};

/// What to run.
pub struct Request {
    /// The graph.
    pub graph: Arc<Compiled>,
    /// Input, nothing, or a command.
    pub input: Input,
    /// Config nodes see.
    pub config: RunConfig,
    /// The run, stored with checkpoints.
    pub run: Option<RunId>,
    /// Breakpoints in place of the graph's.
    pub interrupt_before: Option<Names>,
    /// Breakpoints in place of the graph's.
    pub interrupt_after: Option<Names>,
    /// When supersteps have to be durable.
    pub durability: Durability,
    /// How far it may be ahead of what is durable.
    pub run_ahead: super::RunAhead,
    /// Closes that for a while, from outside.
    pub lead: super::Lead,
    /// Long-term memory.
    pub items: Option<Arc<dyn Items>>,
    /// Results that nodes may reuse.
    pub reuse: Option<Arc<Results>>,
    /// Mistakes of commands that are passed over.
    pub tolerance: Tolerance,
    /// Whether the last supersteps of a run that is done may be left in [`Finished`], so that the caller
    /// writes them together with the end of the run.
    pub leaves_rest: bool,
    /// The most tasks of one superstep.
    pub max_tasks: usize,
    /// Receives events.
    pub sink: Arc<dyn Sink>,
    /// Stops the run at the next await.
    pub cancel: CancellationToken,
}

/// Where a run starts and the right to write from there.
pub struct Start {
    /// The storage.
    pub saver: Arc<dyn Saver>,
    /// The branch it writes to; with `open` one that comes into being with the first write.
    pub slot: Slot,
    /// A branch to create with the first write.
    pub open: Option<NewBranch>,
    /// The checkpoint to start from, its writes those that count for the branch.
    pub base: Option<frame::Decoded>,
    /// Makes the index of the conversation's messages.
    pub index: Option<Arc<dyn MessageIndex>>,
    /// The request names a checkpoint.
    pub addressed: bool,
    /// The thread has moved past that checkpoint.
    pub superseded: bool,
    /// Checkpoints of graphs inside that the request names, by namespace.
    pub inside: HashMap<Arc<str>, CheckpointId>,
    /// Whether earlier attempts of the run were made, whose processes are gone.
    pub attempt: Attempt,
    /// New checkpoints have greater ids: the head of the active branch.
    pub floor: Option<CheckpointId>,
    /// What the base takes in memory; what the states of the run grow by is counted there too.
    pub memory: Option<Reservation>,
}

/// How a run ended, and the state it left.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub result: Result<Ended, Error>,
    /// The slot as of the last write.
    pub(crate) slot: Option<Slot>,
    /// Nodes that would run next.
    pub next: Vec<Arc<str>>,
    /// The state it shows, as of the last superstep.
    pub values: Value,
    /// The last checkpoint, when nothing is pending at it: what the next run starts from.
    pub(crate) last: Option<LastCheckpoint>,
    /// The last supersteps, if the request leaves them to the caller and they are not durable yet.
    pub(crate) rest: Option<Rest>,
    /// What its state takes in memory.
    pub(crate) memory: Option<Reservation>,
}

/// How a run ended without failing.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// Nothing is left to run.
    Done,
    /// Tasks wait for resume values.
    Interrupted(Vec<Interrupt>),
    /// A static breakpoint.
    Breakpoint,
}

/// Runs a graph. Everything it wrote is durable when this returns, also when it failed, but for what
/// the request lets it leave to the caller.
///
/// Without `start` nothing is stored.
pub async fn run(request: Request, start: Option<Start>) -> Finished {
    let (mut execution, beginning) = match open(&request, start) {
        Ok(opened) => opened,
        Err(error) => {
            return Finished {
                result: Err(error),
                slot: None,
                next: vec![],
                values: Value::Null,
                last: None,
                rest: None,
                memory: None,
            };
        }
    };
    let result = async {
        if execution.context.config.recursion_limit == 0 {
            return Err(Error::value("recursion_limit must be at least 1"));
        }
        callback::root_start(&execution.context, &request.input);
        begin(&mut execution, beginning).await?;
        go_on(&mut execution).await
    }
    .await;
    finish::finish(execution, result, request.leaves_rest).await
}

/// Runs supersteps, unless an earlier attempt had come to a breakpoint.
async fn go_on(execution: &mut Execution) -> Result<Stop, Error> {
    if execution.context.recovery.starts_at_own_checkpoint()
        && breakpoints::was_reached(execution).await?
    {
        return Ok(Stop::Breakpoint);
    }
    run_supersteps(execution).await
}
