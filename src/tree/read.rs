//! Reading states of a thread: at a checkpoint, at present or over time, with those of subgraphs.

pub mod graphless;
pub mod head;

use std::{collections::HashMap, sync::Arc};

use futures::{FutureExt, future::BoxFuture};

use super::{load, store::Thread};
use crate::{
    checkpoint::{
        At, List, Pending, Saver,
        frame::{self, Decoded},
    },
    engine::{
        self,
        snapshot::{Snapshot, exact},
        topology::Topology,
    },
    graph::{Body, Compiled, Node, Persist},
    id::CheckpointId,
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

/// Reads the states of one thread.
pub struct StateReader<'a> {
    /// The storage.
    pub saver: &'a Arc<dyn Saver>,
    /// The thread as it is now.
    pub thread: &'a Thread,
}

impl StateReader<'_> {
    /// The state in `ns` at a checkpoint, or the present one without it. `graph` is the graph of
    /// that namespace.
    ///
    /// # Errors
    /// Stored values do not fit the graph, or the storage failed.
    pub async fn state(
        &self,
        graph: &Arc<Compiled>,
        ns: &Arc<str>,
        at: Option<CheckpointId>,
        with_subgraphs: bool,
    ) -> Result<Option<ThreadState>, engine::Error> {
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
        self.render(graph, ns, &decoded, at.is_none(), with_subgraphs)
            .await
            .map(Some)
    }

    /// The states that `list` selects, newest first, except those whose graph is not part of `root`.
    ///
    /// # Errors
    /// Stored values do not fit the graph, or the storage failed.
    pub async fn history(
        &self,
        root: &Arc<Compiled>,
        list: List,
    ) -> Result<Vec<ThreadState>, engine::Error> {
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
            states.push(self.render(&graph, ns, &decoded, false, false).await?);
        }
        Ok(states)
    }

    async fn load(&self, ns: &Arc<str>, at: At) -> Result<Option<Decoded>, engine::Error> {
        let (tree, thread) = (self.thread.tree, self.thread.id);
        Ok(load::checkpoint(self.saver, tree, thread, ns, at).await?)
    }

    async fn render(
        &self,
        graph: &Arc<Compiled>,
        ns: &Arc<str>,
        decoded: &Decoded,
        live: bool,
        with_subgraphs: bool,
    ) -> Result<ThreadState, engine::Error> {
        let topology = Topology::new(graph.clone());
        let snapshot = exact(&topology, ns, decoded, live)?;
        let subgraphs = if with_subgraphs {
            self.subgraph_states(graph, &snapshot).await?
        } else {
            HashMap::new()
        };
        Ok(ThreadState {
            snapshot,
            writes: decoded
                .writes
                .iter()
                .map(|(_, write)| write.clone())
                .collect(),
            subgraphs,
        })
    }

    /// Present states of the subgraphs of the tasks of a state.
    fn subgraph_states<'b>(
        &'b self,
        graph: &'b Arc<Compiled>,
        of: &'b Snapshot,
    ) -> BoxFuture<'b, Result<HashMap<Arc<str>, ThreadState>, engine::Error>> {
        async move {
            let mut states = HashMap::new();
            for task in &of.tasks {
                let Some(ns) = &task.child_ns else { continue };
                let Some(child) = graph.node(&task.name).and_then(inner_graph) else {
                    continue;
                };
                let stored = stored_ns(&child, ns);
                if let Some(state) = self.state(&child, &stored, None, true).await? {
                    states.insert(ns.clone(), state);
                }
            }
            Ok(states)
        }
        .boxed()
    }
}

/// The namespace in which a graph stores its states when it runs in the namespace `ns`.
pub fn stored_ns(graph: &Compiled, ns: &Arc<str>) -> Arc<str> {
    match graph.persist {
        Persist::Thread => engine::namespace::without_tasks(ns).into(),
        Persist::Inherit | Persist::None => ns.clone(),
    }
}

/// The graph a node runs.
pub fn inner_graph(node: &Node) -> Option<Arc<Compiled>> {
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
