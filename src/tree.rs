//! The conversation tree: threads, branches, tags, forks, the message index and events.

pub mod base;
pub mod read;
pub mod store;

pub use read::{Reader, State};
pub use store::{IfExists, NewThread, Outcome, Store, Thread};
