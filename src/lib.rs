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
pub mod engine;
pub mod error;
pub mod extract;
pub mod failpoint;
pub mod graph;
pub mod http;
pub mod id;
pub mod llm;
pub mod local;
pub mod message;
pub mod prelude;
pub mod runs;
pub mod server;
pub mod state;
pub mod storage;
pub mod stream;
pub mod telemetry;
pub mod time;
pub mod tree;
pub mod value;

pub use local::Local;
pub use server::Server;

/// Named by the code the derive makes.
#[doc(hidden)]
pub use anyhow;

/// What nodes return: any error will do.
pub type Result<T, E = anyhow::Error> = std::result::Result<T, E>;
