//! The run service: create, claim, execute, finish, recover.

pub mod error;
pub mod request;
pub mod store;
pub mod view;

pub use error::Error;
pub use store::{Claimed, Created, Finish, NewRun, Run, Status, Store, Strategy};
