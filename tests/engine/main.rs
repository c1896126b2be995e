//! What the engine promises beyond the cases of the oracle: memory shared between threads, results
//! used again, mistakes that are told apart, and states that outlive the code that wrote them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is the failure of the test"
)]

mod agents;
mod assistants;
mod failures;
mod inside;
mod local;
#[cfg(feature = "mcp")]
mod mcp;
mod memory;
mod mistakes;
mod nested;
mod reuse;
mod routes;
mod storages;
mod versions;
