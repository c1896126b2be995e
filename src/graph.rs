//! Graphs: the builder, its checks, and the compiled form the engine runs.

use std::sync::Arc;

mod assemble;
pub mod builder;
pub mod check;
pub mod compiled;
pub mod draw;
pub mod handler;
mod on_error;
pub mod opts;
pub mod schema;
mod typed;
mod untyped;

pub use builder::{Graph, Untyped};
pub use check::{Invalid, Problem};
pub use compiled::{
    Astray, Body, Cache, ChannelSpec, Compiled, Deps, Goto, Join, Names, Node, NodeFn, Output,
    Persist, Retry, Route, RouteFn, Schemas, Writers,
};
pub use draw::{Drawing, draw};
pub use handler::{Handler, IntoOutput};
pub use opts::NodeOpts;

/// The entry of a graph: edges from it name the nodes that run first.
pub const START: &str = "__start__";
/// The end of a graph.
pub const END: &str = "__end__";

/// The channel that holds the whole state of a graph without named channels.
pub const ROOT: &str = "__root__";

/// The channel whose write starts `node`.
pub fn edge_channel(node: &str) -> Arc<str> {
    format!("branch:to:{node}").into()
}
