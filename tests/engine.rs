//! What the engine promises beyond the cases of the oracle: memory shared between threads, results
//! used again, mistakes that are told apart, and states that outlive the code that wrote them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is the failure of the test"
)]

#[path = "engine/assistants.rs"]
mod assistants;
#[path = "engine/failures.rs"]
mod failures;
#[path = "engine/inside.rs"]
mod inside;
#[path = "engine/memory.rs"]
mod memory;
#[path = "engine/mistakes.rs"]
mod mistakes;
#[path = "engine/nested.rs"]
mod nested;
#[path = "engine/reuse.rs"]
mod reuse;
#[path = "engine/storages.rs"]
mod storages;
mod support;
#[path = "engine/versions.rs"]
mod versions;
