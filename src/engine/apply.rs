//! Applying the writes of a superstep to the channels: the only place where versions move.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    channels::Channels,
    error::Error,
    reserved::{INPUT, is_control},
    topology::Topology,
};
use crate::{checkpoint::Version, value::Value};

/// Channels and what is written to them, in order.
pub type Writes = Vec<(Arc<str>, Value)>;

/// What one task wrote.
#[derive(Clone, Debug)]
pub struct TaskWrites<'a> {
    /// The task's path in string form: writes are applied in this order.
    pub path: &'a str,
    /// The node.
    pub node: &'a Arc<str>,
    /// Channel and value, in order.
    pub writes: &'a [(Arc<str>, Value)],
    /// What started the task; empty for writes of the client.
    pub triggers: &'a [Arc<str>],
}

/// Applies the writes of all tasks at once and returns the channels that were updated and have
/// a value (LangGraph's `apply_writes`).
///
/// # Errors
/// A channel refuses its writes; `live` is then in between and must be dropped.
pub fn apply(
    topology: &Topology,
    channels: &mut Channels,
    mut tasks: Vec<TaskWrites<'_>>,
) -> Result<BTreeSet<Arc<str>>, Error> {
    // Path order makes the result independent of who finished first.
    tasks.sort_by(|a, b| a.path.cmp(b.path));
    let bump = tasks.iter().any(|task| !task.triggers.is_empty());
    let mut updated = BTreeSet::new();

    for task in &tasks {
        let consumed = channels
            .consumed_versions
            .entry(task.node.clone())
            .or_default();
        for trigger in task.triggers {
            if let Some(version) = channels.versions.get(trigger) {
                consumed.insert(trigger.clone(), *version);
            }
        }
    }

    let next = Version::after(channels.greatest());
    let mut consumed = BTreeSet::new();
    for trigger in tasks.iter().flat_map(|task| task.triggers) {
        if !consumed.insert(trigger) {
            continue;
        }
        if channels
            .by_name
            .get_mut(trigger)
            .is_some_and(|channel| channel.consume())
        {
            channels.versions.insert(trigger.clone(), next);
        }
    }

    let mut order: Vec<&Arc<str>> = vec![];
    let mut grouped: HashMap<&Arc<str>, Vec<Value>> = HashMap::new();
    for (channel, value) in tasks.iter().flat_map(|task| task.writes) {
        if is_control(channel) || !channels.by_name.contains_key(channel) {
            continue;
        }
        grouped
            .entry(channel)
            .or_insert_with(|| {
                order.push(channel);
                vec![]
            })
            .push(value.clone());
    }
    for name in &order {
        let writes = grouped.remove(*name).unwrap_or_default();
        let Some(channel) = channels.by_name.get_mut(*name) else {
            continue;
        };
        if channel
            .update(&writes)
            .map_err(|error| Error::channel(name, error))?
        {
            channels.versions.insert((*name).clone(), next);
            if channel.is_available() {
                updated.insert((*name).clone());
            }
        }
    }

    if bump {
        for (name, channel) in &mut channels.by_name {
            if updated.contains(name) || !channel.is_available() {
                continue;
            }
            if channel
                .update(&[])
                .map_err(|error| Error::channel(name, error))?
            {
                channels.versions.insert(name.clone(), next);
                if channel.is_available() {
                    updated.insert(name.clone());
                }
            }
        }
        // Nothing that was updated starts a node: the run is about to end, so deferred nodes go.
        if updated
            .iter()
            .all(|name| topology.started_by(name).is_empty())
        {
            for (name, channel) in &mut channels.by_name {
                if channel.finish() {
                    channels.versions.insert(name.clone(), next);
                    if channel.is_available() {
                        updated.insert(name.clone());
                    }
                }
            }
        }
    }
    Ok(updated)
}

/// Applies writes that no task made: those of the client, or input.
///
/// # Errors
/// As [`apply`].
pub fn apply_input(
    topology: &Topology,
    channels: &mut Channels,
    writes: &[(Arc<str>, Value)],
) -> Result<BTreeSet<Arc<str>>, Error> {
    if writes.is_empty() {
        return Ok(BTreeSet::new());
    }
    let node: Arc<str> = INPUT.into();
    let task = TaskWrites {
        path: "~",
        node: &node,
        writes,
        triggers: &[],
    };
    apply(topology, channels, vec![task])
}
