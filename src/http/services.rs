//! The services that handlers call, each by the subject of its operations.

use crate::runs;

/// The services that handlers call. Cheap to clone.
#[derive(Clone)]
pub struct Services {
    runs: runs::Service,
}

impl Services {
    /// The services behind a server.
    pub fn new(runs: runs::Service) -> Self {
        Self { runs }
    }

    /// Runs: create, watch, join, cancel.
    pub fn runs(&self) -> &runs::Service {
        &self.runs
    }

    /// Threads and everything that belongs to one: state, messages, branches, events.
    pub fn threads(&self) -> &runs::Service {
        &self.runs
    }

    /// Requests with an idempotency key.
    pub fn idempotency(&self) -> &runs::Service {
        &self.runs
    }

    /// Assistants and their graphs.
    pub fn assistants(&self) -> &runs::Service {
        &self.runs
    }
}
