//! The HTTP server: accepts connections, reads and checks requests, and writes answers and
//! event streams as LangGraph's Agent Server does.

mod address;
mod api;
mod assistants;
mod auth;
mod backend;
mod body;
mod branches;
mod compare;
mod cors;
mod error;
mod events;
mod fields;
mod forks;
mod idempotency;
mod members;
mod messages;
mod options;
mod outline;
mod params;
mod render;
mod router;
mod runs;
mod server;
mod service;
mod socket;
mod sse;
mod state;
mod system;
mod tags;
mod threads;
mod wait;
mod webhook;

#[cfg(test)]
mod tests;

pub use api::{Api, Outcome, Streaming, Waiting, Xray, assistants as assistant_request};
pub use auth::Keys;
pub use cors::Cors;
pub use error::Error;
pub use options::Options;
pub use server::Server;
pub use sse::{FrameSource, OnDisconnect, frame};
