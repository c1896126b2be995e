//! Reading states of threads: now, at a checkpoint, and over time.

use std::sync::Arc;

use parking_lot::Mutex;

use super::json;
use crate::{
    engine::{snapshot::snapshot, topology::Topology},
    id::ThreadId,
    runs::{Listing, request::Address},
    threads::{Error, Result, Service, request::History},
    tree::{
        StateReader,
        read::{Rules, graph_at},
    },
    value::Value,
};

impl Service {
    /// The state of a thread, in the form clients see.
    ///
    /// # Errors
    /// No such thread, stored values that do not fit the graph, or the storage failed.
    pub async fn state(&self, id: ThreadId, at: &Address, subgraphs: bool) -> Result<Value> {
        let (thread, known) = self.row_for_state(id, at).await?;
        let selection = self.select(&thread, at).await?;
        let graph = self
            .shared
            .readable_graph_of(id, &thread.metadata, None)
            .await?;
        let Some(registered) = graph else {
            return self.graphless_state(&thread, at, &selection, known).await;
        };
        let (graph, topology) = if at.ns.is_empty() {
            (registered.graph.clone(), registered.topology.clone())
        } else {
            let Some(graph) = graph_at(&registered.graph, &at.ns) else {
                return Ok(empty(id, at));
            };
            (graph.clone(), Arc::new(Topology::new(graph)))
        };
        let loaded = self
            .load_selected(&thread, &at.ns, &selection, known)
            .await?;
        let Some((decoded, _memory)) = loaded else {
            return Ok(empty(id, at));
        };
        let reader = StateReader {
            saver: &self.shared.parts.saver,
            thread: &thread,
            rules: Rules::Server,
            memory: self.state_memory(),
            reserved: Mutex::default(),
        };
        let inside = subgraphs.then(|| {
            self.access.record_shown(id);
            let first = decoded.writes.first().map(|(branch, _)| *branch);
            let branch = selection.owner.or(first).unwrap_or(thread.active_branch);
            reader.inside(&decoded, branch, selection.owner.is_some())
        });
        let state = reader
            .render(&topology, &at.ns, decoded, selection.live, inside.as_ref())
            .await?;
        Ok(json::thread_state(id, &graph, &state, subgraphs))
    }

    /// States of a thread, newest first, in the form clients see. They are read as the list is.
    ///
    /// # Errors
    /// No such thread, or the storage failed; then also the list ends with an error, as it does at
    /// stored values that do not fit the graph.
    pub async fn history(&self, id: ThreadId, page: &History) -> Result<Listing<Value, Error>> {
        let thread = self.row(id).await?;
        if page.at.tree_address.is_some() {
            // An address that is not visible is refused before anything else is read.
            self.select(&thread, &page.at).await?;
        }
        if page.limit == 0 {
            return Ok(Listing::empty());
        }
        let graph = self
            .shared
            .readable_graph_of(id, &thread.metadata, None)
            .await?;
        let Some(registered) = graph else {
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
        let found = self.within_limit(self.history_page(&thread, page)).await?;
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
