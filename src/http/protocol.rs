//! The event-streaming protocol: commands, and the events of a thread as server-sent events, or both over
//! a WebSocket.

pub(super) mod commands;
pub(super) mod events;
mod message;
mod start;
mod subscription;
pub(super) mod websocket;
