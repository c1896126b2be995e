//! The state of a thread: selecting a checkpoint, reading states and writing to them.

mod graphless;
mod history;
pub mod json;
mod read;
mod select;
mod stored;
mod update;
