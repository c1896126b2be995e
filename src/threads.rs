//! Threads: their state, history and messages, their branches, tags, forks and members, their
//! events and lists, and how they are created, copied, pruned and deleted.

pub mod branches;
pub mod diff;
pub mod error;
pub mod events;
pub mod forks;
pub mod lifecycle;
mod members;
pub mod messages;
mod projector;
pub mod protocol;
pub mod request;
pub mod search;
mod service;
pub mod state;
mod stream;
mod sweep;
mod tags;
pub mod tree_view;
mod usage;

pub use error::Error;
pub(crate) use error::Result;
pub use service::Service;
