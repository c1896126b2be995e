//! The channels and triggers of a compiled graph, hidden ones included.

use std::{collections::HashMap, sync::Arc};

use super::reserved::{START, TASKS};
use crate::{
    channel::Kind,
    graph::{Compiled, Node, Writers, edge_channel},
    value::Value,
};

/// A graph laid out for the engine.
pub struct Topology {
    /// The graph.
    pub graph: Arc<Compiled>,
    /// All channels: state in definition order, then the hidden ones.
    pub channels: Vec<(Arc<str>, Kind)>,
    /// Per node its triggers: the edge channel first, then joins.
    triggers: Vec<Arc<[Arc<str>]>>,
    /// The triggers, sorted: what task ids and events carry.
    sorted: Vec<Arc<[Arc<str>]>>,
    /// Which nodes a channel starts; `usize::MAX` is the hidden start node.
    by_trigger: HashMap<Arc<str>, Vec<usize>>,
    names: HashMap<Arc<str>, usize>,
    /// Channels that are never stored.
    pub untracked: Vec<Arc<str>>,
    start_triggers: Arc<[Arc<str>]>,
    start_name: Arc<str>,
}

/// Index of the hidden start node.
pub const START_NODE: usize = usize::MAX;

impl Topology {
    /// Lays out `graph`.
    pub fn new(graph: Arc<Compiled>) -> Self {
        let mut channels: Vec<(Arc<str>, Kind)> = graph
            .channels
            .iter()
            .map(|spec| (spec.name.clone(), spec.kind.clone()))
            .collect();
        let start_name: Arc<str> = START.into();
        channels.push((start_name.clone(), Kind::Ephemeral { guard: true }));
        channels.push((TASKS.into(), Kind::Topic { accumulate: false }));
        let mut by_trigger: HashMap<Arc<str>, Vec<usize>> = HashMap::new();
        by_trigger.insert(start_name.clone(), vec![START_NODE]);
        let (mut triggers, mut sorted, mut names) = (vec![], vec![], HashMap::new());
        for (index, node) in graph.nodes.iter().enumerate() {
            let edge = edge_channel(&node.name);
            let kind = if node.defer {
                Kind::LastAfterFinish
            } else {
                Kind::Ephemeral { guard: false }
            };
            channels.push((edge.clone(), kind));
            let mut all = vec![edge];
            all.extend(node.joins.iter().cloned());
            for trigger in &all {
                by_trigger.entry(trigger.clone()).or_default().push(index);
            }
            let mut in_order = all.clone();
            in_order.sort();
            triggers.push(all.into());
            sorted.push(in_order.into());
            names.insert(node.name.clone(), index);
        }
        for join in &graph.joins {
            let deferred = graph.node(&join.to).is_some_and(|node| node.defer);
            let kind = if deferred {
                Kind::BarrierAfterFinish(join.from.clone())
            } else {
                Kind::Barrier(join.from.clone())
            };
            channels.push((join.channel.clone(), kind));
        }
        let untracked = graph
            .channels
            .iter()
            .filter(|spec| matches!(spec.kind, Kind::Untracked { .. }))
            .map(|spec| spec.name.clone())
            .collect();
        Self {
            untracked,
            graph,
            channels,
            triggers,
            sorted,
            by_trigger,
            names,
            start_triggers: Arc::from([start_name.clone()]),
            start_name,
        }
    }

    /// What is stored of a task's writes: untracked channels are left out, also as keys of a
    /// fan-out's argument.
    pub fn without_untracked(&self, writes: &[(Arc<str>, Value)]) -> Vec<(Arc<str>, Value)> {
        writes
            .iter()
            .filter(|(name, _)| !self.untracked.contains(name))
            .map(|(name, value)| match &**name {
                TASKS => (name.clone(), self.send_without_untracked(value)),
                _ => (name.clone(), value.clone()),
            })
            .collect()
    }

    /// The stored form of fan-out targets: their arguments without untracked channels.
    pub fn sends_without_untracked(&self, sends: &Value) -> Value {
        match sends {
            Value::List(sends) => sends
                .iter()
                .map(|send| self.send_without_untracked(send))
                .collect(),
            other => other.clone(),
        }
    }

    fn send_without_untracked(&self, send: &Value) -> Value {
        let mut send = send.clone();
        let arg = send.make_map_mut().and_then(|send| send.get_mut("arg"));
        if let Some(arg) = arg.and_then(Value::make_map_mut) {
            arg.retain(|name, _| !self.untracked.contains(name));
        }
        send
    }

    /// The node at `index`, behind all others the error handlers; `None` for the hidden start
    /// node.
    pub fn node(&self, index: usize) -> Option<&Node> {
        let nodes = &self.graph.nodes;
        let handler = || self.graph.handlers.get(index.checked_sub(nodes.len())?);
        nodes.get(index).or_else(handler)
    }

    /// Where the error handler of the node at `index` is.
    pub fn handler_of(&self, index: usize) -> Option<usize> {
        let handler = self.graph.nodes.get(index)?.handler?;
        Some(self.graph.nodes.len() + handler)
    }

    /// Name of the node at `index`.
    pub fn name(&self, index: usize) -> &Arc<str> {
        self.node(index).map_or(&self.start_name, |node| &node.name)
    }

    /// What follows the node at `index`.
    pub fn writers(&self, index: usize) -> &Writers {
        self.node(index)
            .map_or(&self.graph.start, |node| &node.writers)
    }

    /// The node of this name, the hidden start node included.
    pub fn index(&self, name: &str) -> Option<usize> {
        match self.names.get(name) {
            Some(index) => Some(*index),
            None if name == START => Some(START_NODE),
            None => None,
        }
    }

    /// Triggers of a node in definition order.
    pub fn triggers(&self, index: usize) -> &Arc<[Arc<str>]> {
        self.triggers.get(index).unwrap_or(&self.start_triggers)
    }

    /// Triggers of a node, sorted.
    pub fn sorted_triggers(&self, index: usize) -> &Arc<[Arc<str>]> {
        self.sorted.get(index).unwrap_or(&self.start_triggers)
    }

    /// Nodes that `channel` starts.
    pub fn started_by(&self, channel: &str) -> &[usize] {
        self.by_trigger.get(channel).map_or(&[], Vec::as_slice)
    }

    /// All nodes: the hidden start node, then the others in definition order.
    pub fn all(&self) -> impl Iterator<Item = usize> {
        std::iter::once(START_NODE).chain(0..self.graph.nodes.len())
    }
}
