//! States of threads on which no graph has run: the conversation is read with a graph that has
//! nothing but a channel for messages.

use std::sync::{Arc, LazyLock};

use crate::{
    channel::{Kind, Reducer},
    checkpoint::frame::Decoded,
    engine::topology::Topology,
    graph::{Compiled, Graph, Output, START},
    value::Map,
};

static TOPOLOGY: LazyLock<Option<Topology>> = LazyLock::new(|| {
    let graph = Graph::untyped()
        .channel("messages", Kind::Aggregate(Reducer::messages()))
        .node("none", |_| async { Ok(Output::default()) })
        .edge(START, "none")
        .build();
    graph.ok().map(Topology::new)
});

/// The topology of the graph that replaces a missing one.
pub fn topology() -> Option<&'static Topology> {
    TOPOLOGY.as_ref()
}

/// The graph that replaces a missing one: it has messages.
pub fn graph() -> Option<Arc<Compiled>> {
    topology().map(|topology| topology.graph.clone())
}

/// The channels of a state that a client named.
pub fn values(decoded: &Decoded) -> Map {
    let all = decoded.checkpoint.values.iter();
    let named = all.filter(|(name, _)| !name.starts_with("__") && !name.contains(':'));
    named
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
