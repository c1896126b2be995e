//! Opening a run: what its graphs share, and the execution of the root graph.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicU32},
};

use parking_lot::Mutex;

use super::{Request, Start};
use crate::{
    engine::{
        begin::Beginning,
        error::Error,
        execution::Execution,
        input::Input,
        persist::writer::RunWriter,
        recovery::{Attempt, Recovery},
        run_context::RunContext,
        topology::Topology,
    },
    extract::RunConfig,
    id::{BranchId, ThreadId},
    value::Map,
};

/// The execution of the root graph, and how it begins.
///
/// # Errors
/// A stored value of the base does not fit its channel.
pub fn open(request: &Request, start: Option<Start>) -> Result<(Execution, Beginning), Error> {
    let nil = uuid::Uuid::nil();
    let resume_by_id = match &request.input {
        Input::Command(command) => command.resume_by_id(),
        Input::Value(_) | Input::Null => None,
    };
    let attempt = start.as_ref().map(|start| start.attempt);
    let mut beginning = Beginning::of_root(request.input.clone());
    let mut context = RunContext {
        writer: None,
        index: None,
        sink: request.sink.clone(),
        config: Arc::new(request.config.clone()),
        metadata: checkpoint_metadata(&request.config),
        interrupt_before: request.interrupt_before.clone(),
        interrupt_after: request.interrupt_after.clone(),
        resume_by_id: resume_by_id.unwrap_or_default(),
        recovery: Recovery::new(request.run, attempt.unwrap_or_default()),
        streamed_messages: Mutex::default(),
        namespace_locks: Mutex::default(),
        root: Mutex::new(None),
        floor: None,
        inside: HashMap::new(),
        memory: None,
        items: request.items.clone(),
        reuse: request.reuse.clone(),
        tolerance: request.tolerance,
        max_tasks: request.max_tasks,
        // A run that is lost stops itself and nobody else who has the same token.
        cancel: request.cancel.child_token(),
        remaining: AtomicU32::new(request.config.recursion_limit),
        thread: ThreadId(nil),
        branch: BranchId(nil),
        run: request.run,
    };
    let stores = start.is_some();
    let (mut base, mut memory) = (None, None);
    if let Some(start) = start {
        beginning.addressed = start.addressed;
        beginning.superseded = start.superseded;
        beginning.input_is_stored = start.attempt == Attempt::FromOwnCheckpoint;
        context.floor = start.floor;
        context.inside = start.inside;
        context.index = start.index;
        context.thread = start.slot.thread;
        context.branch = start.slot.branch;
        context.writer = Some(RunWriter::new(
            start.saver,
            start.slot,
            start.open,
            request.durability,
            (request.run_ahead, request.lead.clone()),
            context.cancel.clone(),
        ));
        base = start.base;
        memory = start.memory;
    }
    context.memory = memory.as_ref().map(|memory| memory.another(0));
    let base_checkpoint = base.as_ref().map(|base| &base.checkpoint);
    *context.root.get_mut() = base_checkpoint.map(|checkpoint| checkpoint.id);
    let supersteps = base_checkpoint.map(|checkpoint| checkpoint.run_supersteps);
    let topology = Arc::new(Topology::new(request.graph.clone()));
    let mut execution = Execution::new(Arc::new(context), topology, "".into(), base, memory)?;
    execution.stores = stores;
    if beginning.input_is_stored {
        // The limit of supersteps counts those of earlier attempts.
        execution.supersteps = supersteps.unwrap_or_default();
    }
    let context = &execution.context;
    context.sink.started(&context.config);
    Ok((execution, beginning))
}

/// Most bytes of what is configurable that a checkpoint stores.
const CONFIGURABLE_MAX: usize = 16_000;

/// What checkpoints store of the run: its metadata and what is configurable (the rule of LangGraph's
/// server). What every run has is left out: it is not worth a copy per superstep.
fn checkpoint_metadata(config: &RunConfig) -> Map {
    const STORED_ELSEWHERE: [&str; 7] = [
        "thread_id",
        "run_id",
        "checkpoint_ns",
        "checkpoint_map",
        "source",
        "step",
        "parents",
    ];
    let metadata = config.metadata.iter().filter(|(key, value)| {
        let usual = match &***key {
            "created_by" => **value == *CREATED_BY,
            "run_attempt" => value.as_i64() == Some(FIRST_ATTEMPT),
            _ => false,
        };
        !usual
    });
    let configurable = config.configurable.iter().filter(|(key, value)| {
        let own = !key.starts_with("__") && !key.starts_with("langgraph_") && !value.is_null();
        own && (&***key != "user_id" || **value != *"") && !config.metadata.contains_key(key)
    });
    // Nodes see all of it; every checkpoint has a copy of what is small.
    let mut room = CONFIGURABLE_MAX;
    let small = configurable.filter(|(key, value)| {
        let left = room.checked_sub(key.len() + value.to_json().len());
        room = left.unwrap_or(room);
        left.is_some()
    });
    metadata
        .chain(small)
        .filter(|(key, _)| !STORED_ELSEWHERE.contains(&&***key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// `created_by` of a run's checkpoints that store no other.
pub const CREATED_BY: &str = "system";
/// `run_attempt` of a run's checkpoints that store no other.
pub const FIRST_ATTEMPT: i64 = 1;
