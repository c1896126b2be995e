//! The state of a graph between supersteps: channels, their versions, what nodes have consumed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use indexmap::IndexMap;

use super::{
    error::{Error, ErrorLocation, Mistake},
    reserved::{START, TASKS},
    topology::Topology,
};
use crate::{
    channel::{Channel, Kind, Shape},
    checkpoint::{Checkpoint, Versions, frame::Frame},
    graph::{Compiled, Node},
    value::{Map, Value},
};

/// Channels with values, versions and the bookkeeping that decides which nodes run.
#[derive(Clone)]
pub struct Channels {
    /// Every channel of the graph.
    pub by_name: IndexMap<Arc<str>, Channel>,
    /// Version of every channel that was ever written.
    pub versions: Versions,
    /// The versions of its triggers that each node last ran with.
    pub consumed_versions: BTreeMap<Arc<str>, Versions>,
    /// Stored channels that this version of the graph does not know: they are stored unchanged.
    pub unknown: BTreeMap<Arc<str>, Value>,
}

impl Channels {
    /// The state before anything was written.
    pub fn empty(topology: &Topology) -> Self {
        Self {
            by_name: topology
                .channels
                .iter()
                .map(|(name, kind)| (name.clone(), Channel::new(kind)))
                .collect(),
            versions: Versions::new(),
            consumed_versions: BTreeMap::new(),
            unknown: BTreeMap::new(),
        }
    }

    /// The state of a checkpoint.
    ///
    /// # Errors
    /// A stored value does not fit its channel; the error names channel and checkpoint.
    pub fn restore(topology: &Topology, checkpoint: &Checkpoint) -> Result<Self, Error> {
        let mut channels = IndexMap::with_capacity(topology.channels.len());
        for (name, kind) in &topology.channels {
            let channel = match checkpoint.values.get(name) {
                None => Channel::new(kind),
                Some(value) => Channel::restore(kind, Some(value.clone())).map_err(|error| {
                    let readers = readers(topology, name);
                    let message = format!("channel `{name}`{readers}: {error}");
                    Error::mistake(Mistake::StoredForm, message).at(|| ErrorLocation {
                        tasks: vec![],
                        checkpoint: Some(checkpoint.id),
                    })
                })?,
            };
            channels.insert(name.clone(), channel);
        }
        let unknown = checkpoint
            .values
            .iter()
            .filter(|(name, _)| !channels.contains_key(&***name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        Ok(Self {
            by_name: channels,
            versions: checkpoint.versions.clone(),
            consumed_versions: checkpoint.consumed_versions.clone(),
            unknown,
        })
    }

    /// Takes over what is known of the messages of a checkpoint, whose state this is.
    pub fn know_message_ids(&mut self, frame: &Frame) {
        for (name, channel) in &mut self.by_name {
            if let Some(ids) = channel
                .get()
                .and_then(|value| frame.message_ids(name, value))
            {
                let ids = ids.clone();
                channel.know_message_ids(ids);
            }
        }
    }

    /// The frame with what is known of the messages of this state.
    pub fn with_message_ids(&self, mut frame: Frame) -> Frame {
        for (name, channel) in &self.by_name {
            if let (Some(value), Some(ids)) = (channel.get(), channel.message_ids()) {
                frame.know_message_ids(name, value, ids);
            }
        }
        frame
    }

    /// About how many bytes the values take in memory.
    pub fn memory(&self) -> usize {
        let known = self.by_name.values().map(Channel::memory);
        known.chain(self.unknown.values().map(Value::memory)).sum()
    }

    /// Stored form of every channel that has a value and was ever written.
    pub fn snapshot(&self, topology: &Topology) -> BTreeMap<Arc<str>, Value> {
        let mut values = self.unknown.clone();
        for (name, channel) in &self.by_name {
            if !self.versions.contains_key(name) {
                continue;
            }
            if let Some(value) = channel.snapshot() {
                let value = match &**name {
                    TASKS if !topology.untracked.is_empty() => {
                        topology.sends_without_untracked(&value)
                    }
                    _ => value,
                };
                values.insert(name.clone(), value);
            }
        }
        values
    }

    /// Gives channels that lost their value in a failed superstep the one they had `before`.
    pub fn mend(&mut self, before: Self) {
        for (name, old) in before.by_name {
            if let Some(channel) = self.by_name.get_mut(&name)
                && !channel.is_available()
                && matches!(old.kind(), Kind::Aggregate(_))
            {
                *channel = old;
            }
        }
    }

    /// The node that ran last; none when that is not clear.
    pub fn last_node(&self, topology: &Topology) -> Option<Arc<str>> {
        let mut runs: Vec<_> = self
            .consumed_versions
            .iter()
            .filter(|(node, _)| topology.index(node).is_some())
            .flat_map(|(node, versions)| versions.values().map(move |version| (version, node)))
            .map(|(version, node)| ((version.counter, version.salt), node))
            .collect();
        if runs.is_empty() {
            let nothing_ran = self
                .consumed_versions
                .values()
                .all(|versions| versions.is_empty());
            return nothing_ran.then(|| START.into());
        }
        runs.sort();
        match runs.as_slice() {
            [(_, node)] => Some((*node).clone()),
            [.., (before, _), (last, node)] if before != last => Some((*node).clone()),
            _ => None,
        }
    }

    /// The greatest counter of all channels.
    pub fn greatest(&self) -> u64 {
        self.versions
            .values()
            .map(|version| version.counter)
            .max()
            .unwrap_or(0)
    }

    /// Available channels among `names`, in their order.
    pub fn read(&self, names: &[Arc<str>]) -> Map {
        let mut map = Map::with_capacity(names.len());
        for name in names {
            if let Some(value) = self.by_name.get(name).and_then(Channel::get) {
                map.insert(name.clone(), value.clone());
            }
        }
        map
    }

    /// A channel's value.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.by_name.get(name).and_then(Channel::get)
    }

    /// What the graph shows: its output channels, or the root value.
    pub fn output(&self, topology: &Topology) -> Value {
        if topology.graph.root_state {
            return self.get(ROOT).cloned().unwrap_or_default();
        }
        Value::map(self.read(&topology.graph.output))
    }
}

/// Channels that the superstep before a checkpoint updated; none after a fork or a state update.
pub fn updated_by(checkpoint: &Checkpoint) -> Option<BTreeSet<Arc<str>>> {
    let updated = checkpoint.updated.as_ref();
    let updated = updated.filter(|names| !names.is_empty())?;
    Some(updated.iter().cloned().collect())
}

/// How the stored value of a channel of `graph` grows.
pub(super) fn shape(graph: &Compiled, name: &str) -> Shape {
    match graph.channel(name).map(|spec| &spec.kind) {
        Some(Kind::Aggregate(reducer)) => reducer.shape(),
        Some(Kind::Topic { accumulate: true }) => Shape::Append,
        _ => Shape::Plain,
    }
}

/// The nodes that read a channel, for people to find it.
fn readers(topology: &Topology, channel: &Arc<str>) -> String {
    let reads = |node: &&Node| match &node.reads {
        Some(names) => names.contains(channel),
        None => true,
    };
    let names: Vec<String> = topology
        .graph
        .nodes
        .iter()
        .filter(reads)
        .map(|node| format!("`{}`", node.name))
        .collect();
    match names.as_slice() {
        [] => String::new(),
        [only] => format!(", read by node {only}"),
        [first, rest @ ..] if rest.len() > 3 => {
            format!(", read by node {first} and {} others", rest.len())
        }
        all => format!(", read by nodes {}", all.join(", ")),
    }
}

/// The one channel of a graph whose state is not a map.
pub const ROOT: &str = "__root__";
