//! Copying a checkpoint beside itself (LangGraph's `__copy__`).

use std::{collections::VecDeque, sync::Arc};

use super::{StateUpdate, StateUpdater};
use crate::{
    checkpoint::{Checkpoint, Source},
    engine::{error::Error, message_index::ChangeSource, topology::Topology},
    value::Value,
};

impl StateUpdater {
    /// Clones the base beside itself; returns the updates for the clone.
    pub async fn copy(
        &mut self,
        topology: &Topology,
        values: Option<&Value>,
        by: ChangeSource,
    ) -> Result<Option<Vec<StateUpdate>>, Error> {
        let Some(base) = &self.base else {
            return Err(Error::invalid_update(
                "Cannot copy a non-existent checkpoint",
            ));
        };
        let old = &base.checkpoint;
        let parents = old.metadata.iter().filter(|(key, _)| &***key == "parents");
        let parents = parents.map(|(key, value)| (key.clone(), value.clone()));
        let clone = Checkpoint {
            step: old.step + 1,
            source: Source::Fork,
            updated: None,
            // No run made it.
            run: None,
            run_supersteps: 0,
            task: None,
            metadata: parents.collect(),
            ..old.clone()
        };
        let updates = values.and_then(Value::as_list).unwrap_or_default();
        let by = match by {
            ChangeSource::Update { last } => ChangeSource::Update {
                last: last && updates.is_empty(),
            },
            ChangeSource::Run => by,
        };
        self.store_beside(clone, by).await?;
        if updates.is_empty() {
            return Ok(None);
        }
        let channels = self.channels(topology)?;
        let mut waiting = self.waiting_tasks(topology, &channels);
        let mut groups: Vec<(Arc<str>, Vec<StateUpdate>)> = vec![];
        for item in updates {
            let (Some(values), Some(node)) = (
                item.as_list().and_then(|item| item.first()),
                item.as_list().and_then(|item| item.get(1)?.as_str()),
            ) else {
                return Err(Error::invalid_update(format!(
                    "Invalid update item: {} when copying checkpoint",
                    item.to_json()
                )));
            };
            let node: Arc<str> = node.into();
            let update = StateUpdate {
                values: Some(values.clone()).filter(|values| !values.is_null()),
                command: None,
                task: waiting.get_mut(&node).and_then(VecDeque::pop_front),
                as_node: Some(node.clone()),
            };
            match groups.iter_mut().find(|(name, _)| *name == node) {
                Some((_, group)) => group.push(update),
                None => groups.push((node, vec![update])),
            }
        }
        Ok(Some(
            groups.into_iter().flat_map(|(_, group)| group).collect(),
        ))
    }
}
