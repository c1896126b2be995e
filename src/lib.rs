//! Backstitch: a durable runtime for agent graphs.
//!
//! A graph author registers nodes; clients start runs over LangGraph's Agent Server protocol;
//! every superstep is checkpointed with a link to its parent, so that any conversation can be
//! resumed, rewound, branched and forked.

extern crate self as backstitch;

pub mod channel;
pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod failpoint;
pub mod http;
pub mod id;
pub mod message;
pub mod runs;
pub mod telemetry;
pub mod time;
pub mod tree;
pub mod value;
