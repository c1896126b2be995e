//! What the engine tells whoever keeps an index of a conversation's messages: how the message
//! channel changed from one root checkpoint to the next, before the new one is stored.

use crate::{
    checkpoint::{Checkpoint, EventRow, NodeRow, frame::Frame},
    graph::Compiled,
    id::{NodeId, RunId},
    value::Value,
};

/// Turns changes of messages into rows that are stored with their checkpoint.
///
/// It is asked on the way of every superstep, so it does no I/O and does not wait.
pub trait Index: Send + Sync + 'static {
    /// The rows of a change. Asked when the channel changed, and at the end of a state edit.
    fn index(&self, change: &Change<'_>) -> Rows;
}

/// How the messages changed.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The messages of the parent checkpoint.
    pub before: &'a [Value],
    /// The messages of the new one.
    pub after: &'a [Value],
    /// Newest `add` node on the parent's path.
    pub last_node: Option<NodeId>,
    /// The run that makes the checkpoint.
    pub run: Option<RunId>,
    /// What makes it.
    pub by: By,
}

/// What makes a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A superstep of a run.
    Run,
    /// A state edit or a posted message.
    Edit {
        /// It is the last checkpoint of the edit.
        last: bool,
    },
}

/// Rows of a checkpoint's commit.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Changes of the index, in order.
    pub nodes: Vec<NodeRow>,
    /// Business events, in order.
    pub events: Vec<EventRow>,
    /// Newest `add` node on the new checkpoint's path.
    pub last_node: Option<NodeId>,
}

/// Indexes `checkpoint`, whose parent holds what `frame` does, and notes its newest node in it.
pub(super) fn index(
    index: &dyn Index,
    graph: &Compiled,
    frame: &Frame,
    checkpoint: &mut Checkpoint,
    by: By,
) -> Rows {
    let Some(channel) = graph.message_channel() else {
        return between(index, checkpoint, &[], &[], by);
    };
    let held = frame.stored(channel);
    let old = held.map_or(&[][..], |(_, value)| list(Some(value)));
    if held.map(|(version, _)| version) == checkpoint.versions.get(channel).copied() {
        return between(index, checkpoint, old, old, by);
    }
    let new = checkpoint.values.get(channel).cloned();
    between(index, checkpoint, old, list(new.as_ref()), by)
}

/// Indexes the change from one list of messages to another.
pub(super) fn between(
    index: &dyn Index,
    checkpoint: &mut Checkpoint,
    before: &[Value],
    after: &[Value],
    by: By,
) -> Rows {
    let same = std::ptr::eq(before, after) || (before.is_empty() && after.is_empty());
    if same && by != (By::Edit { last: true }) {
        return Rows::default();
    }
    let rows = index.index(&Change {
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
