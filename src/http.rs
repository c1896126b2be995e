//! The HTTP server: accepts connections, reads and checks requests, and writes answers and
//! event streams as LangGraph's Agent Server does.

mod api;
mod assistants;
mod backend;
mod branches;
mod diff;
mod events;
mod forks;
mod idempotency;
mod members;
mod messages;
mod parse;
mod render;
mod runs;
mod server;
mod state;
mod system;
mod tags;
mod threads;
mod tree_view;

#[cfg(test)]
mod tests;

pub use api::{Api, Outcome, Streaming, Waiting, Xray, assistants as assistant_request};
pub use server::{
    auth::Keys, cors::Cors, error::Error, listener::Server, options::Options, sse::OnDisconnect,
};
