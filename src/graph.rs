//! Graphs: the builder, its checks, and the compiled form the engine runs.

use std::sync::Arc;

mod assemble;
pub(crate) mod builder;
pub(crate) mod check;
pub(crate) mod compiled;
pub(crate) mod draw;
pub(crate) mod handler;
mod on_error;
pub(crate) mod opts;
mod route;
pub(crate) mod schema;
mod typed;
mod untyped;

pub use builder::{Graph, Untyped};
pub use check::{Invalid, Problem};
pub(crate) use compiled::{
    Body, ChannelSpec, Deps, Join, Node, NodeFn, Route, Schemas, UnlistedTarget, Writers,
};
pub use compiled::{Cache, Compiled, Goto, Names, Output, Persist, Retry};
pub use draw::{Drawing, Edge};
pub use handler::{Handler, IntoOutput};
pub use opts::NodeOpts;
pub use route::Choose;

/// The entry of a graph: edges from it name the nodes that run first.
pub const START: &str = "__start__";
/// The end of a graph.
pub const END: &str = "__end__";

/// The channel of the whole state of a graph without named channels.
pub(crate) const ROOT: &str = "__root__";

/// The channel whose write starts `node`.
pub(crate) fn edge_channel(node: &str) -> Arc<str> {
    format!("branch:to:{node}").into()
}
