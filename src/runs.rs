//! The run service: create, claim, execute, finish, recover; and states of threads.

pub mod access;
pub mod cache;
pub mod create;
pub mod edit;
pub mod error;
pub mod execute;
pub mod live;
pub mod request;
pub mod service;
pub mod states;
pub mod store;
pub mod view;
pub mod worker;

pub use error::Error;
pub use live::{End, Live};
pub use service::{Options, Parts, Service};
pub use store::{Claimed, Created, Finish, NewRun, Run, Status, Store, Strategy};
