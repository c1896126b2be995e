//! Keyed requests: a request that is repeated with its key has one effect and one response.

mod service;
mod store;

pub use service::{Outcome, Service, StoredResponse};
pub use store::{Claim, Claimed, Key, RETENTION, Store};
