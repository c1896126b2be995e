//! Crons: schedules by which the server creates runs, on a thread or each time on a new one.

#[cfg(feature = "server")]
mod change;
#[cfg(feature = "server")]
mod clock;
mod error;
pub mod request;
#[cfg(feature = "server")]
pub mod schedule;
#[cfg(feature = "server")]
pub mod service;
pub mod store;

#[cfg(feature = "server")]
pub use change::Change;
#[cfg(feature = "server")]
pub use clock::Clock;
pub use error::Error;
#[cfg(feature = "server")]
pub use schedule::Schedule;
#[cfg(feature = "server")]
pub use service::{Options, Service};
pub use store::{CronRow, Store};
