//! Webhooks: which URLs may be called, the deliveries that are owed, and sending one.

mod address;
pub mod outbox;
pub mod policy;
pub mod schedule;
pub mod sender;
mod signature;

pub use policy::Policy;
pub use sender::Sender;
pub use signature::SigningKey;
