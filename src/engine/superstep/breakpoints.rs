//! Static breakpoints: whether a run stops before or after the tasks of a superstep.

use std::sync::Arc;

use crate::{
    checkpoint::{At, Query, Source, frame},
    engine::{
        channels::{Channels, updated_by},
        emit,
        error::Error,
        execution::Execution,
        plan::{self, PlannedTask},
        reserved::INTERRUPT,
        topology::START_NODE,
    },
    graph::Names,
    id::CheckpointId,
};

/// Which side of the tasks a breakpoint is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before they run.
    Before,
    /// After they ran.
    After,
}

/// Whether one of the tasks has a breakpoint on this side, and something has changed since the run
/// was last resumed.
pub fn stops_at(execution: &Execution, side: Side, tasks: &[PlannedTask]) -> bool {
    let names = breakpoints(execution, side);
    if *names == Names::None {
        return false;
    }
    let passed = execution.channels.consumed_versions.get(INTERRUPT);
    let versions = &execution.channels.versions;
    let changed = versions.iter().any(|(name, version)| {
        let last = passed.and_then(|passed| passed.get(name));
        version.counter > last.map_or(0, |version| version.counter)
    });
    // The hidden start node is meant only where its name is in the list.
    let hidden = |task: &PlannedTask| task.node == START_NODE && *names == Names::All;
    let stops = |task: &PlannedTask| !hidden(task) && names.contains(&task.name);
    changed && tasks.iter().any(stops)
}

/// The breakpoints that count: the request's, else the graph's.
fn breakpoints(execution: &Execution, side: Side) -> &Names {
    let (context, graph) = (&execution.context, execution.graph());
    let (requested, own) = match side {
        Side::Before => (&context.interrupt_before, &graph.interrupt_before),
        Side::After => (&context.interrupt_after, &graph.interrupt_after),
    };
    // A request with an empty list gets the graph's own, as in LangGraph.
    match requested.as_ref().filter(|names| !names.is_empty()) {
        Some(names) if execution.ns.is_empty() => names,
        _ => own,
    }
}

/// Whether an earlier attempt of the run had come to a breakpoint behind the tasks that led to the
/// present checkpoint, and died before it could finish the run.
///
/// # Errors
/// The storage failed.
pub async fn was_reached(execution: &mut Execution) -> Result<bool, Error> {
    let (Some(parent), Source::Loop) = (execution.current.parent, execution.current.source) else {
        return Ok(false);
    };
    if *breakpoints(execution, Side::After) == Names::None {
        return Ok(false);
    }
    let next = execution.plan();
    let stops = if execution.stores_at_exit() {
        // All of it was stored at once, when it had ended: which tasks came last is not stored.
        !next.is_empty()
    } else {
        let tasks = tasks_from(execution, parent).await?;
        tasks.is_some_and(|tasks| stops_at(execution, Side::After, &tasks))
    };
    if stops {
        emit::checkpoint(execution, &next);
    }
    Ok(stops)
}

/// The tasks that ran from a checkpoint of this graph.
async fn tasks_from(
    execution: &Execution,
    from: CheckpointId,
) -> Result<Option<Vec<PlannedTask>>, Error> {
    let Some(writer) = &execution.context.writer else {
        return Ok(None);
    };
    let slot = writer.slot().await;
    let query = Query {
        tree: slot.tree,
        thread: slot.thread,
        ns: Arc::clone(&execution.ns),
        at: At::Id(from),
        values: true,
    };
    let Some(stored) = writer.saver().load(query).await? else {
        return Ok(None);
    };
    let checkpoint = frame::decode(&stored)?.checkpoint;
    let channels = Channels::restore(&execution.topology, &checkpoint)?;
    Ok(Some(plan::plan(
        &execution.topology,
        &channels,
        checkpoint.id,
        &execution.ns,
        checkpoint.step + 1,
        updated_by(&checkpoint).as_ref(),
    )))
}
