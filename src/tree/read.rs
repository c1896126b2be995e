//! Reading states of a thread: at a checkpoint, at present or over time, with those of the graphs inside its tasks.

pub mod graphless;
pub mod head;
pub mod interrupts;

use std::{collections::HashMap, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;

use super::{
    error::Result,
    load::{self, StateMemory},
    store::Thread,
};
use crate::{
    budget::Reservation,
    checkpoint::{
        At, List, Pending, Query, Saver,
        frame::{self, Decoded},
    },
    engine::{
        self,
        snapshot::{Snapshot, exact, snapshot},
        topology::Topology,
    },
    graph::{Body, Compiled, Node, Persist},
    id::{BranchId, CheckpointId},
};

/// A state with the pending writes stored beside it.
#[derive(Clone, Debug)]
pub struct ThreadState {
    /// The values and tasks, as the graph defines them.
    pub snapshot: Snapshot,
    /// Pending writes that count, ordered by path, task and index.
    pub writes: Vec<Pending>,
    /// Present states of the subgraphs of its tasks, by namespace, if requested.
    pub subgraphs: HashMap<Arc<str>, ThreadState>,
}

/// What counts where LangGraph's library and its server differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// A superstep whose results conflict is refused, and the state inside a task is the newest of its
    /// namespace.
    Library,
    /// A superstep whose results conflict is shown as it began, and the state inside a task is the one
    /// on the path of the branch.
    Server,
}

/// Where the states inside the tasks of a state are.
pub struct Inside {
    at: At,
    /// The branch whose pending writes count.
    branch: BranchId,
    /// The states are those of that branch as they are now: writes of other branches never count. In a record of the past
    /// they do where the branch has none.
    live: bool,
}

/// Reads the states of one thread.
pub struct StateReader<'a> {
    /// The storage.
    pub saver: &'a Arc<dyn Saver>,
    /// The thread as it is now.
    pub thread: &'a Thread,
    /// Which rules count.
    pub rules: Rules,
    /// What large states take that are read; without it they take nothing.
    pub memory: Option<&'a dyn StateMemory>,
    /// What they have taken of it, until the reader is dropped.
    pub reserved: Mutex<Vec<Reservation>>,
}

impl StateReader<'_> {
    /// The state in `ns` at a checkpoint, or the present one without it. `graph` is the graph of
    /// that namespace.
    ///
    /// # Errors
    /// Stored values do not fit the graph, there is no memory for them, or the storage failed.
    pub async fn state(
        &self,
        graph: &Arc<Compiled>,
        ns: &Arc<str>,
        at: Option<CheckpointId>,
        with_subgraphs: bool,
    ) -> Result<Option<ThreadState>> {
        let position = match (at, ns.is_empty()) {
            (Some(id), _) => At::Id(id),
            (None, true) => At::ActiveHead,
            (None, false) => At::Newest,
        };
        let Some(mut decoded) = self.load(ns, position).await? else {
            return Ok(None);
        };
        match at {
            Some(id) if self.thread.head != Some(id) => load::keep_first_writes(&mut decoded),
            _ => load::keep_own_writes(&mut decoded, self.thread.active_branch),
        }
        let topology = Topology::new(graph.clone());
        let branch = self.thread.active_branch;
        let inside = with_subgraphs.then(|| self.inside(&decoded, branch, at.is_none()));
        let state = self.render(&topology, ns, decoded, at.is_none(), inside.as_ref());
        state.await.map(Some)
    }

    /// The states that `list` selects, newest first, except those whose graph is not part of `root`.
    ///
    /// # Errors
    /// Stored values do not fit the graph, there is no memory for them, or the storage failed.
    pub async fn history(&self, root: &Arc<Compiled>, list: List) -> Result<Vec<ThreadState>> {
        let rows = self.saver.list(list).await?;
        let mut states = Vec::with_capacity(rows.len());
        for stored in &rows {
            let Some(graph) = graph_at(root, &stored.row.ns) else {
                continue;
            };
            let ns = &stored.row.ns;
            let decoded = frame::decode(stored)?;
            let mut decoded =
                load::resolve_references(self.saver, self.thread.tree, ns, decoded).await?;
            if self.thread.head == Some(stored.row.id) {
                load::keep_own_writes(&mut decoded, self.thread.active_branch);
            } else {
                load::keep_first_writes(&mut decoded);
            }
            let topology = Topology::new(graph);
            states.push(self.render(&topology, ns, decoded, false, None).await?);
        }
        Ok(states)
    }

    async fn load(&self, ns: &Arc<str>, at: At) -> Result<Option<Decoded>> {
        let id = match at {
            At::Id(id) => Some(id),
            _ => None,
        };
        let query = Query {
            tree: self.thread.tree,
            thread: self.thread.id,
            ns: ns.clone(),
            at,
            values: true,
        };
        let found = load::checkpoint_in(self.saver, query, id, self.memory).await?;
        let (decoded, reserved) = found.unzip();
        self.reserved.lock().extend(reserved.flatten());
        Ok(decoded)
    }

    /// Where the states inside the tasks of a checkpoint are, as they belong to a branch; `live` where that is its head.
    pub fn inside(&self, decoded: &Decoded, branch: BranchId, live: bool) -> Inside {
        let checkpoint = &decoded.checkpoint;
        let (at, live) = match self.rules {
            // It may be that of another branch.
            Rules::Library => (At::Newest, false),
            Rules::Server => {
                let at = At::Subgraph {
                    start: checkpoint.root.unwrap_or(checkpoint.id),
                    branch,
                    before: None,
                };
                (at, live)
            }
        };
        Inside { at, branch, live }
    }

    /// The state that a checkpoint is with the pending writes that count, and the states inside its
    /// tasks if they are requested.
    ///
    /// # Errors
    /// As [`state`](Self::state).
    pub async fn render(
        &self,
        topology: &Topology,
        ns: &Arc<str>,
        decoded: Decoded,
        live: bool,
        inside: Option<&Inside>,
    ) -> Result<ThreadState> {
        let snapshot = match self.rules {
            Rules::Library => exact(topology, ns, &decoded, live)?,
            Rules::Server => snapshot(topology, ns, &decoded, live)?,
        };
        let subgraphs = match inside {
            Some(inside) => {
                let graph = &topology.graph;
                self.subgraph_states(graph, &snapshot, inside).await?
            }
            None => HashMap::new(),
        };
        let writes = decoded.writes.into_iter().map(|(_, write)| write);
        Ok(ThreadState {
            snapshot,
            writes: writes.collect(),
            subgraphs,
        })
    }

    /// Live states of the graphs inside the tasks of a state, and inside theirs; none of a graph that
    /// has not run yet.
    fn subgraph_states<'b>(
        &'b self,
        graph: &'b Compiled,
        of: &'b Snapshot,
        inside: &'b Inside,
    ) -> BoxFuture<'b, Result<HashMap<Arc<str>, ThreadState>>> {
        async move {
            let mut states = HashMap::new();
            for (ns, child) in graphs_inside(graph, of) {
                let stored_ns = stored_ns(&child, ns);
                let Some(mut decoded) = self.load(&stored_ns, inside.at.clone()).await? else {
                    continue;
                };
                if inside.live {
                    decoded.retain_writes(|branch, _| branch == inside.branch);
                } else {
                    load::keep_own_writes(&mut decoded, inside.branch);
                }
                let topology = Topology::new(child);
                let state = self.render(&topology, &stored_ns, decoded, true, Some(inside));
                states.insert(ns.clone(), state.await?);
            }
            Ok(states)
        }
        .boxed()
    }
}

/// The graphs inside the tasks of a state, each with the namespace it runs in.
pub fn graphs_inside<'a>(
    graph: &'a Compiled,
    of: &'a Snapshot,
) -> impl Iterator<Item = (&'a Arc<str>, Arc<Compiled>)> {
    of.tasks.iter().filter_map(|task| {
        let ns = task.child_ns.as_ref()?;
        Some((ns, graph.node(&task.name).and_then(inner_graph)?))
    })
}

/// The namespace in which a graph stores its states when it runs in the namespace `ns`.
pub fn stored_ns(graph: &Compiled, ns: &Arc<str>) -> Arc<str> {
    match graph.persist {
        Persist::Thread => engine::namespace::without_tasks(ns).into(),
        Persist::Inherit | Persist::None => ns.clone(),
    }
}

/// The graph a node runs.
fn inner_graph(node: &Node) -> Option<Arc<Compiled>> {
    match &node.body {
        Body::Graph(graph) => Some(graph.clone()),
        Body::Function(_) => node.calls.first().map(|(_, graph)| graph.clone()),
    }
}

/// The graph a namespace belongs to.
pub fn graph_at(root: &Arc<Compiled>, ns: &str) -> Option<Arc<Compiled>> {
    let mut graph = root.clone();
    if ns.is_empty() {
        return Some(graph);
    }
    for level in ns.split('|') {
        let node = level.split_once(':').map_or(level, |(node, _)| node);
        if node.parse::<usize>().is_ok() {
            // The number of a further call within one task.
            continue;
        }
        graph = graph.node(node).and_then(inner_graph)?;
    }
    Some(graph)
}
