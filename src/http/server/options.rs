//! Limits and switches of the server.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{auth::Keys, cors::Cors, hosts::Hosts, own::Own, progress::Slowest};
use crate::{contention::shares::Percent, tree::metadata, webhooks::Policy};

/// Limits and switches of the server. [`Options::default`] is fit for production.
#[derive(Clone, Debug)]
pub struct Options {
    /// Largest request body in bytes.
    pub body_limit: usize,
    /// Largest body of a state edit in bytes.
    pub edit_limit: usize,
    /// From the connection to the end of the first request's head, and from the first byte of
    /// any later head to its end.
    pub header_timeout: Duration,
    /// Most values in the JSON of a request body.
    pub body_values: usize,
    /// Most bytes of a response that are stored for an idempotency key.
    pub stored_response: usize,
    /// Bytes that the bodies of requests in progress may take.
    pub body_memory: usize,
    /// Bytes of content at which pages of messages, of events and of forks end.
    pub page_bytes: usize,
    /// How long a body may take before it must have come at its slowest pace.
    pub body_grace: Duration,
    /// That pace, in bytes a second.
    pub body_pace: usize,
    /// The slowest pace at which a client may take a response of known size, in bytes a second, once `stall_timeout` is
    /// over.
    pub response_pace: usize,
    /// How much of the requests, of the streams and of the memory for bodies one principal may have at a time.
    pub share: Percent,
    /// How much metadata threads, runs, assistants and crons may have.
    pub metadata: metadata::Limits,
    /// How long a connection without requests stays open.
    pub idle_timeout: Duration,
    /// How long a client may read nothing while the server writes to it.
    pub stall_timeout: Duration,
    /// Connections at the same time; more wait to be accepted.
    pub max_connections: usize,
    /// Handlers that run at the same time; more requests wait.
    pub max_requests: usize,
    /// Those of one connection.
    pub connection_requests: usize,
    /// How long a request may wait to be worked on.
    pub request_wait: Duration,
    /// Event streams and deferred responses at the same time; more are refused with 503.
    pub max_streams: usize,
    /// How often a silent stream emits a heartbeat.
    pub heartbeat: Duration,
    /// How long requests may take to end after the drain: responses about runs that are handed over
    /// come last.
    pub last_responses: Duration,
    /// Which web pages may call.
    pub cors: Cors,
    /// By which names clients may call while no key is needed.
    pub hosts: Hosts,
    /// Keys that clients must present; without any everybody may call.
    pub keys: Keys,
    /// Principals who may administer; while there are no keys everybody may.
    pub admins: BTreeSet<Arc<str>>,
    /// Which URLs webhooks may have.
    pub webhooks: Arc<Policy>,
    /// Let everybody read the OpenAPI document and its page, also without a key.
    pub public_docs: bool,
    /// Let everybody read the metrics, also without a key.
    pub public_metrics: bool,
    /// What the program that serves adds.
    pub own: Own,
}

impl Options {
    /// Whether everybody may call.
    pub fn is_open(&self) -> bool {
        self.keys.is_open() && self.own.authentication.is_none()
    }

    /// How slowly clients may take responses.
    pub fn slowest(&self) -> Slowest {
        Slowest {
            stall: self.stall_timeout,
            pace: self.response_pace,
        }
    }

    /// Whether a setting lets everybody read what has this path.
    pub fn is_public(&self, path: &str) -> bool {
        match path {
            "/docs" | "/openapi.json" => self.public_docs,
            "/metrics" => self.public_metrics,
            _ => false,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            body_limit: 4 << 20,
            edit_limit: 16 << 20,
            header_timeout: Duration::from_secs(10),
            body_values: 200_000,
            stored_response: 1 << 20,
            body_memory: 256 << 20,
            page_bytes: 8 << 20,
            body_grace: Duration::from_secs(30),
            body_pace: 64_000,
            response_pace: 64_000,
            share: Percent::default(),
            metadata: metadata::Limits::default(),
            idle_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(30),
            max_connections: 20_000,
            max_requests: 512,
            connection_requests: 16,
            request_wait: Duration::from_secs(10),
            max_streams: 10_000,
            heartbeat: Duration::from_secs(5),
            last_responses: Duration::from_secs(3),
            cors: Cors::Loopback,
            hosts: Hosts::Listed(vec![]),
            keys: Keys::default(),
            admins: BTreeSet::new(),
            webhooks: Arc::default(),
            public_docs: false,
            public_metrics: false,
            own: Own::default(),
        }
    }
}
