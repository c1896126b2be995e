//! The HTTP server: accepts connections, reads and checks requests, and writes responses and
//! event streams as LangGraph's Agent Server does.

mod assistants;
mod branches;
mod diff;
mod events;
mod forks;
mod idempotency;
mod members;
mod messages;
mod page;
mod parse;
mod render;
mod runs;
mod server;
mod services;
mod state;
mod store;
mod system;
mod tags;
mod threads;
mod tree_view;

#[cfg(test)]
mod tests;

pub use server::{auth::Keys, cors::Cors, hosts::Hosts, listener::Server, options::Options};
pub use services::Services;
