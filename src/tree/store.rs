//! What the tree needs of a storage: rows to read, a transaction to change them in, and operations
//! on whole threads. The rules live in this room, once for every storage; a storage knows rows only.

pub mod read;
pub mod rows;
pub mod threads;
pub mod tx;

pub use read::Read;
pub use rows::*;
pub use threads::Thread;
pub use tx::{InsertBranch, InsertFork, SharedInside, Tx};
