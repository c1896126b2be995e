//! Turns graphs into a server: command line, storage, run service, HTTP, drain.

use std::{collections::BTreeMap, io::Write, net::SocketAddr, process::ExitCode, sync::Arc};

use anyhow::Context;
use tokio::{
    net::{TcpListener, lookup_host},
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

#[cfg(feature = "openai")]
use crate::llm::openai;
use crate::{
    assistants, cli,
    config::{Settings, Storage},
    contention::Patience,
    crons,
    graph::Compiled,
    http, idempotency,
    llm::Embeddings,
    runs::{self, Parts},
    storage::{postgres, sqlite},
    store, stream,
    value::Value,
    webhooks,
};

/// A server for graphs, built and run in the `main` of a graph author.
///
/// ```no_run
/// use backstitch::{prelude::*, Server};
///
/// #[derive(State)]
/// struct Greeting {
///     name: String,
///     text: Option<String>,
/// }
///
/// async fn greet(state: Greeting) -> Update<Greeting> {
///     Greeting::update().text(format!("Hello {}!", state.name))
/// }
///
/// #[tokio::main]
/// async fn main() -> std::process::ExitCode {
///     Server::new()
///         .graph("greeter", Graph::<Greeting>::new().node("greet", greet).edge(START, "greet").build())
///         .run()
///         .await
/// }
/// ```
#[derive(Default)]
pub struct Server {
    graphs: Vec<(Arc<str>, Arc<Compiled>)>,
    problems: Vec<String>,
    notices: Vec<String>,
    shared: Vec<store::Namespace>,
    defaults: BTreeMap<Arc<str>, assistants::Defaults>,
    embedder: Option<store::Embedder>,
}

impl Server {
    /// A server without graphs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a graph under the name clients use as `assistant_id`. A graph that did not
    /// build is reported when the server starts, with all its problems.
    pub fn graph<E: std::fmt::Display>(
        mut self,
        name: impl Into<Arc<str>>,
        graph: Result<Arc<Compiled>, E>,
    ) -> Self {
        let name = name.into();
        if self.graphs.iter().any(|(other, _)| *other == name) {
            self.problems.push(format!("two graphs are named `{name}`"));
        }
        match graph {
            Ok(graph) => self.graphs.push((name, graph)),
            Err(error) => self.problems.push(format!("graph `{name}`: {error}")),
        }
        self
    }

    /// Lets runs of a graph have this config and this context by default: `config` as requests have
    /// it (`tags`, `recursion_limit`, `configurable`), `context` a map, and not both
    /// `configurable` and `context`. The variable `LANGGRAPH_CONFIG` wins.
    pub fn graph_defaults(
        mut self,
        graph: impl Into<Arc<str>>,
        config: Value,
        context: Value,
    ) -> Self {
        let graph = graph.into();
        match assistants::Defaults::of(&config, &context) {
            Ok(defaults) => drop(self.defaults.insert(graph, defaults)),
            Err(reason) => self
                .problems
                .push(format!("defaults of graph `{graph}`: {reason}")),
        }
        self
    }

    /// Makes what long-term memory has below this prefix of namespaces common to all principals.
    /// Everything else belongs to the principal whose request or run stored it.
    pub fn shared_memory(mut self, prefix: &[&str]) -> Self {
        let prefix: store::Namespace = prefix.iter().map(|label| (*label).to_owned()).collect();
        if let Err(reason) = store::namespace::check_new(&prefix, "") {
            self.problems
                .push(format!("shared memory {prefix:?}: {reason}"));
        }
        self.shared.push(prefix);
        self
    }

    /// Lets items of long-term memory be searched by meaning with this model. Of an item whose writer
    /// names no `index` the texts at `fields` are embedded: paths such as `text` and `parts[*].text`, or
    /// `$` for all of it. The variable `BACKSTITCH_EMBEDDING_MODEL` wins.
    pub fn embeddings(mut self, model: Arc<dyn Embeddings>, fields: &[&str]) -> Self {
        let parsed = fields.iter().map(|field| store::field::Field::parse(field));
        match parsed.collect() {
            Ok(fields) => self.embedder = Some(store::Embedder::new(model, fields)),
            Err(reason) => self.problems.push(format!("embeddings: {reason}")),
        }
        self
    }

    /// Logs this line when the server starts, for example which model the graphs use.
    pub fn notice(mut self, line: impl Into<String>) -> Self {
        self.notices.push(line.into());
        self
    }

    /// The chat model that this process's settings name: a server that speaks OpenAI's protocol at
    /// `OPENAI_BASE_URL`, or OpenAI's own with `OPENAI_API_KEY`, and its model `OPENAI_MODEL`.
    /// `None` when neither variable, flag nor line of `backstitch.toml` is set, or when the settings
    /// cannot be read, which [`run`](Server::run) reports.
    ///
    /// # Errors
    /// As [`Client::new`](openai::Client::new).
    #[cfg(feature = "openai")]
    pub fn model_of_settings() -> Option<Result<openai::Client, crate::llm::Error>> {
        let settings = cli::parse(std::env::args_os()).ok()?.settings;
        let (key, base) = (settings.openai_api_key, settings.openai_base_url);
        if key.is_none() && base.is_none() {
            return None;
        }
        Some(openai::Client::new(
            base.as_deref().unwrap_or(openai::DEFAULT_BASE),
            key.as_ref().map_or("", |key| key.reveal()),
            settings
                .openai_model
                .as_deref()
                .unwrap_or(openai::DEFAULT_MODEL),
        ))
    }

    /// Runs the subcommand of the command line, by default: serves until SIGTERM or SIGINT, then
    /// drains. The first line on stdout is `listening on http://HOST:PORT`.
    pub async fn run(self) -> ExitCode {
        let serve = async move |settings: Settings| {
            if !self.problems.is_empty() {
                anyhow::bail!("{}", self.problems.join("\n"));
            }
            for notice in &self.notices {
                tracing::info!("{notice}");
            }
            let authors = Author {
                shared: self.shared,
                defaults: self.defaults,
                embedder: self.embedder,
            };
            serve(self.graphs, authors, settings).await
        };
        cli::run(serve, migrate).await
    }
}

/// What the author of the graphs decided about more than one of them.
#[derive(Default)]
struct Author {
    shared: Vec<store::Namespace>,
    defaults: BTreeMap<Arc<str>, assistants::Defaults>,
    embedder: Option<store::Embedder>,
}

impl Author {
    /// Puts the embedding model of the settings in place of the author's.
    fn with_embeddings(mut self, settings: &Settings) -> anyhow::Result<Self> {
        let Some(model) = &settings.embedding_model else {
            return Ok(self);
        };
        #[cfg(feature = "openai")]
        {
            let base = settings.openai_base_url.as_deref();
            let key = settings
                .openai_api_key
                .as_ref()
                .map_or("", |key| key.reveal());
            let base = base.unwrap_or(openai::DEFAULT_BASE);
            let model = openai::EmbeddingModel::new(base, key, model.as_str())?;
            let fields = settings.embedding_fields.clone();
            self.embedder = Some(store::Embedder::new(Arc::new(model), fields));
            Ok(self)
        }
        #[cfg(not(feature = "openai"))]
        {
            self.embedder = None;
            anyhow::bail!(
                "BACKSTITCH_EMBEDDING_MODEL is `{model}`, but this program was built without the \
                 feature `openai`"
            )
        }
    }

    /// Puts the defaults of the settings over the author's, for graphs that exist.
    fn with_defaults(
        mut self,
        settings: &Settings,
        graphs: &[(Arc<str>, Arc<Compiled>)],
    ) -> anyhow::Result<Self> {
        self.defaults.extend(settings.graph_defaults.clone());
        for name in self.defaults.keys() {
            let is_known = graphs.iter().any(|(graph, _)| graph == name);
            anyhow::ensure!(
                is_known,
                "there are defaults for a graph `{name}`, which is not registered"
            );
        }
        Ok(self)
    }
}

async fn migrate(settings: Settings) -> anyhow::Result<()> {
    match &settings.storage {
        Storage::Postgres(url) => {
            let applied = postgres::migrate(url.reveal()).await?;
            tracing::info!(applied, "the database has the newest schema");
        }
        // Opening it brings it to the newest schema.
        Storage::Sqlite(_) | Storage::Memory => drop(open(&settings, Author::default()).await?),
    }
    Ok(())
}

/// The storage that the settings name, as the parts of the services and as the store of keys.
type Storages = (Parts, Arc<dyn idempotency::Store>);

fn patience(settings: &Settings) -> Patience {
    Patience {
        waiting: settings.max_waiting,
        ..Patience::default()
    }
}

/// The storage the settings name, in all its roles.
async fn open(settings: &Settings, author: Author) -> anyhow::Result<Storages> {
    fn parts<T>(store: T, settings: &Settings, author: Author) -> Storages
    where
        T: crate::checkpoint::Saver
            + crate::tree::Store
            + crate::tree::projection::Store
            + runs::Store
            + idempotency::Store
            + store::Store
            + assistants::Store
            + crons::Store
            + stream::log::Log
            + webhooks::outbox::Store,
    {
        let store = Arc::new(store);
        let parts = Parts {
            saver: store.clone(),
            tree: store.clone(),
            runs: store.clone(),
            crons: crons::Service::new(
                store.clone(),
                settings.crons.clone(),
                crons::Clock::default(),
                patience(settings),
            ),
            items: store::Service::new(
                store.clone(),
                settings.items,
                author.shared,
                author.embedder,
            ),
            log: store.clone(),
            projections: store.clone(),
            assistants: store.clone(),
            defaults: author.defaults,
            assistant_limits: settings.assistants,
            outbox: store.clone(),
            sender: webhooks::Sender::new(
                settings.webhooks.clone(),
                settings.webhook_secret.clone(),
            ),
        };
        (parts, store)
    }
    let limit = settings.read_limit;
    Ok(match &settings.storage {
        Storage::Postgres(url) => {
            // Under an advisory lock: replicas may start at once.
            postgres::migrate(url.reveal()).await?;
            let options = postgres::Options {
                patience: patience(settings),
                read_limit: settings.read_limit,
                notifications: settings.notifications,
                ..postgres::Options::new(url.reveal()).with_connections(settings.connections)
            };
            let store = postgres::Store::connect(options).await?;
            parts(store, settings, author)
        }
        Storage::Sqlite(folder) => {
            let options = sqlite::Options {
                path: folder.clone(),
                synchronous_off: false,
            };
            let store = tokio::task::spawn_blocking(move || sqlite::Store::open(options)).await??;
            parts(store.with_read_limit(limit), settings, author)
        }
        Storage::Memory => {
            let store = tokio::task::spawn_blocking(sqlite::Store::private).await??;
            parts(store.with_read_limit(limit), settings, author)
        }
    })
}

async fn serve(
    graphs: Vec<(Arc<str>, Arc<Compiled>)>,
    author: Author,
    settings: Settings,
) -> anyhow::Result<()> {
    let addresses = addresses(&settings).await?;
    let author = author.with_defaults(&settings, &graphs)?;
    let author = author.with_embeddings(&settings)?;
    let (parts, keys) = open(&settings, author).await?;
    let drain = CancellationToken::new();
    let options = runs::Options {
        lease: settings.lease,
        drain: settings.drain,
        poll: settings.poll,
        stream_memory: settings.memory_budget / 3,
        stream_retention: settings.stream_retention,
        stream_log: settings.stream_log,
        patience: patience(&settings),
        slots: settings.slots,
        max_queued: settings.max_queued,
        max_tasks: settings.max_tasks,
        run_ahead: settings.run_ahead,
        state_memory: settings.memory_budget / 3,
        thread_ttl: settings.thread_ttl,
        sweep_interval: settings.sweep_interval,
        ..runs::Options::default()
    };
    let services = http::Services::new(parts, keys, graphs, options, drain.clone());
    services.start().await.context("the storage failed")?;
    let listener = TcpListener::bind(&*addresses).await.with_context(|| {
        format!(
            "cannot listen on {}:{}; choose another port with PORT=... or --port",
            settings.host, settings.port
        )
    })?;
    let local = listener.local_addr()?;
    let mut stop = Stop::listen()?;
    announce(&format!("listening on http://{local}"))?;
    let keys = settings.api_keys.iter();
    let keys = http::Keys::new(keys.map(|one| (&*one.principal, one.key.reveal())));
    let options = http::Options {
        max_streams: settings.max_streams,
        // A page that anybody may open must not use a key of the person who opens it.
        cors: settings.cors.unwrap_or(if keys.is_open() {
            http::Cors::Loopback
        } else {
            http::Cors::Origins(vec![])
        }),
        hosts: settings.hosts,
        body_memory: settings.memory_budget / 3,
        page_bytes: settings.page_bytes,
        body_values: settings.body_values,
        body_limit: settings.body_limit,
        edit_limit: settings.edit_limit,
        body_grace: settings.body_grace,
        stall_timeout: settings.stall,
        stored_response: settings.stored_response,
        max_requests: settings.requests,
        connection_requests: settings.connection_requests,
        keys,
        admins: settings
            .admins
            .iter()
            .map(|name| name.as_str().into())
            .collect(),
        webhooks: settings.webhooks,
        public_docs: settings.public_docs,
        public_metrics: settings.public_metrics,
        ..http::Options::default()
    };
    let cut = CancellationToken::new();
    let server = http::Server::new(services.clone(), options, drain.clone(), cut.clone());
    let server = tokio::spawn(server.serve(listener));
    stop.requested().await;
    drain.cancel();
    tracing::info!("draining");
    let drained = async {
        services.runs().drain().await;
        // Of runs that end in time streams show the end; the others go on elsewhere.
        cut.cancel();
        server.await
    };
    tokio::select! {
        ended = drained => Ok(ended?),
        // Whoever asks again does not want to wait. What is stored stays.
        signal = stop.requested() => {
            tracing::warn!("stopping at once");
            #[cfg(feature = "mcp")]
            crate::llm::mcp::end_all();
            std::process::exit(128 + signal.as_raw_value())
        }
    }
}

/// The addresses to listen on. Without keys everybody who reaches them may do everything, so that
/// they must be those of this machine alone unless the settings say that it is meant.
async fn addresses(settings: &Settings) -> anyhow::Result<Vec<SocketAddr>> {
    let named = (settings.host.as_str(), settings.port);
    let found = lookup_host(named).await;
    let found = found.with_context(|| format!("cannot find the address of {}", settings.host))?;
    let found: Vec<_> = found.collect();
    let is_open = settings.api_keys.is_empty() && !settings.allow_open;
    if is_open && !found.iter().all(|one| one.ip().is_loopback()) {
        anyhow::bail!(
            "{} can be reached from other machines, and without keys everybody who reaches it may \
             do everything: set BACKSTITCH_API_KEYS, or BACKSTITCH_ALLOW_OPEN=true if it is meant \
             (then BACKSTITCH_HOSTS lists the names that clients call it by)",
            settings.host
        );
    }
    Ok(found)
}

/// Unlike `println!`, does not panic when stdout is closed.
fn announce(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// The signals that stop the server.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for one of them.
    async fn requested(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
        }
    }
}
