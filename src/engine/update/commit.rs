//! The rows of a state update: its checkpoint, the messages that changed, and the branch it may open.

use std::collections::HashSet;

use super::StateUpdater;
use crate::{
    checkpoint::{
        At, Checkpoint, Commit, Pending, Query, Source, WriteRow,
        frame::{self, Decoded},
    },
    engine::{
        channels::{Channels, shape},
        error::Error,
        message_index::{self, ChangeSource, IndexRows, MessageIndex},
        topology::Topology,
    },
    id::{CheckpointId, TaskId},
    time::Timestamp,
    value::Value,
};

impl StateUpdater {
    /// Stores `channels` as the child of the base, and as the new base.
    pub async fn store(
        &mut self,
        topology: &Topology,
        channels: Channels,
        source: Source,
        step: i64,
        rows: Vec<Vec<Pending>>,
        by: ChangeSource,
    ) -> Result<(), Error> {
        let old = self.base.as_ref().map(|base| &base.checkpoint);
        let mut metadata = self.metadata.clone();
        if let Some(parents) = old.and_then(|old| old.metadata.get("parents")) {
            metadata.insert("parents", parents.clone());
        }
        let checkpoint = Checkpoint {
            id: CheckpointId(uuid::Uuid::nil()),
            parent: None,
            step,
            source,
            created_at: Timestamp::now(),
            values: channels.snapshot(topology),
            versions: channels.versions,
            consumed_versions: channels.consumed_versions,
            updated: None,
            metadata,
            run: self.run,
            thread: self.slot.thread,
            branch: self.slot.branch,
            depth: 0,
            root: self.root_of(old),
            last_node: old.and_then(|old| old.last_node),
            event_number: old.map_or(0, |old| old.event_number),
            run_supersteps: 0,
            task: None,
        };
        let parent = old.map(|old| old.id);
        let depth = old.map_or(-1, |old| old.depth);
        self.commit(checkpoint, parent, depth, rows, by, None).await
    }

    /// Stores `clone` of the base as a sibling of the base.
    pub async fn store_beside(&mut self, clone: Checkpoint, by: ChangeSource) -> Result<(), Error> {
        let (parent, depth) = (clone.parent, clone.depth - 1);
        let mut clone = clone;
        let mut before = None;
        if self.ns.is_empty()
            && self.index.is_some()
            && let Some(channel) = self.graph.message_channel()
        {
            // The messages that came with the original come with the clone as well.
            let above = match parent {
                Some(id) => self.load(id).await?,
                None => None,
            };
            let above = above.map(|above| above.checkpoint);
            clone.last_node = above.as_ref().and_then(|above| above.last_node);
            before = Some(match above {
                Some(above) => above.values.get(channel).cloned().unwrap_or_default(),
                None => Value::Null,
            });
        }
        self.commit(clone, parent, depth, vec![], by, before).await
    }

    /// The checkpoint of the root graph to which an edited state inside belongs: that of the state itself, where this branch
    /// has stored it, so that whoever goes on from a later checkpoint has the edit as well. What another branch or
    /// thread has stored is theirs: there the edit belongs to the head.
    fn root_of(&self, old: Option<&Checkpoint>) -> Option<CheckpointId> {
        if self.ns.is_empty() {
            return None;
        }
        let own = old.filter(|old| old.branch == self.slot.branch);
        let stored = |old: &Checkpoint| old.root;
        let root = own.and_then(stored).or(self.slot.head);
        root.or_else(|| old.and_then(stored))
    }

    async fn load(&self, id: CheckpointId) -> Result<Option<Decoded>, Error> {
        let query = Query {
            tree: self.slot.tree,
            thread: self.slot.thread,
            ns: self.ns.clone(),
            at: At::Id(id),
            values: true,
        };
        let stored = self.saver.load(query).await?;
        Ok(stored.as_ref().map(frame::decode).transpose()?)
    }

    /// Writes `checkpoint` behind `parent`, on a new branch if that is not the branch's head.
    /// `before` are the messages of `parent` if that is not the base.
    async fn commit(
        &mut self,
        mut checkpoint: Checkpoint,
        parent: Option<CheckpointId>,
        depth: i32,
        rows: Vec<Vec<Pending>>,
        by: ChangeSource,
        before: Option<Value>,
    ) -> Result<(), Error> {
        let base = self.base.take();
        let above = base.as_ref().map(|base| base.checkpoint.id);
        checkpoint.id = CheckpointId::mint(
            checkpoint.step,
            [above, parent, self.slot.head].into_iter().flatten(),
        );
        checkpoint.parent = parent;
        checkpoint.depth = depth + 1;
        checkpoint.created_at = Timestamp::now();
        let mut open = None;
        if self.ns.is_empty() && parent != self.slot.head {
            let (new, slot) = self.slot.branch_off(parent, depth, "update", None);
            open = Some(new);
            self.slot = slot;
        }
        checkpoint.branch = self.slot.branch;
        let mut frame = base
            .as_ref()
            .map(|base| base.frame.clone())
            .unwrap_or_default();
        let indexed = match &self.index {
            Some(index) if self.ns.is_empty() => match before {
                Some(before) => self.index_clone(&**index, &mut checkpoint, &before, by),
                None => message_index::index_checkpoint(
                    &**index,
                    &self.graph,
                    &frame,
                    &mut checkpoint,
                    by,
                ),
            },
            _ => IndexRows::default(),
        };
        let format = self.saver.format();
        let shape = |name: &str| shape(&self.graph, name);
        let encoded = frame.encode(&self.ns, &checkpoint, shape, format);
        // Output that was there is in the new row, which takes its place; once per task, since a
        // statement changes a row but once.
        let written = base.iter().flat_map(|base| &base.writes);
        let mut stored: HashSet<TaskId> = written
            .filter(|(branch, write)| *branch == self.slot.branch && write.idx >= 0)
            .map(|(_, write)| write.task)
            .collect();
        let writes = match above {
            Some(at) => rows
                .iter()
                .flat_map(|rows| {
                    frame::encode_writes(&self.ns, at, self.slot.branch, rows, None, format)
                })
                .map(|row| WriteRow {
                    upsert: row.upsert || (row.idx >= 0 && stored.remove(&row.task)),
                    ..row
                })
                .collect(),
            None => vec![],
        };
        let commit = Commit {
            slot: self.slot,
            open,
            checkpoint: encoded.row,
            blobs: encoded.blobs,
            writes,
            nodes: indexed.nodes,
            events: indexed.events,
        };
        let mut results = self.saver.commit(vec![commit]).await;
        results
            .pop()
            .unwrap_or(Err(crate::checkpoint::Error::Fenced))?;
        if self.ns.is_empty() {
            self.slot.head = Some(checkpoint.id);
            self.slot.head_depth = checkpoint.depth;
        }
        self.base = Some(Decoded {
            checkpoint,
            frame,
            writes: vec![],
            references: vec![],
        });
        Ok(())
    }

    fn index_clone(
        &self,
        index: &dyn MessageIndex,
        clone: &mut Checkpoint,
        before: &Value,
        by: ChangeSource,
    ) -> IndexRows {
        let channel = self.graph.message_channel();
        let after = channel
            .and_then(|channel| clone.values.get(channel))
            .cloned();
        let (before, after) = (
            message_index::list(Some(before)),
            message_index::list(after.as_ref()),
        );
        message_index::index_change(index, clone, before, after, by)
    }
}
