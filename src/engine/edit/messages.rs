//! Edits of the message channel that are no update of a node: messages from outside, and a state
//! without its newest messages.

use std::sync::Arc;

use super::{Edit, Edited, StateUpdate};
use crate::{
    channel::overwrite,
    checkpoint::{Slot, Source, frame::Decoded},
    engine::{
        Error,
        apply::{TaskWrites, apply},
        index::By,
        live::Live,
        names::{INPUT, INTERRUPT, START},
        plan::plan,
        wiring::Wiring,
    },
    value::{Map, Value},
};

/// What waits to run after messages were stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    Nothing,
    /// What follows this node, as if it had written them; [`START`] for an input.
    After(Arc<str>),
    /// The start of whatever graph runs next: the thread has none yet.
    AnyStart,
}

impl Edit {
    /// Writes messages through the channel's reducer: one checkpoint.
    ///
    /// # Errors
    /// The channel refuses them, a route of the node fails, or the storage failed.
    pub async fn write_messages(
        mut self,
        channel: &Arc<str>,
        messages: Vec<Value>,
        then: Then,
    ) -> Result<(Edited, Decoded), Error> {
        let messages = Value::list(messages);
        let wiring = Wiring::new(self.graph.clone());
        let mut writes = vec![(channel.clone(), messages)];
        match then {
            Then::After(node) => {
                let values = Map::from_iter(writes);
                let update = StateUpdate {
                    values: Some(Value::map(values)),
                    as_node: Some(node),
                    ..StateUpdate::default()
                };
                let by = By::Edit { last: true };
                self.ordinary(&wiring, vec![update], false, by).await?;
                return self.ended(&wiring);
            }
            // An empty input waits in the start channel, so that a run without input begins
            // where its graph begins.
            Then::AnyStart => writes.push((START.into(), Value::map(Map::new()))),
            Then::Nothing => {}
        }
        let mut live = self.live(&wiring)?;
        self.put(&wiring, &mut live, &writes)?;
        if then == Then::Nothing {
            let_nothing_wait(&wiring, &mut live);
        }
        let step = self.step() + 1;
        let by = By::Edit { last: true };
        self.store(&wiring, live, Source::Update, step, vec![], by)
            .await?;
        self.ended(&wiring)
    }

    /// Takes messages out of the state and lets nothing wait: one checkpoint with source `fork`.
    ///
    /// # Errors
    /// A stored value does not fit the graph, or the storage failed.
    pub async fn without_messages(
        mut self,
        channel: &Arc<str>,
        gone: &[Arc<str>],
    ) -> Result<(Slot, Decoded), Error> {
        let wiring = Wiring::new(self.graph.clone());
        let mut live = self.live(&wiring)?;
        let held = live.get(channel).and_then(Value::as_list);
        let is_gone = |message: &Value| {
            let id = message.get("id").and_then(Value::as_str);
            id.is_some_and(|id| gone.iter().any(|gone| &**gone == id))
        };
        let kept = held
            .unwrap_or_default()
            .iter()
            .filter(|message| !is_gone(message))
            .cloned()
            .collect();
        let writes = [(channel.clone(), overwrite(Value::list(kept)))];
        self.put(&wiring, &mut live, &writes)?;
        let_nothing_wait(&wiring, &mut live);
        let step = self.step() + 1;
        let by = By::Edit { last: true };
        self.store(&wiring, live, Source::Fork, step, vec![], by)
            .await?;
        let state = self
            .base
            .ok_or_else(|| Error::value("No updates provided"))?;
        Ok((self.slot, state))
    }

    /// Applies writes of nobody in particular; what waited for one superstep is gone then.
    fn put(
        &self,
        wiring: &Wiring,
        live: &mut Live,
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
        apply(wiring, live, vec![task]).map(|_| ())
    }

    fn ended(mut self, wiring: &Wiring) -> Result<(Edited, Decoded), Error> {
        let Some(state) = self.base.take() else {
            return Err(Error::value("No updates provided"));
        };
        let live = Live::restore(wiring, &state.checkpoint)?;
        let checkpoint = &state.checkpoint;
        let next = plan(wiring, &live, checkpoint.id, "", checkpoint.step + 1, None);
        let edited = Edited {
            checkpoint: checkpoint.id,
            slot: self.slot,
            next: next.into_iter().map(|task| task.name).collect(),
        };
        Ok((edited, state))
    }
}

/// Every node has seen what could start it.
fn let_nothing_wait(wiring: &Wiring, live: &mut Live) {
    for node in wiring.all() {
        for trigger in wiring.triggers(node).iter() {
            if let Some(version) = live.versions.get(trigger) {
                let seen = live.seen.entry(wiring.name(node).clone()).or_default();
                seen.insert(trigger.clone(), *version);
            }
        }
    }
}
