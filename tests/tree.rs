//! The conversation tree over HTTP, on both storages.
#![allow(clippy::unwrap_used, reason = "a panic is the failure of the test")]

mod compare;
mod events;
mod support;
