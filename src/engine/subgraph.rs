//! Graphs inside graphs: their namespaces, where their state is found, how they end.

use std::{collections::HashSet, sync::Arc};

use parking_lot::Mutex;

use super::{
    drive::{Stop, drive},
    enter::{self, Entry, Input},
    error::Error,
    event::{Interrupt, TaskInfo},
    journal::{Durability, Waiting},
    level::{Current, Level},
    live::Live,
    names::STEP,
    save,
    scope::Scope,
    takeover,
    task::Inner,
    wiring::Wiring,
};
use crate::{
    checkpoint::{At, Pending, Query, Source, frame},
    graph::{Compiled, Persist},
    id::{BranchId, CheckpointId, RunId},
    value::{Map, Value},
};

/// What graphs inside learn of a replay around them.
#[derive(Clone, Default)]
pub struct Replay {
    /// The root graph replays: what graphs inside stored from here on does not count when they
    /// are visited first.
    pub bound: Option<CheckpointId>,
    /// Namespaces, without the id of their last task, that were visited in this run.
    pub visited: Arc<Mutex<HashSet<String>>>,
}

impl Replay {
    /// The bound of a visit: there is one for the first visit of a replay.
    fn visit(&self, ns: &str) -> Option<CheckpointId> {
        let bound = self.bound?;
        let stable = ns.rsplit_once(':').map_or(ns, |(stable, _)| stable);
        self.visited
            .lock()
            .insert(stable.to_owned())
            .then_some(bound)
    }
}

/// A level as the graphs inside it see it.
#[derive(Clone)]
pub struct Nested {
    parents: Map,
    checkpoint: CheckpointId,
    ns: Arc<str>,
    resuming: Option<bool>,
    again: bool,
    replay: Replay,
    stores: bool,
    asked: Arc<Mutex<Vec<Interrupt>>>,
}

impl Nested {
    /// The view of a level that stands on `checkpoint`.
    pub fn new(
        parents: Map,
        checkpoint: CheckpointId,
        ns: Arc<str>,
        resuming: Option<bool>,
        replay: Replay,
        stores: bool,
    ) -> Self {
        Self {
            parents,
            checkpoint,
            ns,
            resuming,
            again: false,
            replay,
            stores,
            asked: Arc::default(),
        }
    }

    /// The view of one attempt of a task: a further attempt continues what graphs inside began.
    pub fn for_attempt(&self, attempt: usize) -> Self {
        Self {
            again: attempt > 1,
            asked: Arc::default(),
            ..self.clone()
        }
    }

    /// Notes the questions of a graph that a node's function called.
    pub fn asked(&self, interrupts: Vec<Interrupt>) {
        *self.asked.lock() = interrupts;
    }

    /// Takes those questions.
    pub fn take_asked(&self) -> Vec<Interrupt> {
        std::mem::take(&mut self.asked.lock())
    }

    /// Makes the results of a task's steps durable.
    ///
    /// # Errors
    /// The storage failed, or another writer took over.
    pub async fn save_steps(
        &self,
        scope: &Scope,
        task: &TaskInfo,
        all: std::collections::HashMap<String, Value>,
    ) -> Result<(), Error> {
        let Some(journal) = scope.journal.as_ref().filter(|_| self.stores) else {
            return Ok(());
        };
        let steps: Map = all
            .into_iter()
            .map(|(key, value)| (key.into(), value))
            .collect();
        let waiting = Waiting {
            ns: self.ns.clone(),
            checkpoint: self.checkpoint,
            writes: vec![Pending {
                task: task.id,
                path: "".into(),
                idx: -5,
                channel: STEP.into(),
                value: Value::map(steps),
            }],
        };
        save::steps(journal, waiting).await
    }
}

/// A namespace without its task ids: where a graph that keeps its state per thread stores it.
pub fn without_tasks(ns: &str) -> String {
    ns.split('|')
        .map(|level| level.split_once(':').map_or(level, |(node, _)| node))
        .collect::<Vec<_>>()
        .join("|")
}

/// Runs `graph` inside `task`; `call` counts the graphs the task ran before.
pub async fn run(
    scope: &Arc<Scope>,
    nested: &Nested,
    task: &TaskInfo,
    graph: Arc<Compiled>,
    input: Value,
    call: usize,
) -> Result<Value, Inner> {
    let ns = namespace(&graph, task, call);
    let door = match graph.persist {
        Persist::Thread => Some(scope.door(&ns)),
        Persist::Inherit | Persist::None => None,
    };
    // Tasks of one superstep may share the namespace: each sees what the one before it left.
    let _inside = match &door {
        Some(door) => Some(door.lock().await),
        None => None,
    };
    let (mut level, Origin { named, root, by, ran }) = open(scope, nested, graph, ns)
        .await
        .map_err(Inner::Failed)?;
    let replays = nested.replay.bound.is_some();
    // Where an earlier attempt of the run stopped. A graph that keeps its state per thread may
    // stand where another superstep or run left it, and then has not begun in this one.
    let first = scope.again && nested.resuming == Some(true) && !nested.again;
    let begun = first && by == scope.run && root.is_some() && root == *scope.root.lock();
    if begun {
        level.ran = ran;
    }
    let entry = Entry {
        input: Input::Value(input),
        nested: true,
        parent_resuming: match (replays && named.is_none(), nested.again) {
            (true, _) => None,
            (false, true) => Some(true),
            (false, false) if first && scope.continues => Some(begun),
            (false, false) => nested.resuming,
        },
        addressed: replays || named.is_some(),
        superseded: named.is_some_and(|named| named.superseded),
        continues: begun,
    };
    let result = async {
        enter::first(&mut level, entry).await?;
        if begun && let Some(stop) = takeover::stopped(&mut level).await? {
            return Ok(stop);
        }
        // Nested deeply, futures of this kind grow: keep each one on the heap.
        Box::pin(drive(&mut level)).await
    }
    .await;
    match result {
        Ok(Stop::Done) => {
            if level.graph().persist == Persist::Thread {
                save::at_exit(&mut level).await.map_err(Inner::Failed)?;
            }
            Ok(level.told.take().unwrap_or_default())
        }
        Ok(Stop::Asked(interrupts)) => {
            save::at_exit(&mut level).await.map_err(Inner::Failed)?;
            Err(Inner::Asked(interrupts))
        }
        Ok(Stop::Breakpoint) => {
            save::at_exit(&mut level).await.map_err(Inner::Failed)?;
            Err(Inner::Asked(vec![]))
        }
        Err(error) => {
            // Out of its own supersteps is no failure while it ran: it counts as ended.
            let ended = level.ran >= scope.config.recursion_limit;
            let keeps = !ended || level.graph().persist == Persist::Thread;
            if keeps && !matches!(error, Error::Storage(_)) {
                save::at_exit(&mut level).await.map_err(Inner::Failed)?;
            }
            Err(Inner::Failed(error))
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

async fn open(
    scope: &Arc<Scope>,
    nested: &Nested,
    graph: Arc<Compiled>,
    ns: Arc<str>,
) -> Result<(Level, Origin), Error> {
    // Also inside a graph that stores nothing.
    let stores = scope.journal.is_some() && graph.persist != Persist::None;
    let wiring = Arc::new(Wiring::new(graph));
    let before = nested.replay.visit(&ns);
    // A namespace of a task that was never run before holds nothing.
    let fresh = wiring.graph.persist == Persist::Inherit
        && nested.resuming != Some(true)
        && !nested.again
        && nested.replay.bound.is_none();
    let wanted = scope.inside.get(&ns).filter(|_| stores);
    let (mut found, mut named) = (None, None);
    if let Some(id) = wanted {
        found = at(scope, &ns, *id).await?;
        let newest = find(scope, &ns, None).await?;
        named = found.is_some().then(|| Named {
            superseded: newest.is_some_and(|newest| newest.checkpoint.id != *id),
        });
    }
    if named.is_none() && stores && !fresh {
        found = find(scope, &ns, before).await?;
    }
    let root = found.as_ref().and_then(|found| found.checkpoint.root);
    let by = found.as_ref().and_then(|found| found.checkpoint.run);
    let ran = found.as_ref();
    let ran = ran.map_or(0, |found| found.checkpoint.run_supersteps);
    let (live, current, frame, pending, updated) = match found {
        Some(decoded) => {
            let live = Live::restore(&wiring, &decoded.checkpoint)?;
            let current = Current::of(&decoded.checkpoint);
            let updated = decoded
                .checkpoint
                .updated
                .filter(|names| !names.is_empty())
                .map(|names| names.into_iter().collect());
            let pending = decoded.writes.into_iter().map(|(_, write)| write).collect();
            (live, current, decoded.frame, pending, updated)
        }
        None => (
            Live::empty(&wiring),
            Current::none(),
            frame::Frame::default(),
            vec![],
            None,
        ),
    };
    let level = Level {
        scope: scope.clone(),
        wiring,
        ns,
        stores,
        parents: nested.parents.clone(),
        live,
        current,
        frame,
        pending,
        updated,
        tasks: vec![],
        saved: false,
        ran: 0,
        replaying: false,
        resuming: None,
        told: None,
        replay: nested.replay.clone(),
    };
    let origin = Origin {
        named,
        root,
        by,
        ran,
    };
    Ok((level, origin))
}

/// Where a graph inside starts.
struct Origin {
    named: Option<Named>,
    /// The checkpoint of the root graph under which its state was stored.
    root: Option<CheckpointId>,
    /// The run that stored it.
    by: Option<RunId>,
    /// How many supersteps of it that run had done by then.
    ran: u32,
}

/// The request names the checkpoint to run from.
#[derive(Clone, Copy)]
struct Named {
    /// The graph has moved past it.
    superseded: bool,
}

/// The state of a namespace at a checkpoint.
async fn at(
    scope: &Scope,
    ns: &Arc<str>,
    id: CheckpointId,
) -> Result<Option<frame::Decoded>, Error> {
    load(scope, ns, |_| At::Id(id)).await
}

/// The newest state of a namespace on the run's path.
async fn find(
    scope: &Scope,
    ns: &Arc<str>,
    before: Option<CheckpointId>,
) -> Result<Option<frame::Decoded>, Error> {
    let Some(journal) = &scope.journal else {
        return Ok(None);
    };
    if before.is_none()
        && let Some(late) = journal.find_late(ns).await
    {
        return Ok(Some(late));
    }
    let Some(start) = *scope.root.lock() else {
        return Ok(None);
    };
    let at = |branch| At::Subgraph {
        start,
        branch,
        before,
    };
    load(scope, ns, at).await
}

async fn load(
    scope: &Scope,
    ns: &Arc<str>,
    at: impl FnOnce(BranchId) -> At,
) -> Result<Option<frame::Decoded>, Error> {
    let Some(journal) = &scope.journal else {
        return Ok(None);
    };
    if journal.durability() != Durability::Exit {
        // The rows it may be in, and the path to them, can still be on their way.
        journal.flush().await?;
    }
    let slot = journal.slot().await;
    let stored = journal
        .saver()
        .load(Query {
            tree: slot.tree,
            thread: slot.thread,
            ns: ns.clone(),
            at: at(slot.branch),
            values: true,
        })
        .await?;
    let Some(mut stored) = stored else {
        return Ok(None);
    };
    stored.writes.retain(|write| write.branch == slot.branch);
    Ok(Some(frame::decode(&stored)?))
}

impl Current {
    /// Stands on a stored checkpoint.
    pub fn of(checkpoint: &crate::checkpoint::Checkpoint) -> Self {
        Self {
            id: checkpoint.id,
            exists: true,
            parent: checkpoint.parent,
            shown_parent: checkpoint.parent,
            source: checkpoint.source,
            step: checkpoint.step,
            depth: checkpoint.depth,
            stored: Some(checkpoint.id),
            shown_parents: Some(
                checkpoint
                    .metadata
                    .get("parents")
                    .and_then(Value::as_map)
                    .cloned()
                    .unwrap_or_default(),
            ),
            told: false,
            last_node: checkpoint.last_node,
            event_number: checkpoint.event_number,
        }
    }

    /// Stands on nothing: the state before the first input.
    pub fn none() -> Self {
        Self {
            id: CheckpointId::mint(-2, []),
            exists: false,
            parent: None,
            shown_parent: None,
            source: Source::Input,
            step: -2,
            depth: -1,
            stored: None,
            shown_parents: None,
            told: false,
            last_node: None,
            event_number: 0,
        }
    }
}
