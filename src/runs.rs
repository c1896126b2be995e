//! The run service: create, claim, execute, finish, recover.

pub mod request;
pub mod store;

pub use store::{Claimed, Created, Finish, NewRun, Run, Status, Store, Strategy};
