//! Keyed requests: a request that is repeated with its key has one effect and one response.

mod abandoned;
mod guard;
mod service;
mod store;
mod waiting;

use crate::checkpoint::Error;

pub use guard::{KeyGuard, StoredResponse};
pub use service::{Outcome, Service};
pub use store::{Claim, Claimed, DatedResponse, Key, RETENTION, Store};
