//! State edits: writing to a thread's state as if one of its nodes had.

use std::sync::Arc;

use super::{
    Error, Service,
    request::threads::{self, Update},
    view,
};
use crate::{
    checkpoint::At,
    engine::{Edit, StateUpdate},
    id::{CheckpointId, ThreadId},
    tree::{Outcome, Thread, base, read},
    value::{Map, Value},
};

impl Service {
    /// Edits the state of a thread: `{checkpoint, configurable, checkpoint_id}` of the new
    /// checkpoint. An edit of an older checkpoint opens a branch.
    ///
    /// # Errors
    /// No such thread or checkpoint; the thread has no graph yet, or runs; an update that makes
    /// no sense; the storage failed.
    pub async fn edit(&self, id: ThreadId, edit: threads::Edit) -> Result<Value, Error> {
        let thread = self.thread(id).await?;
        let update = StateUpdate {
            values: edit.values,
            as_node: edit.as_node,
            task: None,
        };
        let (ns, made) = self
            .write(&thread, &edit.at.ns, edit.at.checkpoint, vec![vec![update]])
            .await?;
        let address = view::address(id, &ns, made, None);
        let mut map = Map::with_capacity(3);
        map.insert("checkpoint", address.clone());
        map.insert("configurable", address);
        map.insert("checkpoint_id", made.to_string());
        Ok(Value::map(map))
    }

    /// Applies supersteps of updates to a thread that was just created.
    ///
    /// # Errors
    /// As [`edit`](Self::edit).
    pub async fn replay_updates(
        &self,
        thread: &Thread,
        supersteps: Vec<Vec<Update>>,
    ) -> Result<(), Error> {
        let supersteps = supersteps
            .into_iter()
            .map(|updates| {
                updates
                    .into_iter()
                    .map(|update| StateUpdate {
                        values: update.values,
                        as_node: update.as_node,
                        task: None,
                    })
                    .collect()
            })
            .collect();
        self.write(thread, &"".into(), None, supersteps).await?;
        Ok(())
    }

    async fn write(
        &self,
        thread: &Thread,
        ns: &Arc<str>,
        at: Option<CheckpointId>,
        supersteps: Vec<Vec<StateUpdate>>,
    ) -> Result<(Arc<str>, CheckpointId), Error> {
        let registered = self.graph_of(thread).ok_or(Error::NoGraph(thread.id))?;
        if thread.busy {
            return Err(Error::InFlight(thread.id));
        }
        let graph = read::graph_at(&registered.graph, ns)
            .ok_or_else(|| Error::Invalid(format!("there is no subgraph at `{ns}`")))?;
        let ns = read::stored_ns(&graph, ns);
        let parts = &self.inner.parts;
        // A claim in between raises the epoch: then nothing of the edit is written.
        let slot = parts.tree.slot(thread.id).await?;
        let slot = slot.ok_or(Error::NoThread(thread.id))?;
        let load = |at| base::load(&parts.saver, slot.tree, thread.id, &ns, at);
        let wanted = match (at, slot.head, ns.is_empty()) {
            (Some(id), ..) => Some(At::Id(id)),
            (None, Some(head), true) => Some(At::Id(head)),
            (None, None, true) => None,
            (None, _, false) => Some(At::Newest),
        };
        let mut found = match wanted {
            Some(wanted) => load(wanted).await?,
            None => None,
        };
        if let (Some(id), None) = (at, &found) {
            return Err(Error::NoCheckpoint(id));
        }
        if let Some(found) = &mut found {
            base::keep_own_writes(found, slot.branch);
        }
        let newest = match (ns.is_empty(), at) {
            (true, _) => slot.head,
            (false, Some(_)) => load(At::Newest).await?.map(|found| found.checkpoint.id),
            (false, None) => None,
        };
        let root = ns.is_empty();
        let mut metadata = Map::new();
        if let Some(value) = thread.metadata.get("graph_id") {
            metadata.insert("graph_id", value.clone());
        }
        let edit = Edit {
            saver: parts.saver.clone(),
            slot,
            ns: ns.clone(),
            graph,
            superseded: at.is_some() && at != newest,
            base: found,
            metadata,
            run: None,
        };
        let edited = edit.apply(supersteps).await?;
        if root {
            let outcome = match edited.next.is_empty() {
                true => Outcome::Idle,
                false => Outcome::Interrupted,
            };
            parts.tree.settle(edited.slot, outcome, None).await?;
        }
        Ok((ns, edited.checkpoint))
    }
}
