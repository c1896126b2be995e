//! The conversation tree: threads, branches, tags, forks, the message index and events.

pub mod address;
pub mod branch;
pub mod chain;
pub mod dangling;
pub mod diff;
pub mod error;
pub mod event;
pub mod fork;
pub mod index;
pub mod load;
pub mod members;
pub mod messages;
pub mod metadata;
pub mod opening;
pub mod outline;
pub mod projection;
pub mod prune;
pub mod read;
pub mod resolve;
pub mod rollback;
pub mod search;
pub mod start;
pub mod store;
pub mod tag;
pub mod ttl;
pub mod usage;

pub use address::{Address, AddressFields, AddressTarget};
pub use error::{Error, ErrorKind};
pub use index::Indexer;
pub use read::{StateReader, ThreadState};
pub use resolve::{Base, Resolved, resolve};
pub use store::{
    read::Read,
    rows::Outcome,
    threads::{
        Copied, IfExists, NewCopy, NewThread, Store, Thread, ThreadWithCheckpoint, ThreadWithLevel,
    },
    tx::Tx,
};
