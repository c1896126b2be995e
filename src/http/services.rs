//! The services that handlers call, each by the subject of its operations.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    assistants, crons, idempotency,
    runs::{self, Parts, Shared, shared::memory::States},
    store, threads,
};

/// The services that handlers call. Cheap to clone.
#[derive(Clone)]
pub struct Services {
    runs: runs::Service,
    threads: threads::Service,
    idempotency: idempotency::Service,
    assistants: assistants::Service,
    items: store::Service,
    crons: crons::Service,
    drain: CancellationToken,
}

impl Services {
    /// The services over `parts` and `keys`, with one assistant for each of `graphs`. They accept
    /// no new work once `drain` is cancelled.
    pub fn new(
        parts: Parts,
        keys: Arc<dyn idempotency::Store>,
        graphs: impl IntoIterator<Item = (Arc<str>, impl Into<assistants::Source>)>,
        options: runs::Options,
        drain: CancellationToken,
    ) -> Self {
        let items = parts.items.clone();
        let crons = parts.crons.clone();
        // Retained states are a part of what large states may take.
        let cache_bytes = options.state_memory / 4;
        let (patience, poll) = (options.patience, options.poll);
        let memory = (
            States::with_share(options.state_memory, options.share),
            cache_bytes,
        );
        let shared = Shared::new(parts, graphs, drain.clone(), patience, memory, poll);
        let shared = Arc::new(shared);
        let runs = runs::Service::new(shared.clone(), options);
        Self {
            threads: threads::Service::new(shared.clone(), runs.clone()),
            idempotency: idempotency::Service::new(keys, shared.worker(), drain.clone()),
            assistants: shared.assistants().clone(),
            items,
            crons,
            drain,
            runs,
        }
    }

    /// Lets the services work: runs are claimed, tables derived, expired keys deleted.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn start(&self) -> Result<(), runs::Error> {
        // Before clients are told of them.
        let written = self.assistants.start().await;
        written.map_err(runs::Error::from)?;
        self.runs.start().await?;
        self.threads.start();
        self.idempotency.start();
        self.items.start(self.drain.clone());
        if self.crons.fires() {
            self.runs.start_crons(super::crons::request_of);
        }
        Ok(())
    }

    /// Runs: create, watch, join, cancel.
    pub fn runs(&self) -> &runs::Service {
        &self.runs
    }

    /// Threads and everything that belongs to one: state, messages, branches, events.
    pub fn threads(&self) -> &threads::Service {
        &self.threads
    }

    /// Requests with an idempotency key.
    pub fn idempotency(&self) -> &idempotency::Service {
        &self.idempotency
    }

    /// Long-term memory, as clients and nodes share it.
    pub fn items(&self) -> &store::Service {
        &self.items
    }

    /// Schedules by which runs are created.
    pub fn crons(&self) -> &crons::Service {
        &self.crons
    }

    /// Assistants and their graphs.
    pub fn assistants(&self) -> &assistants::Service {
        &self.assistants
    }
}
