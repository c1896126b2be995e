//! The event-streaming protocol: commands, and the events of a thread as server-sent events.

pub(super) mod commands;
pub(super) mod events;
mod message;
mod start;
mod subscription;
