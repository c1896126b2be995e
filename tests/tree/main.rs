//! The conversation tree over HTTP, on both storages.
#![allow(clippy::unwrap_used, reason = "a panic is the failure of the test")]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "child processes live in real time"
)]

mod branches;
mod compare;
mod depth;
mod events;
mod forks;
mod holds;
mod index;
mod lifetime;
mod lineage;
mod members;
mod messages;
mod model;
mod pruned;
mod refusals;
mod scenarios;
