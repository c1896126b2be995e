//! Assistants: the graphs that this server has registered, and those of clients, which give a
//! graph a configuration of its own, in versions.

pub mod content;
mod defaults;
mod error;
pub mod example;
mod factory;
mod graphs;
pub mod request;
mod schemas;
pub mod service;
pub mod store;

pub use content::{Change, Content, Limits};
pub use defaults::Defaults;
pub use error::Error;
pub use factory::{Factory, GraphConfig};
pub use graphs::{Purpose, Registered, Source, Tries};
pub use service::{Assistant, Resolved, Service};
pub use store::Store;
