//! Crons: schedules by which the server creates runs, on a thread or each time on a new one.

mod change;
mod clock;
mod error;
pub mod request;
pub mod schedule;
pub mod service;
pub mod store;

pub use change::Change;
pub use clock::Clock;
pub use error::Error;
pub use schedule::Schedule;
pub use service::{Options, Service};
pub use store::{CronRow, Store};
