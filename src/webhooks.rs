//! Webhooks: which URLs may be called, the deliveries that are owed, and sending one.

#[cfg(feature = "server")]
mod address;
pub mod outbox;
#[cfg(feature = "server")]
pub mod policy;
#[cfg(feature = "server")]
pub mod schedule;
#[cfg(feature = "server")]
pub mod sender;
#[cfg(feature = "server")]
mod signature;

#[cfg(feature = "server")]
pub use policy::{Policy, normalized};
#[cfg(feature = "server")]
pub use sender::Sender;
#[cfg(feature = "server")]
pub use signature::SigningKey;

/// No run has a webhook: only clients of a server name one.
#[cfg(not(feature = "server"))]
pub fn normalized(_: &str) -> Option<String> {
    None
}
