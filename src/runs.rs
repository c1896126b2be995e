//! The run service: create, claim, execute, finish, recover; and states of threads.

pub mod access;
pub mod branches;
pub mod compare;
mod conclude;
pub mod contents;
pub mod create;
pub mod edit;
pub mod error;
pub mod execute;
pub mod forks;
pub mod kept;
pub mod keys;
pub mod lifetime;
pub mod live;
pub mod log;
mod look;
pub mod members;
pub mod messages;
pub mod news;
pub mod outline;
mod plain;
pub mod projector;
pub mod request;
mod sent;
pub mod service;
mod spot;
mod start;
pub mod states;
pub mod store;
mod tags;
pub mod threads;
pub mod transitions;
pub mod view;
mod within;
pub mod worker;

pub use error::Error;
pub use live::{End, Live};
pub use service::{Options, Parts, Service};
pub use store::{
    Claimed, Created, DEATHS, Finish, NewRun, Recover, Recovered, Run, Status, Store, Strategy, Tx,
    Undo,
};
