//! From the engine's events to what clients read: modes, encoding, numbering, replay.

mod mode;

pub use mode::{Mode, Modes, Unknown};
