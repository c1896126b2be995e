//! What the services of runs and of threads share: the storage, the graphs, decoded checkpoints,
//! the notifier of events and the locks of trees.

mod conversation;
mod graph;
pub mod hints;
pub mod memory;
mod notify;
mod parts;
mod requests;
mod watches;
mod withdrawals;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub(crate) use conversation::no_channel;
pub use notify::EventNotifier;
pub(crate) use parts::Storage;
pub use withdrawals::{AccessWatch, Withdrawals};

use self::memory::{ReadMemory, States};
use self::{hints::Hints, notify::NotifyingSaver};
use super::{Error, Store, listing::BATCH_BYTES};
use crate::{
    assistants::{self, Registered, Tries},
    budget::Reservation,
    checkpoint::{self, Saver, cache::DecodedCheckpoints},
    contention::{Lines, Patience, Turn},
    id::{ThreadId, TreeId, WorkerId},
    store,
    stream::log::Log,
    tree::{
        self, Thread,
        load::{self, Weighed},
        metadata,
        read::head::{self, Head},
    },
    value::{Map, Value},
    webhooks::outbox,
};
#[cfg(feature = "server")]
use crate::{crons, webhooks::Sender};

/// The storages the services work with; usually one object in all roles.
#[derive(Clone)]
pub struct Parts {
    /// Checkpoints.
    pub saver: Arc<dyn Saver>,
    /// Threads and branches.
    pub tree: Arc<dyn tree::Store>,
    /// Runs and leases.
    pub runs: Arc<dyn Store>,
    /// Assistants of clients.
    pub assistants: Arc<dyn assistants::Store>,
    /// The config and context of runs by graph.
    pub defaults: BTreeMap<Arc<str>, assistants::Defaults>,
    /// How much an assistant may take.
    pub assistant_limits: assistants::Limits,
    /// How much metadata a thread may have.
    pub metadata: metadata::Limits,
    /// How long making a graph for a config may take.
    pub graph_making: Duration,
    /// Schedules by which runs are created.
    #[cfg(feature = "server")]
    pub crons: crons::Service,
    /// The log of streams that can be resumed.
    pub log: Arc<dyn Log>,
    /// Long-term memory of clients and nodes.
    pub items: store::Service,
    /// Tables derived from events.
    pub projections: Arc<dyn tree::projection::Store>,
    /// Deliveries of webhooks.
    pub outbox: Arc<dyn outbox::Store>,
    /// Sends them.
    #[cfg(feature = "server")]
    pub sender: Sender,
}

/// What the services of runs and of threads share.
pub struct Shared {
    /// The storages. The saver notifies of the events that it commits.
    pub(crate) parts: Parts,
    /// The assistants, each with its graph.
    pub(crate) assistants: assistants::Service,
    /// Decoded checkpoints.
    pub(crate) cache: DecodedCheckpoints,
    /// Memory for large states of runs, and for responses that are being made.
    pub(crate) states: States,
    /// Who waits for events, and which threads have new ones.
    pub(crate) notifier: Arc<EventNotifier>,
    /// What processes on one storage let each other know.
    pub(crate) hints: Arc<Hints>,
    /// Locks of trees.
    pub(crate) tree_locks: Lines<TreeId>,
    /// For those who wait for derived tables, and derive them meanwhile.
    pub(crate) deriving: Semaphore,
    /// Clients with open streams, whose access may be withdrawn.
    pub(crate) withdrawals: Arc<Withdrawals>,
    /// This process as a worker.
    pub(crate) worker: WorkerId,
    /// Cancelled when the server stops: no new work begins.
    pub(crate) drain: CancellationToken,
    /// The graph of all threads, whatever they name, where a program works with one graph by itself.
    only_graph: Option<Arc<Registered>>,
}

impl Shared {
    /// Over `parts`, with one assistant for each of `graphs`.
    /// Those who wait for one thread or tree do so with this patience. Large states take memory of
    /// `states`; decoded checkpoints of about `cache_bytes` are retained. What other processes do is polled each `poll` where they give no hint of it.
    pub fn new(
        mut parts: Parts,
        graphs: impl IntoIterator<Item = (Arc<str>, impl Into<assistants::Source>)>,
        drain: CancellationToken,
        patience: Patience,
        (states, cache_bytes): (States, usize),
        poll: Duration,
    ) -> Self {
        let assistants = assistants::Service::new(
            graphs,
            std::mem::take(&mut parts.defaults),
            parts.assistants.clone(),
            parts.assistant_limits,
            parts.graph_making,
        );
        let hints = Arc::new(Hints::new(parts.runs.linker(), poll));
        let notifier = Arc::new(EventNotifier::new(hints.clone()));
        parts.saver = Arc::new(NotifyingSaver {
            saver: parts.saver,
            notifier: notifier.clone(),
        });
        Self {
            parts,
            assistants,
            cache: DecodedCheckpoints::new(cache_bytes),
            states,
            notifier,
            hints,
            tree_locks: Lines::new(patience),
            deriving: Semaphore::new(2),
            withdrawals: Arc::default(),
            worker: WorkerId::mint(),
            drain,
            only_graph: None,
        }
    }

    /// The same, with one graph for all threads: they need not name it.
    pub fn with_only_graph(mut self, name: &str) -> Self {
        self.only_graph = self.assistants.named(name);
        self
    }

    /// The assistants.
    pub fn assistants(&self) -> &assistants::Service {
        &self.assistants
    }

    /// This process as a worker.
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// The thread's row.
    ///
    /// # Errors
    /// No such thread, or the storage failed.
    pub(crate) async fn thread(&self, id: ThreadId) -> Result<Thread, Error> {
        let row = self.parts.tree.thread(id).await?;
        row.ok_or(Error::NoThread(id))
    }

    /// Waits for a turn at a tree, for those who post to it: the lock on its row would make them wait
    /// too, but with a connection in hand.
    ///
    /// # Errors
    /// Too many wait, or for too long.
    pub(crate) async fn turn(&self, tree: TreeId) -> Result<Turn<TreeId>, Error> {
        let turn = self.tree_locks.alone(tree).await;
        Ok(turn.map_err(checkpoint::Error::from)?)
    }

    /// The graph that the metadata of a thread names: that of its last run. `None` also if it is
    /// not registered.
    pub(crate) fn graph_of(&self, metadata: &Map) -> Option<Arc<Registered>> {
        if self.only_graph.is_some() {
            return self.only_graph.clone();
        }
        let name = metadata.get("graph_id").and_then(Value::as_str)?;
        self.assistants.named(name)
    }

    /// [`graph_of`](Self::graph_of) for operations that need the graph; `None` for a thread on
    /// which nothing has run.
    ///
    /// # Errors
    /// The thread names a graph that is not registered.
    pub(crate) fn required_graph_of(
        &self,
        metadata: &Map,
    ) -> Result<Option<Arc<Registered>>, Error> {
        if self.only_graph.is_some() {
            return Ok(self.only_graph.clone());
        }
        let Some(name) = metadata.get("graph_id").and_then(Value::as_str) else {
            return Ok(None);
        };
        let found = self.assistants.named(name);
        found.map(Some).ok_or_else(|| Error::GraphGone {
            name: name.to_owned(),
            known: self.assistants.graph_names(),
        })
    }

    /// The head of a thread, read if at most `most` bytes are stored of it; `None` before its first
    /// checkpoint.
    ///
    /// # Errors
    /// The storage failed.
    pub(crate) async fn weighed_head(
        &self,
        thread: &Thread,
        most: u64,
    ) -> Result<Option<Weighed>, Error> {
        let Some(id) = thread.head else {
            return Ok(None);
        };
        let saver = &self.parts.saver;
        let weighed = load::weighed(saver, thread.tree, &"".into(), id, most).await?;
        Ok(Some(weighed))
    }

    /// What a thread shows of its head, which is read unless it was read to know its size: the one it has
    /// now, where that one has gone. For a large one the caller has the memory. `tries` counts the graphs that cannot be made for a list.
    ///
    /// # Errors
    /// The storage failed.
    pub(crate) async fn read_head(
        &self,
        thread: &Thread,
        weighed: &Weighed,
        tries: Option<&Tries>,
    ) -> Result<Head, Error> {
        if thread.head.is_none() {
            return Ok(Head::default());
        }
        let registered = self
            .shown_graph_of(thread.id, &thread.metadata, tries)
            .await?;
        let topology = registered.as_ref().map(|registered| &*registered.topology);
        let saver = &self.parts.saver;
        Ok(head::head(saver, thread, topology, weighed).await?)
    }

    /// What a thread shows of its head, and the memory for it: a large one is read once there is enough.
    ///
    /// # Errors
    /// The storage failed.
    pub(super) async fn head_read_in(
        &self,
        thread: &Thread,
        memory: &ReadMemory,
    ) -> Result<(Head, Option<Reservation>), Error> {
        let Some(weighed) = self.weighed_head(thread, BATCH_BYTES).await? else {
            return Ok((Head::default(), None));
        };
        let reserved = match &weighed {
            Weighed::Large(weight) => memory.wait(*weight).await,
            Weighed::Missing | Weighed::Read(_) => None,
        };
        let head = self.read_head(thread, &weighed, None).await?;
        Ok((head, reserved))
    }
}
