//! The services that handlers call, each by the subject of its operations.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    assistants,
    graph::Compiled,
    idempotency,
    runs::{self, Parts, Shared},
    threads,
};

/// The services that handlers call. Cheap to clone.
#[derive(Clone)]
pub struct Services {
    runs: runs::Service,
    threads: threads::Service,
    idempotency: idempotency::Service,
    assistants: assistants::Service,
}

impl Services {
    /// The services over `parts` and `keys`, with one assistant for each of `graphs`. They accept
    /// no new work once `drain` is cancelled.
    pub fn new(
        parts: Parts,
        keys: Arc<dyn idempotency::Store>,
        graphs: impl IntoIterator<Item = (Arc<str>, Arc<Compiled>)>,
        options: runs::Options,
        drain: CancellationToken,
    ) -> Self {
        let shared = Arc::new(Shared::new(parts, graphs, drain.clone()));
        let runs = runs::Service::new(shared.clone(), options);
        Self {
            threads: threads::Service::new(shared.clone(), runs.clone()),
            idempotency: idempotency::Service::new(keys, shared.worker(), drain),
            assistants: shared.assistants().clone(),
            runs,
        }
    }

    /// Lets the services work: runs are claimed, tables derived, expired keys deleted.
    ///
    /// # Errors
    /// The storage failed.
    pub async fn start(&self) -> Result<(), runs::Error> {
        self.runs.start().await?;
        self.threads.start();
        self.idempotency.start();
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

    /// Assistants and their graphs.
    pub fn assistants(&self) -> &assistants::Service {
        &self.assistants
    }
}
