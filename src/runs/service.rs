//! The service itself: what it is made of, and the graphs it knows.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Error, Store, keys,
    live::Active,
    messages::Turns,
    news::{News, Telling},
    request::Assistant,
};
use crate::{
    checkpoint::{Saver, cache::DecodedCheckpoints},
    engine::{Items, reuse::Results, wiring::Wiring},
    graph::Compiled,
    id::{AssistantId, WorkerId},
    stream::{Hub, Retention},
    tree,
    value::{Map, Value},
};

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct Options {
    /// Runs executed at once.
    pub slots: usize,
    /// How long a worker may be silent before its runs count as lost.
    pub lease: Duration,
    /// How often the queue is looked at without being woken.
    pub poll: Duration,
    /// How long runs may go on after a request to stop. Others then go on with what is left.
    pub drain: Duration,
    /// Supersteps a run may take when neither it nor its graph says (LangGraph's default).
    pub recursion_limit: u32,
    /// Longest run.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slots: 512,
            lease: Duration::from_secs(15),
            poll: Duration::from_secs(1),
            drain: Duration::from_secs(30),
            recursion_limit: 10_007,
            timeout: Duration::from_secs(24 * 3600),
        }
    }
}

/// The storages the service works with; usually one object in all roles.
#[derive(Clone)]
pub struct Parts {
    /// Checkpoints.
    pub saver: Arc<dyn Saver>,
    /// Threads and branches.
    pub tree: Arc<dyn tree::Store>,
    /// Runs and leases.
    pub runs: Arc<dyn Store>,
    /// Long-term memory of nodes.
    pub items: Option<Arc<dyn Items>>,
    /// Requests that must take effect once.
    pub keys: Arc<dyn keys::Store>,
    /// Tables derived from events.
    pub projections: Arc<dyn tree::projection::Store>,
}

/// A graph with its name.
pub(super) struct Registered {
    pub name: Arc<str>,
    pub graph: Arc<Compiled>,
    pub wiring: Arc<Wiring>,
}

pub(super) struct Inner {
    pub options: Options,
    pub parts: Parts,
    pub graphs: BTreeMap<Arc<str>, Arc<Registered>>,
    pub by_id: BTreeMap<AssistantId, Arc<Registered>>,
    pub worker: WorkerId,
    pub hub: Hub,
    pub active: Mutex<Active>,
    pub cache: DecodedCheckpoints,
    pub turns: Turns,
    /// Results of nodes.
    pub reuse: Arc<Results>,
    /// A run may have become free to start.
    pub wake: Notify,
    /// A request with an idempotency key was answered or given up.
    pub answered: Notify,
    /// Who waits for events, and which threads have new ones.
    pub news: Arc<News>,
    /// Every thread may have derived rows to be made.
    pub sweep: Notify,
    pub tracker: TaskTracker,
    /// No new work.
    pub drain: CancellationToken,
    /// What still runs is left to whoever comes next.
    pub hand_over: CancellationToken,
    pub started: crate::time::Timestamp,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Service {
    pub(super) inner: Arc<Inner>,
}

impl Service {
    /// A service over `parts` that knows `graphs` by name. Call
    /// [`start`](Service::start) to let it work.
    pub fn new(
        mut parts: Parts,
        graphs: impl IntoIterator<Item = (Arc<str>, Arc<Compiled>)>,
        options: Options,
        drain: CancellationToken,
    ) -> Self {
        let graphs: BTreeMap<Arc<str>, Arc<Registered>> = graphs
            .into_iter()
            .map(|(name, graph)| {
                let registered = Registered {
                    name: name.clone(),
                    wiring: Arc::new(Wiring::new(graph.clone())),
                    graph,
                };
                (name, Arc::new(registered))
            })
            .collect();
        let by_id = graphs
            .iter()
            .map(|(name, registered)| (AssistantId::of_graph(name), registered.clone()))
            .collect();
        let news = Arc::<News>::default();
        parts.saver = Arc::new(Telling {
            saver: parts.saver,
            news: news.clone(),
        });
        Self {
            inner: Arc::new(Inner {
                options,
                parts,
                graphs,
                by_id,
                worker: WorkerId::mint(),
                hub: Hub::new(Retention::default()),
                active: Mutex::default(),
                cache: DecodedCheckpoints::new(64 << 20),
                turns: Turns::default(),
                reuse: Arc::default(),
                wake: Notify::new(),
                answered: Notify::new(),
                news,
                sweep: Notify::new(),
                tracker: TaskTracker::new(),
                drain,
                hand_over: CancellationToken::new(),
                started: crate::time::Timestamp::now(),
            }),
        }
    }

    /// Names of the registered graphs, sorted.
    pub fn graphs(&self) -> Vec<Arc<str>> {
        self.inner.graphs.keys().cloned().collect()
    }

    /// The graph of an assistant.
    ///
    /// # Errors
    /// No such assistant.
    pub fn graph(&self, assistant: &Assistant) -> Result<(AssistantId, Arc<Compiled>), Error> {
        let (id, registered) = self.registered(assistant)?;
        Ok((id, registered.graph.clone()))
    }

    pub(super) fn registered(
        &self,
        assistant: &Assistant,
    ) -> Result<(AssistantId, Arc<Registered>), Error> {
        match assistant {
            Assistant::Graph(name) => match self.inner.graphs.get(name) {
                Some(registered) => Ok((AssistantId::of_graph(name), registered.clone())),
                None => Err(Error::UnknownGraph {
                    name: name.to_string(),
                    known: self.graphs().iter().map(ToString::to_string).collect(),
                }),
            },
            Assistant::Id(id) => self
                .inner
                .by_id
                .get(id)
                .map(|registered| (*id, registered.clone()))
                .ok_or(Error::NoThreadOrAssistant),
        }
    }

    /// The assistant the server made for a graph, in the form clients see.
    pub fn assistant(&self, id: AssistantId) -> Option<Value> {
        let registered = self.inner.by_id.get(&id)?;
        let mut metadata = Map::new();
        metadata.insert("created_by", "system");
        let time = self.inner.started.to_string();
        let mut map = Map::with_capacity(10);
        map.insert("assistant_id", id.to_string());
        map.insert("graph_id", Value::Str(registered.name.clone()));
        map.insert("config", Value::map(Map::new()));
        map.insert("context", Value::map(Map::new()));
        map.insert("metadata", Value::map(metadata));
        map.insert("name", Value::Str(registered.name.clone()));
        map.insert("created_at", time.clone());
        map.insert("updated_at", time);
        map.insert("version", 1);
        map.insert("description", Value::Null);
        Some(Value::map(map))
    }

    /// All assistants.
    pub fn assistants(&self) -> Vec<Value> {
        self.inner
            .by_id
            .keys()
            .filter_map(|id| self.assistant(*id))
            .collect()
    }
}
