//! Graphs inside tasks: their namespaces, where they start, how they end.

use std::sync::Arc;

use super::{
    begin::{Beginning, begin},
    error::Error,
    event::{Interrupt, TaskInfo},
    execution::Execution,
    input::Input,
    namespace::without_tasks,
    parent_execution::ParentExecution,
    persist::at_exit::store_at_exit,
    run_context::RunContext,
    superstep::{Stop, breakpoints, run_supersteps},
    topology::Topology,
};
use crate::{
    checkpoint::frame::Decoded,
    graph::{Compiled, Persist},
    value::Value,
};

mod load;

/// Why a graph inside a task did not finish.
pub enum SubgraphError {
    /// It waits at interrupts; at none for a static breakpoint.
    Interrupted(Vec<Interrupt>),
    /// It failed.
    Failed(Error),
}

impl From<Error> for SubgraphError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The checkpoint that a graph inside starts from.
#[derive(Default)]
struct Base {
    found: Option<Decoded>,
    /// The request names it.
    addressed: bool,
    /// The graph has moved past it.
    superseded: bool,
}

/// Runs `graph` inside `task`; `call` counts the graphs the task ran before.
pub async fn run(
    context: &Arc<RunContext>,
    parent: &ParentExecution,
    task: &TaskInfo,
    graph: Arc<Compiled>,
    input: Value,
    call: usize,
) -> Result<Value, SubgraphError> {
    let ns = namespace(&graph, task, call);
    let per_thread = graph.persist == Persist::Thread;
    // Tasks of one superstep may share the namespace: each starts from what the one before it left.
    let lock = per_thread.then(|| context.namespace_lock(&ns));
    let _guard = match &lock {
        Some(lock) => Some(lock.lock().await),
        None => None,
    };
    // Also inside a graph that stores nothing.
    let stores = context.writer.is_some() && graph.persist != Persist::None;
    let base = base(context, parent, &graph, &ns, stores).await?;
    // The first time the run comes here in an attempt that goes on where an earlier one stopped. A
    // graph that stores its state per thread may have stored it in another superstep or run, and
    // then has not begun in this one.
    let recovery = &context.recovery;
    let first = recovery.is_retry() && parent.resuming == Some(true) && !parent.task_retry;
    let stored = base.found.as_ref().map(|found| &found.checkpoint);
    let has_begun = first
        && stored.is_some_and(|stored| {
            let root = *context.root.lock();
            stored.run == context.run && stored.root.is_some() && stored.root == root
        });
    let supersteps = stored.filter(|_| has_begun);
    let supersteps = supersteps.map_or(0, |stored| stored.run_supersteps);
    let replays = parent.replay.bound.is_some();
    let beginning = Beginning {
        input: Input::Value(input),
        nested: true,
        parent_resuming: if replays && !base.addressed {
            None
        } else if parent.task_retry {
            Some(true)
        } else if first && recovery.starts_at_own_checkpoint() {
            Some(has_begun)
        } else {
            parent.resuming
        },
        addressed: replays || base.addressed,
        superseded: base.superseded,
        input_is_stored: has_begun,
    };
    let topology = Arc::new(Topology::new(graph));
    let mut execution = Execution::new(context.clone(), topology, ns, base.found)?;
    execution.stores = stores;
    execution.parents = parent.parents.clone();
    execution.replay = parent.replay.clone();
    execution.supersteps = supersteps;
    let result = async {
        begin(&mut execution, beginning).await?;
        if has_begun && breakpoints::was_reached(&mut execution).await? {
            return Ok(Stop::Breakpoint);
        }
        // Nested deeply, futures of this kind grow: each one is on the heap.
        Box::pin(run_supersteps(&mut execution)).await
    }
    .await;
    match result {
        Ok(Stop::Done) => {
            if per_thread {
                store_at_exit(&mut execution).await?;
            }
            Ok(execution.emitted.take().unwrap_or_default())
        }
        Ok(Stop::Interrupted(interrupts)) => {
            store_at_exit(&mut execution).await?;
            Err(SubgraphError::Interrupted(interrupts))
        }
        Ok(Stop::Breakpoint) => {
            store_at_exit(&mut execution).await?;
            Err(SubgraphError::Interrupted(vec![]))
        }
        Err(error) => {
            // A graph that has used up its supersteps counts as ended: it is not to go on later.
            let ended = execution.supersteps >= context.config.recursion_limit;
            if (!ended || per_thread) && !matches!(error, Error::Storage(_)) {
                store_at_exit(&mut execution).await?;
            }
            Err(SubgraphError::Failed(error))
        }
    }
}

fn namespace(graph: &Compiled, task: &TaskInfo, call: usize) -> Arc<str> {
    let mut ns = match graph.persist {
        Persist::Thread => without_tasks(&task.ns),
        Persist::Inherit | Persist::None => task.ns.to_string(),
    };
    if call > 0 {
        ns.push_str(&format!("|{call}"));
    }
    ns.into()
}

/// Finds the checkpoint that the graph in `ns` starts from.
async fn base(
    context: &RunContext,
    parent: &ParentExecution,
    graph: &Compiled,
    ns: &Arc<str>,
    stores: bool,
) -> Result<Base, Error> {
    let bound = parent.replay.visit(ns);
    if !stores {
        return Ok(Base::default());
    }
    if let Some(id) = context.inside.get(ns)
        && let Some(found) = load::at(context, ns, *id).await?
    {
        let newest = load::find(context, ns, None).await?;
        return Ok(Base {
            found: Some(found),
            addressed: true,
            superseded: newest.is_some_and(|newest| newest.checkpoint.id != *id),
        });
    }
    // In the namespace of a task that was never run before nothing is stored.
    let blank = graph.persist == Persist::Inherit
        && parent.resuming != Some(true)
        && !parent.task_retry
        && parent.replay.bound.is_none();
    let found = if blank {
        None
    } else {
        load::find(context, ns, bound).await?
    };
    Ok(Base {
        found,
        ..Base::default()
    })
}
