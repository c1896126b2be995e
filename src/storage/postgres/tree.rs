//! Rows of conversation trees.

mod changes;
mod index;
mod lookup;
mod members;
mod outline;
mod paths;
mod session;
