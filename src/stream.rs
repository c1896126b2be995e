//! The streams that clients read: events of the engine in modes, encoded, numbered and retained.

mod buffer;
mod encode;
mod frame;
mod hub;
mod memory;
mod mode;
mod publisher;
mod shape;
mod source;
mod subscription;

pub use frame::write_frame;
pub use hub::{Hub, Retention};
pub use memory::Memory;
pub use mode::Mode;
pub use publisher::{Options, Publisher};
pub use source::FrameSource;
pub use subscription::{Since, Subscription};

#[cfg(test)]
mod tests;
