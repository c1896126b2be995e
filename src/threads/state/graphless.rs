//! States of threads on which nothing has run, which have messages and no graph.

use std::sync::Arc;

use super::{
    json,
    read::empty,
    select::{Known, Selection},
};
use crate::{
    checkpoint::frame::Decoded,
    engine::{
        snapshot::{Snapshot, snapshot},
        topology::Topology,
    },
    runs::{Listing, request::Address},
    threads::{Error, Result, Service, request::History},
    tree::{Thread, read::graphless},
    value::Value,
};

/// A state without a graph: the stored values, and whether input waits for a graph.
fn graphless_snapshot(topology: &Topology, decoded: &Decoded, live: bool) -> Snapshot {
    let ns: Arc<str> = "".into();
    // Values of another graph may not fit.
    let (next, tasks) = match snapshot(topology, &ns, decoded, live) {
        Ok(snapshot) => (snapshot.next, snapshot.tasks),
        Err(_) => (vec![], vec![]),
    };
    Snapshot {
        ns,
        checkpoint: decoded.checkpoint.clone(),
        values: Value::map(graphless::values(decoded)),
        next,
        tasks,
    }
}

impl Service {
    /// The state of a thread without a graph, as [`state`](Service::state).
    pub(super) async fn graphless_state(
        &self,
        thread: &Thread,
        at: &Address,
        selection: &Selection,
        known: Option<Known>,
    ) -> Result<Value> {
        let found = if at.ns.is_empty() {
            self.load_selected(thread, &at.ns, selection, known).await?
        } else {
            None
        };
        let (Some((decoded, _memory)), Some(topology)) = (found, graphless::topology()) else {
            return Ok(empty(thread.id, at));
        };
        let snapshot = graphless_snapshot(topology, &decoded, selection.live);
        Ok(json::state(thread.id, &topology.graph, &snapshot, &|_| {
            None
        }))
    }

    /// States of a thread without a graph, as [`history`](Service::history).
    pub(super) async fn graphless_history(
        &self,
        thread: &Thread,
        page: &History,
    ) -> Result<Listing<Value, Error>> {
        let Some(topology) = graphless::topology().filter(|_| page.at.ns.is_empty()) else {
            return Ok(Listing::empty());
        };
        let id = thread.id;
        let found = self.within_limit(self.history_page(thread, page)).await?;
        Ok(found.render(Box::new(move |decoded| {
            let snapshot = graphless_snapshot(topology, decoded, false);
            Ok(json::state(id, &topology.graph, &snapshot, &|_| None))
        })))
    }
}
