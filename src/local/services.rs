//! The services of threads over a bundled storage: those that requests over HTTP go through.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::{
    assistants,
    checkpoint::Saver,
    contention::Patience,
    crons,
    graph::Compiled,
    runs::{self, Shared},
    store, stream, threads, tree, webhooks,
};

/// Bytes of decoded checkpoints that the services of a thread retain.
const CACHE_BYTES: usize = 1 << 20;
/// The name of the one graph.
const GRAPH: &str = "local";

/// A storage in all its roles.
pub(super) trait Storage:
    Saver
    + tree::Store
    + tree::projection::Store
    + runs::Store
    + store::Store
    + assistants::Store
    + crons::Store
    + stream::log::Log
    + webhooks::outbox::Store
{
}

impl<T> Storage for T where
    T: Saver
        + tree::Store
        + tree::projection::Store
        + runs::Store
        + store::Store
        + assistants::Store
        + crons::Store
        + stream::log::Log
        + webhooks::outbox::Store
{
}

/// What the services need, with the defaults of a server.
pub(super) fn parts<T: Storage>(store: Arc<T>) -> runs::Parts {
    runs::Parts {
        saver: store.clone(),
        tree: store.clone(),
        runs: store.clone(),
        #[cfg(feature = "server")]
        crons: crons::Service::new(
            store.clone(),
            crons::Options::default(),
            crons::Clock::default(),
            Patience::default(),
        ),
        items: store::Service::new(store.clone(), store::Limits::default(), Vec::new(), None),
        log: store.clone(),
        projections: store.clone(),
        assistants: store.clone(),
        defaults: BTreeMap::new(),
        assistant_limits: assistants::Limits::default(),
        // Graphs come as they are.
        graph_making: Duration::ZERO,
        outbox: store,
        #[cfg(feature = "server")]
        sender: webhooks::Sender::new(Arc::default(), None),
    }
}

/// The service of threads for a program that runs `graph` on them by itself. It does no work of its
/// own: nothing is claimed, derived or swept.
pub(super) fn threads(parts: &runs::Parts, graph: &Arc<Compiled>) -> threads::Service {
    let options = runs::Options::default();
    let graphs = [(Arc::from(GRAPH), graph.clone())];
    let shared = Shared::new(
        parts.clone(),
        graphs,
        CancellationToken::new(),
        Patience::default(),
        CACHE_BYTES,
        Duration::from_secs(1),
    );
    let shared = Arc::new(shared.with_only_graph(GRAPH));
    threads::Service::new(shared.clone(), runs::Service::new(shared, options))
}
