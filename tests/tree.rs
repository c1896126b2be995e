//! The conversation tree over HTTP, on both storages.
#![allow(clippy::unwrap_used, reason = "a panic is the failure of the test")]

#[path = "tree/compare.rs"]
mod compare;
#[path = "tree/events.rs"]
mod events;
#[path = "tree/messages.rs"]
mod messages;
mod support;
