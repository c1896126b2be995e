//! Reading states of threads: now, at a checkpoint, and over time.

use std::{collections::HashMap, sync::Arc};

use futures::{FutureExt, future::BoxFuture};

use super::json;
use crate::{
    checkpoint::At,
    engine::{
        snapshot::{Snapshot, snapshot},
        topology::Topology,
    },
    graph::Compiled,
    id::{BranchId, ThreadId},
    runs::{Listing, request::Address},
    threads::{Error, Service, request::History},
    tree::{
        Thread,
        load::{self, owner_of_writes},
        read::{graph_at, inner_graph, stored_ns},
    },
    value::Value,
};

impl Service {
    /// The state of a thread, in the form clients see.
    ///
    /// # Errors
    /// No such thread, stored values that do not fit the graph, or the storage failed.
    pub async fn state(&self, id: ThreadId, at: &Address, subgraphs: bool) -> Result<Value, Error> {
        let thread = self.row(id).await?;
        let selection = self.select(&thread, at).await?;
        let Some(registered) = self.shared.required_graph_of(&thread.metadata)? else {
            return self.graphless_state(&thread, at, &selection).await;
        };
        let (graph, topology) = if at.ns.is_empty() {
            (registered.graph.clone(), registered.topology.clone())
        } else {
            let Some(graph) = graph_at(&registered.graph, &at.ns) else {
                return Ok(empty(id, at));
            };
            (graph.clone(), Arc::new(Topology::new(graph)))
        };
        let Some(decoded) = self.load_selected(&thread, &at.ns, &selection).await? else {
            return Ok(empty(id, at));
        };
        let snapshot = snapshot(&topology, &at.ns, &decoded, selection.live)?;
        let nested = if subgraphs {
            let checkpoint = &decoded.checkpoint;
            let first = decoded.writes.first().map(|(branch, _)| *branch);
            let branch = selection.owner.or(first).unwrap_or(thread.active_branch);
            let inside = At::Subgraph {
                start: checkpoint.root.unwrap_or(checkpoint.id),
                branch,
                before: None,
            };
            let position = (inside, branch);
            self.nested_states(&thread, &graph, &snapshot, &position)
                .await?
        } else {
            HashMap::new()
        };
        Ok(json::state(id, &graph, &snapshot, &|ns| {
            nested.get(ns).cloned()
        }))
    }

    /// Live states of the graphs inside the tasks of a state, as they belong to the path of its
    /// branch.
    fn nested_states<'a>(
        &'a self,
        thread: &'a Thread,
        graph: &'a Arc<Compiled>,
        of: &'a Snapshot,
        position: &'a (At, BranchId),
    ) -> BoxFuture<'a, Result<HashMap<String, Value>, Error>> {
        async move {
            let mut states = HashMap::new();
            for task in &of.tasks {
                let Some(ns) = &task.child_ns else { continue };
                let Some(child) = graph.node(&task.name).and_then(inner_graph) else {
                    continue;
                };
                let stored_ns = stored_ns(&child, ns);
                let (inside, branch) = position;
                let saver = &self.shared.parts.saver;
                let at = inside.clone();
                let found = load::checkpoint(saver, thread.tree, thread.id, &stored_ns, at).await?;
                let Some(mut decoded) = found else {
                    // It has not run yet.
                    states.insert(ns.to_string(), json::empty_state(thread.id, None));
                    continue;
                };
                let owner = owner_of_writes(&decoded, *branch);
                decoded.writes.retain(|(branch, _)| *branch == owner);
                let topology = Topology::new(child.clone());
                let inner = snapshot(&topology, &stored_ns, &decoded, true)?;
                let deeper = self.nested_states(thread, &child, &inner, position).await?;
                let state = json::state(thread.id, &child, &inner, &|ns| deeper.get(ns).cloned());
                states.insert(ns.to_string(), state);
            }
            Ok(states)
        }
        .boxed()
    }

    /// States of a thread, newest first, in the form clients see. They are read as the list is.
    ///
    /// # Errors
    /// No such thread, or the storage failed; then also the list ends with an error, as it does at
    /// stored values that do not fit the graph.
    pub async fn history(&self, id: ThreadId, page: &History) -> Result<Listing<Value>, Error> {
        let thread = self.row(id).await?;
        if page.at.tree_address.is_some() {
            // An address that is not visible is refused before anything else is read.
            self.select(&thread, &page.at).await?;
        }
        if page.limit == 0 {
            return Ok(Listing::empty());
        }
        let Some(registered) = self.shared.required_graph_of(&thread.metadata)? else {
            return self.graphless_history(&thread, page).await;
        };
        let Some(graph) = graph_at(&registered.graph, &page.at.ns) else {
            return Ok(Listing::empty());
        };
        let topology = if page.at.ns.is_empty() {
            registered.topology.clone()
        } else {
            Arc::new(Topology::new(graph.clone()))
        };
        let ns = page.at.ns.clone();
        let found = self.history_page(&thread, page).await?;
        Ok(found.render(Box::new(move |decoded| {
            let snapshot = snapshot(&topology, &ns, decoded, false)?;
            Ok(json::state(id, &graph, &snapshot, &|_| None))
        })))
    }
}

/// The state at an address without a checkpoint.
pub(super) fn empty(thread: ThreadId, at: &Address) -> Value {
    let id = at.checkpoint.map(|id| id.to_string());
    json::empty_state(thread, id.as_deref())
}
