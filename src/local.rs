//! Running graphs on threads without a server: the same engine and storages, called directly.

use std::{path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "postgres")]
use crate::storage::postgres;
#[cfg(feature = "sqlite")]
use crate::storage::sqlite;
use crate::{
    checkpoint::{self, Saver, Slot},
    engine::{self, Items, node_cache::Results},
    graph::Compiled,
    id::{CheckpointId, ThreadId},
    llm::Embeddings,
    runs,
    state::Unsuitable,
    store, threads,
    tree::{self, IfExists, NewThread, members::LOCAL_PRINCIPAL},
    value::Map,
};

mod invoke;
mod node_run;
mod options;
mod services;
mod stream;
mod thread;
mod tree_ops;

pub use invoke::RunOutput;
pub use node_run::{NodeOutput, NodeRun};
pub use options::{History, RunOptions};
pub use stream::StreamEvent;
pub use thread::Thread;
pub use tree_ops::{Branch, Diff, Tag};

/// The storages of a [`Local`]; usually one object in all roles.
#[derive(Clone)]
pub struct Parts {
    /// Checkpoints.
    pub saver: Arc<dyn Saver>,
    /// Threads and branches.
    pub tree: Arc<dyn tree::Store>,
    /// Long-term memory of nodes.
    pub items: Option<Arc<dyn Items>>,
}

/// Why a call failed. How a run ends is no failure of the call: see
/// [`engine::Finished::result`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The storage could not be opened.
    #[error("{0}")]
    Open(String),
    /// The storage failed, or another writer took the thread over.
    #[error(transparent)]
    Storage(#[from] checkpoint::Error),
    /// An update that the engine refuses, or stored values that do not fit the graph.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The thread has no such checkpoint.
    #[error("the thread has no checkpoint {0}")]
    NoCheckpoint(CheckpointId),
    /// A run of this process is under way on the thread.
    #[error(
        "a run is under way on thread {0}: wait for it, or cancel it, before changing the state"
    )]
    Running(ThreadId),
    /// The graph runs no subgraph in this namespace.
    #[error("there is no subgraph at `{0}`")]
    NoSubgraph(Arc<str>),
    /// The input of a run, or the value that resumes one, cannot be encoded.
    #[error(transparent)]
    Input(#[from] Unsuitable),
    /// The run failed.
    #[error("{}{source}", node.as_ref().map(|node| format!("node `{node}`: ")).unwrap_or_default())]
    Run {
        /// The node that failed, if it was one.
        node: Option<Arc<str>>,
        /// What happened.
        source: Box<engine::Error>,
    },
    /// Whoever reads the events of a run is too slow for it.
    #[error("the run was stopped: {0} of its events were not read")]
    Unread(usize),
    /// A branch, a tag or an address that the thread does not have, or a change that it refuses.
    #[error(transparent)]
    Refused(Box<threads::Error>),
}

impl From<threads::Error> for Error {
    fn from(error: threads::Error) -> Self {
        match error {
            threads::Error::Storage(error) | threads::Error::Tree(tree::Error::Storage(error)) => {
                Self::Storage(error)
            }
            threads::Error::Engine(error) | threads::Error::Tree(tree::Error::Engine(error)) => {
                Self::Engine(error)
            }
            other => Self::Refused(Box::new(other)),
        }
    }
}

/// Threads in a storage, without a server.
///
/// ```
/// use backstitch::{Local, prelude::*, value};
///
/// #[derive(State)]
/// struct Count {
///     #[state(merge = add)]
///     n: i64,
/// }
///
/// fn add(old: i64, update: i64) -> i64 {
///     old + update
/// }
///
/// async fn one() -> Update<Count> {
///     Count::update().n(1)
/// }
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let graph = Graph::<Count>::new().node("one", one).edge(START, "one").build()?;
/// let local = Local::memory()?;
/// let thread = local.thread(&graph);
/// let done = thread.invoke(value!({"n": 5})).await?;
/// assert_eq!(done["n"], 6);
/// let done: Count = thread.invoke(Count::update().n(0)).await?.values()?;
/// assert_eq!(done.n, 7);
/// # anyhow::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Local {
    parts: Parts,
    /// What the services of threads need; none over foreign storages.
    services: Option<Arc<runs::Parts>>,
    /// The state that its threads share besides the storage.
    shared: Arc<Shared>,
}

/// The state that the threads of one [`Local`] share in this process.
#[derive(Default)]
struct Shared {
    /// Results of nodes.
    reuse: Arc<Results>,
    /// The thread of every run that is under way.
    running: Mutex<Vec<ThreadId>>,
}

/// Marks a thread as running until it is dropped.
struct Running(Arc<Shared>, ThreadId);

impl Running {
    fn new(shared: &Arc<Shared>, thread: ThreadId) -> Self {
        shared.running.lock().push(thread);
        Self(shared.clone(), thread)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = self.0.running.lock();
        if let Some(at) = running.iter().position(|thread| *thread == self.1) {
            running.swap_remove(at);
        }
    }
}

impl Local {
    /// Threads in other storages than the bundled ones.
    #[doc(hidden)]
    pub fn over(parts: Parts) -> Self {
        Self {
            parts,
            services: None,
            shared: Arc::default(),
        }
    }

    /// Threads in a private temporary file, which is removed when this value is dropped.
    ///
    /// # Errors
    /// Temporary files cannot be created.
    #[cfg(feature = "sqlite")]
    pub fn memory() -> Result<Self, Error> {
        let store = sqlite::Store::private().map_err(|error| Error::Open(error.to_string()))?;
        Ok(Self::of(store))
    }

    /// Threads in a SQLite database in the directory `path`, created when it is not there.
    ///
    /// # Errors
    /// The directory cannot be used, or another process uses it.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let store = sqlite::Store::open(sqlite::Options {
            path: path.into(),
            synchronous_off: false,
        })
        .map_err(|error| Error::Open(error.to_string()))?;
        Ok(Self::of(store))
    }

    /// Threads in a Postgres database, which is migrated to this version's schema first.
    ///
    /// # Errors
    /// The database cannot be reached or migrated.
    #[cfg(feature = "postgres")]
    pub async fn postgres(url: &str) -> Result<Self, Error> {
        let open = |error: postgres::Error| Error::Open(error.to_string());
        postgres::migrate(url).await.map_err(open)?;
        let options = postgres::Options::new(url);
        let store = postgres::Store::connect(options).await.map_err(open)?;
        Ok(Self::of(store))
    }

    fn of(store: impl runs::Storage) -> Self {
        let services = runs::Parts::over(Arc::new(store));
        let parts = Parts {
            saver: services.saver.clone(),
            tree: services.tree.clone(),
            items: Some(services.items.of(LOCAL_PRINCIPAL.into())),
        };
        Self {
            services: Some(Arc::new(services)),
            ..Self::over(parts)
        }
    }

    /// Lets items of long-term memory be found by meaning with this model, as `Server::embeddings` does for a server: of each item
    /// the texts at `fields` are embedded, paths such as `text` and `parts[*].text`, or `$` for all of it. It is for
    /// the threads that are made afterwards; items that were stored before are found once they are stored anew.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use backstitch::{Local, llm::Embeddings};
    ///
    /// fn searchable(model: Arc<dyn Embeddings>) -> anyhow::Result<Local> {
    ///     Ok(Local::memory()?.embeddings(model, &["text"])?)
    /// }
    /// ```
    ///
    /// # Errors
    /// A path that is none.
    pub fn embeddings(
        mut self,
        model: Arc<dyn Embeddings>,
        fields: &[&str],
    ) -> Result<Self, Error> {
        let embedder = store::Embedder::at(model, fields)
            .map_err(|reason| Error::Open(format!("embeddings: {reason}")))?;
        let Some(services) = &self.services else {
            let reason = "embeddings: the storage has no long-term memory of this library";
            return Err(Error::Open(reason.to_owned()));
        };
        let items = services.items.with_embedder(embedder);
        self.parts.items = Some(items.of(LOCAL_PRINCIPAL.into()));
        self.services = Some(Arc::new(runs::Parts {
            items,
            ..(**services).clone()
        }));
        Ok(self)
    }

    /// A new thread that runs `graph`; the first write creates it.
    pub fn thread(&self, graph: &Arc<Compiled>) -> Thread {
        self.thread_with(graph, ThreadId::mint())
    }

    /// The thread of this id, which runs `graph`; the first write creates it if it is not there.
    pub fn thread_with(&self, graph: &Arc<Compiled>, id: ThreadId) -> Thread {
        let services = self.services.clone();
        Thread::new(
            self.parts.clone(),
            services,
            self.shared.clone(),
            graph.clone(),
            id,
        )
    }

    /// Runs a graph without storing anything.
    pub async fn run_once(
        graph: &Arc<Compiled>,
        input: engine::Input,
        options: RunOptions,
    ) -> engine::Finished {
        let request = options.request(graph.clone(), input, None, None);
        Box::pin(engine::run(request, None)).await
    }
}

impl Parts {
    /// Takes over the writing to a thread, which is created if it is not there.
    async fn take(&self, id: ThreadId) -> Result<Slot, checkpoint::Error> {
        if let Some(slot) = self.tree.take_slot(id).await? {
            return Ok(slot);
        }
        let new = NewThread {
            id,
            metadata: Map::new(),
            owner: String::new(),
            if_exists: IfExists::DoNothing,
            ttl: None,
        };
        self.tree.create_thread(new).await?;
        let slot = self.tree.take_slot(id).await?;
        slot.ok_or(checkpoint::Error::Fenced)
    }
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            config: Default::default(),
            recursion_limit: None,
            at: None,
            inside: Default::default(),
            interrupt_before: None,
            interrupt_after: None,
            durability: Default::default(),
            run_ahead: Default::default(),
            run: None,
            sink: Arc::new(engine::Silent),
            tolerance: Default::default(),
            cancel: CancellationToken::new(),
        }
    }
}
