//! The conversation tree over HTTP, on both storages.
#![allow(clippy::unwrap_used, reason = "a panic is the failure of the test")]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "child processes live in real time"
)]

mod support;

#[path = "tree/branches.rs"]
mod branches;
#[path = "tree/compare.rs"]
mod compare;
#[path = "tree/depth.rs"]
mod depth;
#[path = "tree/events.rs"]
mod events;
#[path = "tree/forks.rs"]
mod forks;
#[path = "tree/holds.rs"]
mod holds;
#[path = "tree/index.rs"]
mod index;
#[path = "tree/invariants.rs"]
mod invariants;
#[path = "tree/lifetime.rs"]
mod lifetime;
#[path = "tree/lineage.rs"]
mod lineage;
#[path = "tree/members.rs"]
mod members;
#[path = "tree/messages.rs"]
mod messages;
#[path = "tree/model.rs"]
mod model;
#[path = "tree/pruned.rs"]
mod pruned;
#[path = "tree/refusals.rs"]
mod refusals;
#[path = "tree/scenarios.rs"]
mod scenarios;
