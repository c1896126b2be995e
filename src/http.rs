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

/// Bodies of requests and responses, of any kind.
pub use hyper::body::Body as HttpBody;
pub use server::{
    auth::Keys,
    authenticate::Authentication,
    bodies::{BoxError, RequestBody, ResponseBody},
    cors::Cors,
    embedded::{Embedded, Peer},
    foreign::{Foreign, Next},
    hosts::Hosts,
    listener::Server,
    options::Options,
    own::Own,
    principal::{Principal, Refused},
};
pub use services::Services;

/// Adds routes of the program that hide none of this server.
///
/// # Errors
/// A prefix that is no path, that would hide a route, or that has routes already.
pub fn add_routes(
    own: &mut Own,
    prefix: &str,
    service: Foreign,
    is_public: bool,
) -> Result<(), String> {
    let paths = routes::TABLE.iter().map(|route| route.path);
    own.add_routes(prefix, service, is_public, paths)
}
