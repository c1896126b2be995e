//! The streams that clients read: events of the engine in modes, encoded, numbered and retained.

mod buffer;
mod encode;
mod frame;
mod hub;
pub mod log;
mod memory;
mod mode;
mod options;
pub mod protocol;
mod publisher;
mod readers;
mod shape;
mod source;
mod subscription;
mod thread;

pub use frame::write_frame;
pub use hub::{Hub, Retention};
pub use memory::Memory;
pub use mode::Mode;
pub use options::Options;
pub use publisher::{LastFrames, Publisher, RunOwner};
pub use source::FrameSource;
pub use subscription::{Next, Since, Subscription, cut_off, gap};
pub use thread::{
    End, Feed, Passed, Position, SinceThread, Subject, ThreadFrame, ThreadSubscription, Watched,
};

#[cfg(test)]
mod tests;
