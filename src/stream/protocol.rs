//! The event-streaming protocol: its events, made from the frames that runs have recorded.
//!
//! Nothing is stored for the protocol itself. The frames of a run, in their order, always give
//! the same events with the same ids, so that a client that comes back can drop those it has.

mod checkpoints;
mod event;
mod filter;
mod lifecycle;
mod messages;
mod output;
mod run;
mod state;
mod tools;
mod tree;

pub use event::{Event, Method};
pub use filter::{Channels, Filter};
pub use output::Output;
pub use run::{Ended, Recorded, RunEvents, RunFacts};

/// The modes that a run of the protocol records: all of its channels are made from them.
pub const MODES: &[super::Mode] = &[
    super::Mode::Values,
    super::Mode::Updates,
    super::Mode::Custom,
    super::Mode::MessagesTuple,
    super::Mode::Debug,
];

#[cfg(test)]
mod tests;
