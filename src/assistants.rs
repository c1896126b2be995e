//! Assistants: the graphs that this server has registered, by name and by id, and how clients see
//! them.

mod error;
pub mod request;
mod schemas;
pub mod service;

pub use error::Error;
pub use service::{Assistant, Registered, Service};
