//! Turns graphs into a server: command line, storage, run service, HTTP, drain.

use std::{io::Write, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "openai")]
use crate::llm::openai;
use crate::{
    cli,
    config::{Settings, Storage},
    graph::Compiled,
    http, idempotency,
    runs::{self, Parts},
    storage::{postgres, sqlite},
    store,
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
        let named = std::env::var("OPENAI_MODEL").ok();
        let named = named.filter(|name| !name.is_empty());
        Some(openai::Client::new(
            base.as_deref().unwrap_or(openai::DEFAULT_BASE),
            key.as_ref().map_or("", |key| key.reveal()),
            named.as_deref().unwrap_or(openai::DEFAULT_MODEL),
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
            serve(self.graphs, settings).await
        };
        cli::run(serve, migrate).await
    }
}

async fn migrate(settings: Settings) -> anyhow::Result<()> {
    match &settings.storage {
        Storage::Postgres(url) => {
            let applied = postgres::migrate(url.reveal()).await?;
            tracing::info!(applied, "the database has the newest schema");
        }
        // Opening it brings it to the newest schema.
        Storage::Sqlite(_) | Storage::Memory => drop(open(&settings).await?),
    }
    Ok(())
}

/// The storage that the settings name, as the parts of the services and as the store of keys.
type Storages = (Parts, Arc<dyn idempotency::Store>);

/// The storage the settings name, in all its roles.
async fn open(settings: &Settings) -> anyhow::Result<Storages> {
    fn parts<T>(store: T) -> Storages
    where
        T: crate::checkpoint::Saver
            + crate::tree::Store
            + crate::tree::projection::Store
            + runs::Store
            + idempotency::Store
            + store::Store,
    {
        let store = Arc::new(store);
        let parts = Parts {
            saver: store.clone(),
            tree: store.clone(),
            runs: store.clone(),
            items: Some(Arc::new(store::Memory::over(store.clone()))),
            projections: store.clone(),
        };
        (parts, store)
    }
    Ok(match &settings.storage {
        Storage::Postgres(url) => {
            // Under an advisory lock: replicas may start at once.
            postgres::migrate(url.reveal()).await?;
            parts(postgres::Store::connect(postgres::Options::new(url.reveal())).await?)
        }
        Storage::Sqlite(folder) => {
            let options = sqlite::Options {
                path: folder.clone(),
                synchronous_off: false,
            };
            parts(tokio::task::spawn_blocking(move || sqlite::Store::open(options)).await??)
        }
        Storage::Memory => parts(tokio::task::spawn_blocking(sqlite::Store::private).await??),
    })
}

async fn serve(graphs: Vec<(Arc<str>, Arc<Compiled>)>, settings: Settings) -> anyhow::Result<()> {
    let (parts, keys) = open(&settings).await?;
    let drain = CancellationToken::new();
    let options = runs::Options {
        lease: settings.lease,
        drain: settings.drain,
        ..runs::Options::default()
    };
    let services = http::Services::new(parts, keys, graphs, options, drain.clone());
    services.start().await.context("the storage failed")?;
    let address = (settings.host.as_str(), settings.port);
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {}:{}; choose another port with PORT=... or --port",
            settings.host, settings.port
        )
    })?;
    let local = listener.local_addr()?;
    announce(&format!("listening on http://{local}"))?;
    let keys = settings.api_keys.iter();
    let keys = http::Keys::new(keys.map(|one| (&*one.principal, one.key.reveal())));
    let options = http::Options {
        // A page that anybody may open must not use a key of the person who opens it.
        cors: if keys.is_open() {
            http::Cors::Any
        } else {
            http::Cors::Origins(vec![])
        },
        keys,
        webhook_allow_loopback: settings.webhook_allow_loopback,
        // Responses about runs that are handed over come last.
        drain_limit: settings.drain + Duration::from_secs(2),
        ..http::Options::default()
    };
    let server =
        tokio::spawn(http::Server::new(services.clone(), options, drain.clone()).serve(listener));
    stop_requested().await?;
    tracing::info!("draining");
    drain.cancel();
    services.runs().drain().await;
    server.await?;
    Ok(())
}

/// Unlike `println!`, does not panic when stdout is closed.
fn announce(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

async fn stop_requested() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
