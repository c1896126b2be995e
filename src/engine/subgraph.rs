//! Graphs inside tasks: their namespaces, where they start, how they end.

use std::sync::Arc;

use super::{
    begin::{Beginning, begin},
    callback,
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
    graph::{Compiled, Persist},
    id::TaskId,
    value::Value,
};

mod load;

use load::Loaded;

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
    found: Option<Loaded>,
    /// The request names it.
    addressed: bool,
    /// The graph has moved past it.
    superseded: bool,
}

impl Base {
    /// The task that stored it in this superstep, or an earlier attempt of it.
    fn begun_by(&self, context: &RunContext, task: &TaskInfo) -> Option<TaskId> {
        let stored = &self.found.as_ref()?.decoded.checkpoint;
        // A graph that stores its state per thread may have stored it in another superstep or run.
        let root = *context.root.lock();
        let is_here = stored.run == context.run && stored.root.is_some() && stored.root == root;
        // Only states that tasks share name the task. Versions before this one named none.
        is_here.then(|| stored.task.unwrap_or(task.id))
    }
}

/// The state that a task left in a namespace before others went on from there, when the task's result
/// was not stored.
async fn own(
    context: &RunContext,
    ns: &Arc<str>,
    task: &TaskInfo,
    newest: &Base,
) -> Result<Option<Loaded>, Error> {
    let newest = newest.found.as_ref();
    let mut above = newest.and_then(|newest| newest.decoded.checkpoint.parent);
    while let Some(id) = above {
        let found = load::at(context, ns, id).await?;
        let base = Base {
            found,
            ..Base::default()
        };
        match base.begun_by(context, task) {
            Some(by) if by == task.id => return Ok(base.found),
            Some(_) => above = base.found.and_then(|found| found.decoded.checkpoint.parent),
            None => return Ok(None),
        }
    }
    Ok(None)
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
    // Also inside a graph that stores nothing.
    let stores = context.writer.is_some() && graph.persist != Persist::None;
    let recovery = &context.recovery;
    // The first time the run comes here in an attempt that goes on where an earlier one stopped.
    let first = recovery.is_retry() && parent.resuming == Some(true) && !parent.task_retry;
    let (_guard, base, begun_by) = loop {
        let guard = match &lock {
            Some(lock) => Some(lock.lock().await),
            None => None,
        };
        let mut base = base(context, parent, &graph, &ns, stores).await?;
        let mut begun_by = base.begun_by(context, task).filter(|_| first);
        if let Some(other) = begun_by.filter(|other| *other != task.id) {
            if recovery.is_unfinished(other) {
                // What another task has begun in this namespace ends before this one begins.
                drop(guard);
                recovery.finished(other).await;
                continue;
            }
            if let Some(own) = own(context, &ns, task, &base).await? {
                base.found = Some(own);
                begun_by = Some(task.id);
            }
        }
        break (guard, base, begun_by);
    };
    let has_begun = begun_by == Some(task.id);
    let stored = base.found.as_ref().map(|found| &found.decoded.checkpoint);
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
    let (base, memory) = match base.found {
        Some(found) => (Some(found.decoded), found.memory),
        None => (None, context.charge(0)),
    };
    let mut execution = Execution::new(context.clone(), topology, ns, base, memory)?;
    execution.stores = stores;
    execution.parents = parent.parents.clone();
    execution.of_task = task.metadata();
    execution.task = per_thread.then_some(task.id);
    execution.replay = parent.replay.clone();
    execution.supersteps = supersteps;
    if let Input::Value(input) = &beginning.input {
        callback::graph_start(context, &execution.ns, task, input);
    }
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
                store_at_exit(&mut execution, false).await?;
            }
            let output = execution.emitted.take().unwrap_or_default();
            callback::graph_end(context, &execution.ns, task, &output);
            Ok(output)
        }
        Ok(Stop::Interrupted(interrupts)) => {
            store_at_exit(&mut execution, false).await?;
            Err(SubgraphError::Interrupted(interrupts))
        }
        Ok(Stop::Breakpoint) => {
            store_at_exit(&mut execution, false).await?;
            Err(SubgraphError::Interrupted(vec![]))
        }
        Err(error) => {
            // A graph that has used up its supersteps counts as ended: it is not to go on later.
            let ended = execution.supersteps >= context.config.recursion_limit;
            if (!ended || per_thread) && !matches!(error, Error::Storage(_)) {
                store_at_exit(&mut execution, false).await?;
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
            superseded: newest.is_some_and(|newest| newest.decoded.checkpoint.id != *id),
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
