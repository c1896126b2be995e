//! Graphs: the builder, its checks, and the compiled form the engine runs.

use std::sync::Arc;

pub mod compiled;

pub use compiled::{
    Body, Cache, ChannelSpec, Compiled, Deps, Goto, Join, Names, Node, Output, Persist, Retry,
    Route, Schemas, Writers,
};

/// The entry of a graph: edges from it name the nodes that run first.
pub const START: &str = "__start__";
/// The end of a graph.
pub const END: &str = "__end__";

/// The channel whose write starts `node`.
pub fn edge_channel(node: &str) -> Arc<str> {
    format!("branch:to:{node}").into()
}
