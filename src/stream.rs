//! From the engine's events to what clients read: modes, encoding, numbering, replay.

mod buffer;
mod encode;
mod frame;
mod hub;
mod mode;
mod publisher;
mod shape;
mod subscription;

pub use hub::{Hub, Retention, Watch};
pub use mode::{Mode, Modes, Unknown};
pub use publisher::{Batch, Limits, Options, Publisher};
pub use subscription::{Since, Subscription};

#[cfg(test)]
mod tests;
