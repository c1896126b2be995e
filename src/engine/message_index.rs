//! What an index of a conversation's messages learns from the engine: how the message channel
//! changed from one root checkpoint to the next, before the new one is stored.

use crate::{
    checkpoint::{Checkpoint, EventRow, NodeRow, frame::Frame},
    graph::Compiled,
    id::{NodeId, RunId},
    value::Value,
};

/// Turns changes of messages into rows that are stored with their checkpoint.
///
/// It is called in every superstep, so it does no I/O and does not wait.
pub trait MessageIndex: Send + Sync + 'static {
    /// The rows of a change. Called when the channel changed, and at the end of a state update.
    fn index(&self, change: &MessageChange<'_>) -> IndexRows;
}

/// How the messages changed.
#[derive(Clone, Copy, Debug)]
pub struct MessageChange<'a> {
    /// The messages of the parent checkpoint.
    pub before: &'a [Value],
    /// The messages of the new one.
    pub after: &'a [Value],
    /// Newest `add` node on the parent's path.
    pub last_node: Option<NodeId>,
    /// The run that makes the checkpoint.
    pub run: Option<RunId>,
    /// What makes it.
    pub by: ChangeSource,
}

/// What makes a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeSource {
    /// A superstep of a run.
    Run,
    /// A state update or a posted message.
    Update {
        /// It is the last checkpoint of the update.
        last: bool,
    },
}

/// Rows of a checkpoint's commit.
#[derive(Clone, Debug, Default)]
pub struct IndexRows {
    /// Changes of the index, in order.
    pub nodes: Vec<NodeRow>,
    /// Business events, in order.
    pub events: Vec<EventRow>,
    /// Newest `add` node on the new checkpoint's path.
    pub last_node: Option<NodeId>,
}

/// Indexes `checkpoint`, whose parent has the channels of `frame`, and sets its newest node.
pub(super) fn index_checkpoint(
    index: &dyn MessageIndex,
    graph: &Compiled,
    frame: &Frame,
    checkpoint: &mut Checkpoint,
    by: ChangeSource,
) -> IndexRows {
    let Some(channel) = graph.message_channel() else {
        return index_change(index, checkpoint, &[], &[], by);
    };
    let stored = frame.stored(channel);
    let old = stored.map_or(&[][..], |(_, value)| list(Some(value)));
    if stored.map(|(version, _)| version) == checkpoint.versions.get(channel).copied() {
        return index_change(index, checkpoint, old, old, by);
    }
    let new = checkpoint.values.get(channel).cloned();
    index_change(index, checkpoint, old, list(new.as_ref()), by)
}

/// Indexes the change from one list of messages to another.
pub(super) fn index_change(
    index: &dyn MessageIndex,
    checkpoint: &mut Checkpoint,
    before: &[Value],
    after: &[Value],
    by: ChangeSource,
) -> IndexRows {
    let unchanged = std::ptr::eq(before, after) || (before.is_empty() && after.is_empty());
    if unchanged && by != (ChangeSource::Update { last: true }) {
        return IndexRows::default();
    }
    let rows = index.index(&MessageChange {
        before,
        after,
        last_node: checkpoint.last_node,
        run: checkpoint.run,
        by,
    });
    checkpoint.last_node = rows.last_node;
    rows
}

/// The items of a stored list; none of anything else.
pub(super) fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_list).unwrap_or_default()
}
