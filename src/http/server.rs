//! The server beneath the handlers: connections, the router, one request from its head to
//! its response, and the kinds of bodies.

pub mod access;
pub mod arrivals;
pub mod attributed;
pub mod auth;
pub mod authenticate;
pub mod bodies;
pub mod body;
pub mod call;
pub mod callers;
pub mod connection;
pub mod cors;
pub mod deferred;
pub mod dispatch;
pub mod embedded;
pub mod error;
pub mod foreign;
pub mod handover;
pub mod hosts;
pub mod json_size;
pub mod listener;
pub mod options;
pub mod own;
pub mod paced;
pub mod panics;
pub mod principal;
pub mod progress;
pub mod request_body;
mod request_line;
pub mod router;
pub mod rows;
pub mod slots;
pub mod socket;
pub mod sse;
pub mod unread;
pub mod weigh;
pub mod withdrawal;

pub use self::{body::Body, call::Call, error::Error};
