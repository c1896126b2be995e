//! Limits and switches of the server.

use std::time::Duration;

use super::{auth::Keys, cors::Cors};

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
    /// How long a body may take before it must have come at 1 kB/s.
    pub body_grace: Duration,
    /// How long a connection without requests stays open.
    pub idle_timeout: Duration,
    /// How long a client may read nothing while the server writes to it.
    pub stall_timeout: Duration,
    /// Connections at the same time; more wait to be accepted.
    pub max_connections: usize,
    /// Event streams and deferred responses at the same time; more are refused with 503.
    pub max_streams: usize,
    /// How often a silent stream emits a heartbeat.
    pub heartbeat: Duration,
    /// How long requests may take to end once the server drains.
    pub drain_limit: Duration,
    /// Which web pages may call.
    pub cors: Cors,
    /// Keys that clients must present; without any everybody may call.
    pub keys: Keys,
    /// Allow webhooks to loopback and private addresses.
    pub webhook_allow_loopback: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            body_limit: 4 << 20,
            edit_limit: 16 << 20,
            header_timeout: Duration::from_secs(10),
            body_grace: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(30),
            max_connections: 20_000,
            max_streams: 10_000,
            heartbeat: Duration::from_secs(5),
            drain_limit: Duration::from_secs(30),
            cors: Cors::Any,
            keys: Keys::default(),
            webhook_allow_loopback: false,
        }
    }
}
