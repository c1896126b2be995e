//! The HTTP server: accepts connections, reads and checks requests, and writes responses and
//! event streams as LangGraph's Agent Server does.

mod a2a;
mod assistants;
mod branches;
mod crons;
mod diff;
mod docs;
mod events;
mod forks;
mod idempotency;
mod json_rpc;
mod mcp;
mod members;
mod messages;
mod metrics;
mod openapi;
mod page;
mod parse;
mod protocol;
mod render;
mod routes;
mod runs;
mod server;
mod services;
mod start_page;
mod state;
mod store;
mod system;
mod tags;
mod threads;
mod tree_view;
#[allow(
    dead_code,
    reason = "the types describe what handlers read and write field by field"
)]
mod wire;

#[cfg(test)]
mod tests;

pub use server::{auth::Keys, cors::Cors, hosts::Hosts, listener::Server, options::Options};
pub use services::Services;
