//! Assistants: the graphs that this server has registered, and those of clients, which give a
//! graph a configuration of its own, in versions.

pub mod content;
mod defaults;
mod error;
pub mod example;
pub mod request;
mod schemas;
pub mod service;
pub mod store;

pub use content::{Change, Content, Limits};
pub use defaults::Defaults;
pub use error::Error;
pub use service::{Assistant, Registered, Resolved, Service};
pub use store::Store;
