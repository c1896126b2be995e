//! The one harness for databases, server processes and foreign clients, used by every
//! integration test. It knows the servers as programs and the databases as tables, so that it
//! depends on nothing of the crate under test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a harness that cannot go on fails the test that called it"
)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "child processes live in real time, whatever the test does to its own clock"
)]

pub mod access;
pub mod client;
pub mod gate;
pub mod http2;
pub mod invariants;
pub mod memory;
pub mod node;
pub mod place;
pub mod postgres;
pub mod processor;
pub mod programs;
pub mod python;
pub mod routes;
pub mod server;
mod socket;
mod sqlite;
pub mod tables;
pub mod talk;
pub mod websocket;
