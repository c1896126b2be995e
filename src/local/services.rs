//! The services of threads over a bundled storage: those that requests over HTTP go through.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::{
    contention::Patience,
    graph::Compiled,
    runs::{self, Shared, shared::memory::States},
    threads,
};

/// Bytes of decoded checkpoints that the services of a thread retain.
const CACHE_BYTES: usize = 1 << 20;
/// The name of the one graph.
const GRAPH: &str = "local";

/// The service of threads for a program that runs `graph` on them by itself. It does no work of its
/// own: nothing is claimed, derived or swept.
pub(super) fn threads(parts: &runs::Parts, graph: &Arc<Compiled>) -> threads::Service {
    let options = runs::Options::default();
    let graphs = [(Arc::from(GRAPH), graph.clone())];
    let memory = States::with_share(options.state_memory, options.share);
    let shared = Shared::new(
        parts.clone(),
        graphs,
        CancellationToken::new(),
        Patience::default(),
        (memory, CACHE_BYTES),
        Duration::from_secs(1),
    );
    let shared = Arc::new(shared.with_only_graph(GRAPH));
    threads::Service::new(shared.clone(), runs::Service::new(shared, options))
}
