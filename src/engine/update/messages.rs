//! Updates of the message channel that no node makes: messages from outside, and a state without its
//! newest messages.

use std::sync::Arc;

use super::{StateUpdate, StateUpdater, UpdateOutcome};
use crate::{
    channel::overwrite,
    checkpoint::{Slot, Source, frame::Decoded},
    engine::{
        Error,
        apply::{TaskWrites, apply},
        channels::Channels,
        message_index::ChangeSource,
        plan::plan,
        reserved::{INPUT, INTERRUPT, START},
        topology::Topology,
    },
    value::{Map, Value},
};

/// Which tasks wait after messages were stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Continuation {
    /// Nothing.
    Nothing,
    /// What follows this node, as if it had written them; [`START`] for an input.
    After(Arc<str>),
    /// The start of whatever graph runs next: the thread has none yet.
    AnyStart,
}

impl StateUpdater {
    /// Writes messages through the channel's reducer: one checkpoint.
    ///
    /// # Errors
    /// The channel refuses them, a route of the node fails, or the storage failed.
    pub async fn write_messages(
        mut self,
        channel: &Arc<str>,
        messages: Vec<Value>,
        then: Continuation,
    ) -> Result<(UpdateOutcome, Decoded), Error> {
        let messages = Value::list(messages);
        let topology = Topology::new(self.graph.clone());
        let mut writes = vec![(channel.clone(), messages)];
        match then {
            Continuation::After(node) => {
                let values = Map::from_iter(writes);
                let update = StateUpdate {
                    values: Some(Value::map(values)),
                    as_node: Some(node),
                    ..StateUpdate::default()
                };
                let by = ChangeSource::Update { last: true };
                self.write_as_nodes(&topology, vec![update], false, by)
                    .await?;
                return self.finish(&topology);
            }
            // An empty input waits in the start channel, so that a run without input begins
            // where its graph begins.
            Continuation::AnyStart => writes.push((START.into(), Value::map(Map::new()))),
            Continuation::Nothing => {}
        }
        let mut channels = self.channels(&topology)?;
        self.apply_as_interrupt(&topology, &mut channels, &writes)?;
        if then == Continuation::Nothing {
            let_nothing_wait(&topology, &mut channels);
        }
        let step = self.step() + 1;
        let by = ChangeSource::Update { last: true };
        self.store(&topology, channels, Source::Update, step, vec![], by)
            .await?;
        self.finish(&topology)
    }

    /// Takes messages out of the state and lets nothing wait: one checkpoint with source `fork`.
    ///
    /// # Errors
    /// A stored value does not fit the graph, or the storage failed.
    pub async fn without_messages(
        mut self,
        channel: &Arc<str>,
        removed: &[Arc<str>],
    ) -> Result<(Slot, Decoded), Error> {
        let topology = Topology::new(self.graph.clone());
        let mut channels = self.channels(&topology)?;
        let stored = channels.get(channel).and_then(Value::as_list);
        let is_removed = |message: &Value| {
            let id = message.get("id").and_then(Value::as_str);
            id.is_some_and(|id| removed.iter().any(|removed| &**removed == id))
        };
        let rest = stored
            .unwrap_or_default()
            .iter()
            .filter(|message| !is_removed(message))
            .cloned()
            .collect();
        let writes = [(channel.clone(), overwrite(Value::list(rest)))];
        self.apply_as_interrupt(&topology, &mut channels, &writes)?;
        let_nothing_wait(&topology, &mut channels);
        let step = self.step() + 1;
        let by = ChangeSource::Update { last: true };
        self.store(&topology, channels, Source::Fork, step, vec![], by)
            .await?;
        let state = self
            .base
            .ok_or_else(|| Error::value("No updates provided"))?;
        Ok((self.slot, state))
    }

    /// Applies writes that belong to no node; channels that last one superstep are then empty.
    fn apply_as_interrupt(
        &self,
        topology: &Topology,
        channels: &mut Channels,
        writes: &[(Arc<str>, Value)],
    ) -> Result<(), Error> {
        let node: Arc<str> = INPUT.into();
        let triggers: [Arc<str>; 1] = [INTERRUPT.into()];
        let task = TaskWrites {
            path: "~",
            node: &node,
            writes,
            triggers: &triggers,
        };
        apply(topology, channels, vec![task]).map(|_| ())
    }

    fn finish(mut self, topology: &Topology) -> Result<(UpdateOutcome, Decoded), Error> {
        let Some(state) = self.base.take() else {
            return Err(Error::value("No updates provided"));
        };
        let channels = Channels::restore(topology, &state.checkpoint)?;
        let checkpoint = &state.checkpoint;
        let next = plan(
            topology,
            &channels,
            checkpoint.id,
            "",
            checkpoint.step + 1,
            None,
        );
        let edited = UpdateOutcome {
            checkpoint: checkpoint.id,
            slot: self.slot,
            next: next.into_iter().map(|task| task.name).collect(),
        };
        Ok((edited, state))
    }
}

/// Marks for every node that it has consumed what could start it.
fn let_nothing_wait(topology: &Topology, channels: &mut Channels) {
    for node in topology.all() {
        for trigger in topology.triggers(node).iter() {
            if let Some(version) = channels.versions.get(trigger) {
                let consumed = channels
                    .consumed_versions
                    .entry(topology.name(node).clone())
                    .or_default();
                consumed.insert(trigger.clone(), *version);
            }
        }
    }
}
