//! Serving: the services start, the server listens, says so, and drains when it is asked to stop.

use std::sync::Arc;

use anyhow::Context;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    Checked,
    greeting::Greeting,
    hooks::Hooks,
    listen::{Stop, addresses, announce, bind},
    storages::{open, patience},
};
use crate::{cli::Serving, config::Settings, http, message, runs};

/// A server that neither works nor listens yet.
pub(super) struct Started {
    pub(super) services: http::Services,
    pub(super) greeting: Greeting,
    pub(super) options: http::Options,
    pub(super) drain: CancellationToken,
    pub(super) hooks: Hooks,
}

/// Opens the storage, and does what the program wants done at the start.
pub(super) async fn start(program: Checked, settings: Settings) -> anyhow::Result<Started> {
    let Checked {
        graphs,
        factories,
        author,
        own,
        mut hooks,
    } = program;
    anyhow::ensure!(
        own.authentication.is_none() || settings.api_keys.is_empty(),
        "BACKSTITCH_API_KEYS is set, but this program finds out by itself who sends a request: unset it"
    );
    let made = factories.iter().map(|(name, _)| name);
    let names = graphs.iter().map(|(name, _)| name).chain(made);
    let names: Vec<Arc<str>> = names.cloned().collect();
    message::set_most_of_new_id(settings.message_id_length);
    let author = author.with_defaults(&settings, &names)?;
    let author = author.with_embeddings(&settings)?;
    let graphs = author
        .sources(graphs, factories, settings.graph_timeout)
        .await?;
    let greeting = Greeting::new(&settings, &graphs, own.authentication.is_some());
    let (parts, keys) = open(&settings, author).await?;
    let drain = CancellationToken::new();
    let options = run_options(&settings);
    let services = http::Services::new(parts, keys, graphs, options, drain.clone());
    if let Err(error) = hooks.start().await {
        hooks.stop().await.ok();
        return Err(error);
    }
    Ok(Started {
        services,
        greeting,
        options: http_options(settings, own),
        drain,
        hooks,
    })
}

/// Serves the graphs until a signal or the caller stops it.
pub(super) async fn serve(
    program: Checked,
    settings: Settings,
    serving: Serving,
) -> anyhow::Result<()> {
    let authenticates = program.own.authentication.is_some();
    let addresses = addresses(&settings, authenticates).await?;
    let Started {
        services,
        greeting,
        options,
        drain,
        hooks,
    } = start(program, settings.clone()).await?;
    let mut stop = None;
    let served = async {
        services.start().await.context("the storage failed")?;
        let listener = bind(&settings, &addresses).await?;
        let local = listener.local_addr()?;
        let stop = stop.insert(match serving {
            Serving::Program => {
                let stop = Stop::signals()?;
                announce(&format!("listening on http://{local}"))?;
                greeting.print(local);
                stop
            }
            Serving::Inside { ready, stop } => {
                // Nobody waits for the address when the command has ended already.
                ready.send(local).ok();
                Stop::Caller(stop)
            }
        });
        let cut = CancellationToken::new();
        let server = http::Server::new(services.clone(), options, drain.clone(), cut.clone());
        let server = tokio::spawn(server.serve(listener));
        until_drained(stop, &services, server, drain, cut).await
    };
    let served = served.await;
    let stopped = match &mut stop {
        Some(stop) => unless_hurried(hooks.stop(), stop).await,
        None => hooks.stop().await,
    };
    served.and(stopped)
}

/// Waits until the server is asked to stop, and drains it.
async fn until_drained(
    stop: &mut Stop,
    services: &http::Services,
    server: JoinHandle<()>,
    drain: CancellationToken,
    cut: CancellationToken,
) -> anyhow::Result<()> {
    stop.requested().await;
    drain.cancel();
    tracing::info!("draining");
    let drained = async {
        services.runs().drain().await;
        // Of runs that end in time streams show the end; the others go on elsewhere.
        cut.cancel();
        server.await
    };
    Ok(unless_hurried(drained, stop).await?)
}

/// Does the last work, unless a signal comes meanwhile: who sends one more does not want to wait. What is
/// stored stays.
async fn unless_hurried<T>(work: impl Future<Output = T>, stop: &mut Stop) -> T {
    tokio::select! {
        done = work => done,
        signal = stop.signal() => {
            tracing::warn!("stopping at once");
            #[cfg(feature = "mcp")]
            crate::llm::mcp::end_all();
            std::process::exit(128 + signal.as_raw_value())
        }
    }
}

/// The options of the runs that the settings name.
fn run_options(settings: &Settings) -> runs::Options {
    runs::Options {
        lease: settings.lease,
        drain: settings.drain,
        poll: settings.poll,
        stream_memory: settings.memory_budget / 6,
        stream_retention: settings.stream_retention,
        stream_log: settings.stream_log,
        stream_log_share: settings.stream_log_share,
        patience: patience(settings),
        search_limit: settings.search_limit,
        slots: settings.slots,
        max_queued: settings.max_queued,
        known_waiting: settings.known_waiting,
        max_tasks: settings.max_tasks,
        run_ahead: settings.run_ahead,
        share: settings.share,
        state_memory: settings.memory_budget / 3,
        run_memory: settings.memory_budget / 6,
        thread_ttl: settings.thread_ttl,
        sweep_interval: settings.sweep_interval,
        ..runs::Options::default()
    }
}

/// The options of the HTTP server that the settings name.
fn http_options(settings: Settings, own: http::Own) -> http::Options {
    let keys = settings.api_keys.iter();
    let keys = http::Keys::new(keys.map(|one| (&*one.principal, one.key.reveal())));
    let is_open = keys.is_open() && own.authentication.is_none();
    for name in admins_without_key(&settings) {
        tracing::warn!(
            principal = name,
            "BACKSTITCH_ADMINS names a principal that has no key in BACKSTITCH_API_KEYS: nobody administers in this name"
        );
    }
    http::Options {
        max_streams: settings.max_streams,
        // A page that anybody may open must not use a key of the person who opens it.
        cors: settings.cors.unwrap_or(if is_open {
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
        body_pace: settings.body_pace,
        response_pace: settings.response_pace,
        share: settings.share,
        metadata: settings.metadata,
        max_connections: settings.max_connections,
        stall_timeout: settings.stall,
        stored_response: settings.stored_response,
        max_requests: settings.requests,
        connection_requests: settings.connection_requests,
        request_wait: settings.request_wait,
        keys,
        admins: settings
            .admins
            .iter()
            .map(|name| name.as_str().into())
            .collect(),
        webhooks: settings.webhooks,
        public_docs: settings.public_docs,
        public_metrics: settings.public_metrics,
        own,
        ..http::Options::default()
    }
}

/// Those who are to administer and could not say who they are. A server without keys takes everybody at their word, or
/// finds out by itself.
fn admins_without_key(settings: &Settings) -> impl Iterator<Item = &str> {
    let has_keys = !settings.api_keys.is_empty();
    let names = settings.admins.iter().map(String::as_str);
    names.filter(move |name| {
        has_keys && !settings.api_keys.iter().any(|one| &*one.principal == *name)
    })
}
