//! The conversation tree: threads, branches, tags, forks, the message index and events.

pub mod store;

pub use store::{IfExists, NewThread, Outcome, Store, Thread};
