//! The conversation tree: threads, branches, tags, forks, the message index and events.

pub mod address;
pub mod base;
pub mod branch;
pub mod dangling;
pub mod diff;
pub mod draft;
pub mod error;
pub mod event;
pub mod fork;
pub mod index;
pub mod members;
pub mod messages;
pub mod outline;
pub mod projection;
pub mod prune;
pub mod read;
pub mod resolve;
pub mod rows;
pub mod search;
pub mod session;
pub mod store;
pub mod tag;

pub use address::{Address, Given, Target};
pub use error::{Error, Kind};
pub use index::Indexer;
pub use read::{Reader, State};
pub use resolve::{Base, Resolved, resolve};
pub use session::{Read, Tx};
pub use store::{Copied, IfExists, NewCopy, NewThread, Outcome, Store, Thread};
