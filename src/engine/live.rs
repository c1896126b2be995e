//! The state of a graph between supersteps: channels, their versions, what nodes have seen.

use std::{collections::BTreeMap, sync::Arc};

use indexmap::IndexMap;

use super::{
    error::{Error, Mistake, Place},
    names::{START, TASKS},
    wiring::Wiring,
};
use crate::{
    channel::{Channel, Kind},
    checkpoint::{Checkpoint, Versions},
    graph::Node,
    value::{Map, Value},
};

/// Channels with values, versions and the bookkeeping that decides which nodes run.
#[derive(Clone)]
pub struct Live {
    /// Every channel of the graph.
    pub channels: IndexMap<Arc<str>, Channel>,
    /// Version of every channel that was ever written.
    pub versions: Versions,
    /// What each node saw when it last ran.
    pub seen: BTreeMap<Arc<str>, Versions>,
    /// Stored channels that this version of the graph does not know: kept as they are.
    pub unknown: BTreeMap<Arc<str>, Value>,
}

impl Live {
    /// The state before anything was written.
    pub fn empty(wiring: &Wiring) -> Self {
        Self {
            channels: wiring
                .channels
                .iter()
                .map(|(name, kind)| (name.clone(), Channel::new(kind)))
                .collect(),
            versions: Versions::new(),
            seen: BTreeMap::new(),
            unknown: BTreeMap::new(),
        }
    }

    /// The state a checkpoint holds.
    ///
    /// # Errors
    /// A stored value that its channel cannot hold, named with channel and checkpoint.
    pub fn restore(wiring: &Wiring, checkpoint: &Checkpoint) -> Result<Self, Error> {
        let mut channels = IndexMap::with_capacity(wiring.channels.len());
        for (name, kind) in &wiring.channels {
            let channel = match checkpoint.values.get(name) {
                None => Channel::new(kind),
                Some(value) => Channel::restore(kind, Some(value.clone())).map_err(|error| {
                    let readers = readers(wiring, name);
                    let message = format!("channel `{name}`{readers}: {error}");
                    Error::mistake(Mistake::StoredForm, message).at(|| Place {
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
            channels,
            versions: checkpoint.versions.clone(),
            seen: checkpoint.consumed_versions.clone(),
            unknown,
        })
    }

    /// Stored form of every channel that has a value and was ever written.
    pub fn snapshot(&self, wiring: &Wiring) -> BTreeMap<Arc<str>, Value> {
        let mut values = self.unknown.clone();
        for (name, channel) in &self.channels {
            if !self.versions.contains_key(name) {
                continue;
            }
            if let Some(value) = channel.snapshot() {
                let value = match &**name {
                    TASKS if !wiring.untracked.is_empty() => wiring.sends_without_untracked(&value),
                    _ => value,
                };
                values.insert(name.clone(), value);
            }
        }
        values
    }

    /// Gives channels that lost their value in a failed superstep the one they had `before`.
    pub fn mend(&mut self, before: Self) {
        for (name, old) in before.channels {
            if let Some(channel) = self.channels.get_mut(&name)
                && !channel.is_available()
                && matches!(old.kind(), Kind::Aggregate(_))
            {
                *channel = old;
            }
        }
    }

    /// The node that ran last; none when that is not clear.
    pub fn last_node(&self, wiring: &Wiring) -> Option<Arc<str>> {
        let mut seen: Vec<_> = self
            .seen
            .iter()
            .filter(|(node, _)| wiring.index(node).is_some())
            .flat_map(|(node, versions)| versions.values().map(move |version| (version, node)))
            .map(|(version, node)| ((version.counter, version.salt), node))
            .collect();
        if seen.is_empty() {
            let nothing_ran = self.seen.values().all(|versions| versions.is_empty());
            return nothing_ran.then(|| START.into());
        }
        seen.sort();
        match seen.as_slice() {
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
            if let Some(value) = self.channels.get(name).and_then(Channel::get) {
                map.insert(name.clone(), value.clone());
            }
        }
        map
    }

    /// A channel's value.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.channels.get(name).and_then(Channel::get)
    }

    /// What the graph shows: its output channels, or the root value.
    pub fn output(&self, wiring: &Wiring) -> Value {
        if wiring.graph.root_state {
            return self.get(ROOT).cloned().unwrap_or_default();
        }
        Value::map(self.read(&wiring.graph.output))
    }
}

/// Who reads a channel, for people to find it.
fn readers(wiring: &Wiring, channel: &Arc<str>) -> String {
    let reads = |node: &&Node| match &node.reads {
        Some(names) => names.contains(channel),
        None => true,
    };
    let names: Vec<String> = wiring
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
