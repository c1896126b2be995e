//! States of threads: now, at a checkpoint, and over time.

use std::{collections::HashMap, sync::Arc};

use futures::{FutureExt, future::BoxFuture};

use super::{
    Error, Service,
    request::{Address, threads::History},
    service::Registered,
    view,
};
use crate::{
    checkpoint::{
        At, Query, Stored,
        frame::{self, Decoded},
    },
    engine::{
        self, Interrupt,
        view::{Snapshot, snapshot},
        wiring::Wiring,
    },
    graph::Compiled,
    id::{BranchId, TaskId, ThreadId, TreeId},
    tree::{
        Thread,
        load::{self, owner_of_writes},
        read::{graph_at, inner_graph, stored_ns},
    },
    value::{Map, Value},
};

impl Service {
    /// The thread's row.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub async fn thread(&self, id: ThreadId) -> Result<Thread, Error> {
        let row = self.inner.parts.tree.thread(id).await?;
        row.ok_or(Error::NoThread(id))
    }

    /// The graph of a thread: that of its last run, or what its metadata says.
    pub(super) fn graph_of(&self, thread: &Thread) -> Option<Arc<Registered>> {
        self.graph_in(&thread.metadata)
    }

    /// The same for what needs the graph; `None` for a thread on which nothing has run.
    ///
    /// # Errors
    /// The thread names a graph that this server does not have.
    pub(super) fn graph_known(&self, thread: &Thread) -> Result<Option<Arc<Registered>>, Error> {
        let Some(name) = thread.metadata.get("graph_id").and_then(Value::as_str) else {
            return Ok(None);
        };
        let known = self.inner.graphs.get(name).cloned();
        known.map(Some).ok_or_else(|| Error::GraphGone {
            name: name.to_owned(),
            known: self.graphs().iter().map(ToString::to_string).collect(),
        })
    }

    /// The graph that the metadata of a thread names.
    pub(super) fn graph_in(&self, metadata: &Map) -> Option<Arc<Registered>> {
        let name = metadata.get("graph_id").and_then(Value::as_str)?;
        self.inner.graphs.get(name).cloned()
    }

    /// The state of a thread, in the form clients see.
    ///
    /// # Errors
    /// No such thread, stored values that do not fit the graph, or the storage failed.
    pub async fn state(&self, id: ThreadId, at: &Address, subgraphs: bool) -> Result<Value, Error> {
        let thread = self.thread(id).await?;
        let look = self.look(&thread, at).await?;
        let Some(registered) = self.graph_known(&thread)? else {
            return self.plain_state(&thread, at, &look).await;
        };
        let (graph, wiring) = match at.ns.is_empty() {
            true => (registered.graph.clone(), registered.wiring.clone()),
            false => {
                let Some(graph) = graph_at(&registered.graph, &at.ns) else {
                    return Ok(empty(id, at));
                };
                (graph.clone(), Arc::new(Wiring::new(graph)))
            }
        };
        let Some(decoded) = self.seen(&thread, &at.ns, &look).await? else {
            return Ok(empty(id, at));
        };
        let snapshot = snapshot(&wiring, &at.ns, &decoded, look.live)?;
        let nested = match subgraphs {
            true => {
                let checkpoint = &decoded.checkpoint;
                let first = decoded.writes.first().map(|(branch, _)| *branch);
                let branch = look.owner.or(first).unwrap_or(thread.active_branch);
                let inside = At::Subgraph {
                    start: checkpoint.root.unwrap_or(checkpoint.id),
                    branch,
                    before: None,
                };
                let place = (inside, branch);
                self.nested_states(&thread, &graph, &snapshot, &place)
                    .await?
            }
            false => HashMap::new(),
        };
        Ok(view::state(id, &graph, &snapshot, &|ns| {
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
        place: &'a (At, BranchId),
    ) -> BoxFuture<'a, Result<HashMap<String, Value>, Error>> {
        async move {
            let mut states = HashMap::new();
            for task in &of.tasks {
                let Some(ns) = &task.child_ns else { continue };
                let Some(child) = graph.node(&task.name).and_then(inner_graph) else {
                    continue;
                };
                let stored_ns = stored_ns(&child, ns);
                let (inside, branch) = place;
                let found = self.find(thread, &stored_ns, inside.clone()).await?;
                let Some(mut decoded) = found else {
                    // It has not run yet.
                    states.insert(ns.to_string(), view::empty_state(thread.id, None));
                    continue;
                };
                let owner = owner_of_writes(&decoded, *branch);
                decoded.writes.retain(|(branch, _)| *branch == owner);
                let wiring = Wiring::new(child.clone());
                let inner = snapshot(&wiring, &stored_ns, &decoded, true)?;
                let deeper = self.nested_states(thread, &child, &inner, place).await?;
                let state = view::state(thread.id, &child, &inner, &|ns| deeper.get(ns).cloned());
                states.insert(ns.to_string(), state);
            }
            Ok(states)
        }
        .boxed()
    }

    async fn find(&self, thread: &Thread, ns: &Arc<str>, at: At) -> Result<Option<Decoded>, Error> {
        let stored = self
            .inner
            .parts
            .saver
            .load(Query {
                tree: thread.tree,
                thread: thread.id,
                ns: ns.clone(),
                at,
                values: true,
            })
            .await?;
        match stored {
            Some(stored) => Ok(Some(self.decoded(thread.tree, &stored).await?)),
            None => Ok(None),
        }
    }

    pub(super) async fn decoded(&self, tree: TreeId, stored: &Stored) -> Result<Decoded, Error> {
        let decoded = frame::decode(stored)?;
        self.resolve(tree, &stored.row.ns, decoded).await
    }

    /// Fills in writes that point to the blobs they became.
    pub(super) async fn resolve(
        &self,
        tree: TreeId,
        ns: &Arc<str>,
        decoded: Decoded,
    ) -> Result<Decoded, Error> {
        Ok(load::resolve_references(&self.inner.parts.saver, tree, ns, decoded).await?)
    }

    /// States of a thread, newest first, in the form clients see.
    ///
    /// # Errors
    /// No such thread, stored values that do not fit the graph, or the storage failed.
    pub async fn history(&self, id: ThreadId, page: &History) -> Result<Vec<Value>, Error> {
        let thread = self.thread(id).await?;
        if page.at.place.is_some() {
            // Told before anything else is looked at.
            self.look(&thread, &page.at).await?;
        }
        if page.limit == 0 {
            return Ok(vec![]);
        }
        let Some(registered) = self.graph_known(&thread)? else {
            return self.plain_history(&thread, page).await;
        };
        let Some(graph) = graph_at(&registered.graph, &page.at.ns) else {
            return Ok(vec![]);
        };
        let wiring = match page.at.ns.is_empty() {
            true => registered.wiring.clone(),
            false => Arc::new(Wiring::new(graph.clone())),
        };
        let found = self.listed(&thread, page).await?;
        let mut states = Vec::with_capacity(found.len());
        for decoded in &found {
            let snapshot = snapshot(&wiring, &page.at.ns, decoded, false)?;
            states.push(view::state(id, &graph, &snapshot, &|_| None));
        }
        Ok(states)
    }

    /// Values and open questions of a thread's head: `values`, and questions by task id. Nothing
    /// of a thread whose values do not fit the graph any more: lists show it all the same.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn shown(&self, thread: &Thread) -> Result<(Value, Map), Error> {
        if thread.head.is_none() {
            return Ok((Value::Null, Map::new()));
        }
        let Some(registered) = self.graph_of(thread) else {
            return Ok((self.plain_values(thread).await?, Map::new()));
        };
        let Some(mut decoded) = self.find(thread, &"".into(), At::ActiveHead).await? else {
            return Ok((Value::Null, Map::new()));
        };
        let active = thread.active_branch;
        decoded.writes.retain(|(branch, _)| *branch == active);
        let (live, values) = match on_row(&registered.wiring, decoded) {
            Ok(shown) => shown,
            Err(error) => {
                tracing::warn!(thread = %thread.id, %error, "a thread's values cannot be shown");
                return Ok((Value::Null, Map::new()));
            }
        };
        let mut interrupts = Map::new();
        for task in live.tasks.iter().filter(|task| !task.interrupts.is_empty()) {
            let asked = task.interrupts.iter().map(Interrupt::to_value).collect();
            interrupts.insert(task.id.to_string(), Value::list(asked));
        }
        Ok((view::shown_values(&registered.graph, &values), interrupts))
    }
}

/// What a thread's row shows of its head: what is asked, and the values of the last superstep with
/// what the client gave since, without results that wait for siblings.
fn on_row(wiring: &Wiring, mut decoded: Decoded) -> Result<(Snapshot, Value), engine::Error> {
    let ns = "".into();
    let live = snapshot(wiring, &ns, &decoded, true)?;
    decoded
        .writes
        .retain(|(_, write)| write.task == TaskId::NULL);
    Ok((live, snapshot(wiring, &ns, &decoded, false)?.values))
}

/// What there is to see at an address where nothing is.
pub(super) fn empty(thread: ThreadId, at: &Address) -> Value {
    let asked = at.checkpoint.map(|id| id.to_string());
    view::empty_state(thread, asked.as_deref())
}
